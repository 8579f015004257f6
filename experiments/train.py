"""Train a network on a process grid.

    python -m experiments.train --dataset mnist --net mlp:512,512,relu
    mpiexec -n 4 python -m experiments.train --dataset mnist --net mlp:512,512,relu --grid batch=2,model=2

Every grid trains the same network on the same minibatches: compare `final_loss` in the reports.
"""

import time

import numpy as np
from mpi4py import MPI
from tqdm import tqdm

import datasets
from datasets.files import written_whole
from experiments import report
from experiments.options import Parser, check_writable, number, user_input, whole
from nn import LOSSES, SGD, schedules, specs
from parallel import READERS, ProcessGrid, evaluate, parallelize, parse_grid, plan, predict, train_step
from parallel.job import UserError, on_root, run
from parallel.training import check_finite, minibatch_indices, steps_per_epoch

WARM_UP = 5  # steps that are not timed


def options():
    parser = Parser(prog="train", description="Train a network on a process grid.")
    add = parser.add_argument
    add("--dataset", default="airfoil", metavar="NAME", help=f"one of {', '.join(datasets.DATASETS)}")
    add("--data-dir", metavar="DIR", help="folder of the data sets (default: $GRIDGRAD_DATA, else the user's cache)")
    add("--net", default="mlp:128,128,relu", help=specs.HELP)
    add(
        "--grid", help="sizes of the axes, such as batch=2,model=2; their product is the number of ranks (default: batch=RANKS)"
    )
    add("--plan", default="fewest-bytes", help=f"placement of the weights along the axis model: {plan.HELP}")
    add("--reader", default="each", choices=READERS, help="each rank reads its own samples, or rank 0 reads and sends them")
    add("--batch-size", type=whole(1), default=128, metavar="B", help="samples of the global minibatch")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=whole(1), metavar="E", help="passes over the training data (default: 10)")
    length.add_argument("--steps", type=whole(1), metavar="S", help="minibatches, instead of epochs")
    add("--lr", type=number(above=0), default=0.02, help="learning rate")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="of SGD")
    add("--nesterov", action="store_true", help="Nesterov's form of momentum")
    add("--l2", type=number(least=0), default=0.0, help="weight of the penalty l2/2 |p|^2")
    add("--l1", type=number(least=0), default=0.0, help="weight of the penalty l1 |p|")
    add("--schedule", default="cosine", help=f"of the learning rate: {schedules.HELP}")
    add("--seed", type=whole(0), default=0, help="of weights, data order and dropout")
    add("--dtype", default="float32", choices=("float32", "float64"), help="of all arrays")
    add("--report", metavar="FILE.json", help="write settings, versions, losses, times and bytes there")
    add("--predictions", metavar="FILE.npy", help="write the outputs for the test samples there, in the data's units")
    add("--quiet", action="store_true", help="print nothing but errors")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    say = print if comm.rank == 0 and not args.quiet else lambda *_: None
    np.seterr(all="ignore")  # a loss that is not finite is found and named below

    # ----- the grid and the data
    with user_input():
        grid = ProcessGrid(comm, **(parse_grid(args.grid) if args.grid else {"batch": comm.size}))
    on_root(comm, lambda: prepare(args))
    data = load(args, comm)
    if args.batch_size > len(data.train):
        raise UserError(f"--batch-size {args.batch_size} is larger than the data: {len(data.train)} training samples")
    per_epoch = steps_per_epoch(len(data.train), args.batch_size)
    steps = args.steps or (args.epochs or 10) * per_epoch

    # ----- the network, written serially, and this rank's part of it
    with user_input():
        serial = specs.build(args.net, data.features, data.outputs, args.seed, args.dtype)
        net = parallelize(serial, grid, args.plan)
        check_memory(net)
        schedule = schedules.parse(args.schedule, args.lr, steps)
        optimizer = SGD(net, schedule, args.momentum, args.nesterov, args.l2, args.l1)
    loss = LOSSES[data.loss]()
    reader = READERS[args.reader](net, data.train)
    say(f"{data.name}{' (synthetic)' * data.synthetic}: {len(data.train)} training samples, {len(data.test)} to test")
    say(f"{args.net} on {grid} ({grid.size} ranks), this rank holds {net.size} parameters:\n{net}")

    # ----- training
    losses = []
    with tqdm(total=steps, unit=" steps", delay=2, disable=None if comm.rank == 0 and not args.quiet else True) as bar:
        for step in range(steps):
            if step in (0, min(WARM_UP, steps - 1)):
                grid.tally.clear()
                seconds, samples, read = [], 0, 0.0
            start = time.perf_counter()
            indices, epoch = minibatch_indices(len(data.train), args.batch_size, args.seed, step)
            sent = grid.tally.seconds
            x, y = reader.load(indices)
            read += time.perf_counter() - start - (grid.tally.seconds - sent)
            samples += len(indices)
            losses.append(train_step(net, loss, optimizer, x, y, len(indices)))
            seconds.append(time.perf_counter() - start)
            bar.update()
            if (step + 1) % per_epoch == 0 or step + 1 == steps:
                recent = losses[epoch * per_epoch :]
                say(f"epoch {epoch + 1}: mean loss {sum(recent) / len(recent):.6f}, step {step + 1} of {steps}")
    check_finite(net)
    measured = report.time_and_bytes(grid, seconds, read)

    # ----- testing, on the same grid
    test_reader = READERS[args.reader](net, data.test)
    tested = evaluate(net, data.test, data.loss, test_reader, max(args.batch_size, 1000))
    if data.loss == "cross-entropy":
        say(f"test accuracy {tested['accuracy']:.2f} %")
    else:
        rmse = ", ".join(f"{value:.4g}" for value in tested["rmse"])
        say(f"test mean squared error {tested['mse']:.5f} (standardised), root {rmse} {data.units}")

    # ----- what is left behind
    if args.predictions:
        outputs = predict(net, data.test, test_reader, max(args.batch_size, 1000))
        on_root(comm, lambda: write_predictions(args.predictions, data.test.unstandardise(outputs)))
    if args.report:
        digest = report.digest(net.global_parameters())
        summary = lambda: summarise(args, data, net, losses, tested, measured, samples / len(seconds), digest)  # noqa: E731
        on_root(comm, lambda: report.write_json(args.report, summary()))
    if measured:
        say(f"median step {measured['seconds_per_step']['median'] * 1e3:.3f} ms")
    grid.free()


def prepare(args):
    """What one rank does for all before any starts: see that results can be written, and that the data are there."""
    paths = [path for path in (args.report, args.predictions) if path]
    if len(set(paths)) < len(paths):
        raise ValueError(f"--report and --predictions are the same file, {args.report}: give two names")
    for path in paths:
        check_writable(path)
    datasets.prepare(args.dataset, args.data_dir)


def load(args, comm):
    """The data set; where rank 0 reads for all, the others get its outline."""
    if args.reader == "each":
        with user_input():
            return datasets.load(args.dataset, args.data_dir, args.dtype)
    data = on_root(comm, lambda: datasets.load(args.dataset, args.data_dir, args.dtype))
    outline = comm.bcast(data and data.outline())
    return data or outline


def check_memory(net):
    """Raise ValueError if this rank's parameters can not fit the machine's memory."""
    needed = 3 * net.size * net.dtype.itemsize  # they, their gradients, their momentum
    if needed > report.memory_of_machine():
        raise ValueError(
            f"{net.size} parameters on one rank need {needed / 2**30:.0f} GiB with gradients and momentum, and the machine "
            f"has {report.memory_of_machine() / 2**30:.0f}: use more ranks along model, or a smaller net"
        )


def summarise(args, data, net, losses, tested, measured, samples_per_step, digest):
    """The report of a run: see the README."""
    return {
        "program": "train",
        "settings": vars(args),
        "dataset": data.name,
        "synthetic": data.synthetic,
        "net": args.net,
        "features": data.features,
        "outputs": data.outputs,
        "P": net.grid.size,
        "grid": str(net.grid),
        "plan": net.plan,
        "versions": report.versions(),
        "steps": len(losses),
        "samples_per_step": samples_per_step,
        "loss": losses,
        "final_loss": losses[-1],
        **{f"test_{name}": value for name, value in tested.items()},
        **measured,
        "params_digest": digest,
    }


def write_predictions(path, outputs):
    with written_whole(path) as beside, open(beside, "wb") as file:
        np.save(file, outputs, allow_pickle=False)


if __name__ == "__main__":
    run(main)
