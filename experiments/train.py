"""Train a network on a process grid.

    gridgrad train --dataset mnist --net mlp:512,512,relu
    mpiexec -n 4 gridgrad train --dataset mnist --net mlp:512,512,relu --grid batch=2,model=2

Every grid trains the same network on the same minibatches: compare `final_loss` in the reports.
"""

import contextlib
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.experiments.common import checkpoints, report, train_setup
from gridgrad.experiments.common.options import Parser, reduction_of, shares_of, user_input
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.parts.train_options import SHORT, add_options, parts_of
from gridgrad.experiments.run_parts import Run
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, evaluate, parse_grid, predict, use_device
from gridgrad.parallel.checkpoint.saver import Signals
from gridgrad.parallel.choose.parallelize import completed
from gridgrad.parallel.choose.reductions import named_reduction
from gridgrad.parallel.grid.devices import checked_names
from gridgrad.parallel.grid.process_grid import GridDescription, check_places
from gridgrad.parallel.job.run import end_after_death, on_root
from gridgrad.parallel.job.run import run as run_job
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.placement_spec import sizes_of
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.workers import divide, one_worker
from gridgrad.parallel.training import check_finite, steps_per_epoch
from gridgrad.parallel.training.distribute import make_parallel

PRINTED = 8  # of the errors of single outputs; a report has all of them


def options():
    parser = Parser(prog="train", description="Train a network on a process grid.", short=SHORT)
    add_options(parser)
    return parser


def check_job(args, ranks):
    """Raise ValueError for options that a job of so many ranks would refuse before it reads data."""
    train_setup.complete(args, ranks)
    checked_names(args.device, ranks)
    sizes = {"batch": ranks} if args.grid == "auto" else parse_grid(args.grid)
    check_places(args.grid, sizes, ranks)
    with contextlib.suppress(OSError):  # the data, on which the network depends, may not be on this machine
        data = datasets.load(args.dataset, args.data_dir)
        net = network_names.build(args.net, data.sample_shape, data.outputs, args.seed, args.dtype)
        train_setup.check_grid(sizes, net)
        train_setup.check_batch(args, len(data.train) - round(len(data.train) * (args.validation or 0)))
        shares = shares_of(args.shares, None if args.grid == "auto" else sizes) if args.shares not in (None, "auto") else None
        if args.plan not in (None, "auto") and not is_partition(args.plan) and sizes.get("stage", 1) == 1:
            place(net, GridDescription(sizes), args.plan, shares, None)


def main():
    for _ in training(options().parse_args()):
        pass


def training(args):
    """Train as the options say. A generator that yields after each step, where another training may take its turn."""
    comm = MPI.COMM_WORLD
    say = print if comm.rank == 0 and not args.quiet else lambda *_: None
    np.seterr(all="ignore")  # a loss that is not finite is found and named below
    with user_input():
        train_setup.complete(args, comm.size)
        signals = Signals()
        if args.checkpoint:
            signals.listen()  # from now on they ask for a checkpoint
        use_device(comm, args.device, args.tf32)
        sizes = sizes_of(args.grid, comm.size)
        grid = sizes and ProcessGrid(comm, **sizes)
    on_root(comm, lambda: train_setup.prepare(args))

    # ----- the data, and the network, written serially
    data = train_setup.load(args, comm)
    content = train_setup.content_of(data, comm, args.reader != "each") if args.checkpoint or args.resume else None
    with user_input():
        serial = network_names.build(args.net, data.sample_shape, data.outputs, args.seed, args.dtype)
        if grid:
            train_setup.check_grid(sizes, serial)
        original, data = data, data.reshaped(serial.input_shape)
        train, held_out = train_setup.samples(args, data, original.sample_shape)
        loss = train_setup.make_loss(args, data)
        train_setup.check_batch(args, len(train))
    per_epoch = steps_per_epoch(len(train), args.batch_size)
    steps = args.steps or (args.epochs or 10) * per_epoch

    # ----- the grid, and this rank's part of the network
    with user_input():
        asked, beside = train_setup.placement_spec(args, sizes)
        grid, placing = completed(serial, asked, grid, args.batch_size, alternatives=beside)
        own_grid, workers = one_worker(grid) if args.protocol == protocol_names.SYNC else divide(grid)
        balance = train_setup.balance(args, serial, grid, placing)
        if args.shares == "auto" and balance:
            placing = balance.placed(placing)
        net = make_parallel(serial, own_grid, placing, partial(named_reduction, **reduction_of(args)))
        train_setup.check_memory(args, serial, net, workers.size)
        protocol = protocol_names.parse(args.protocol)(net, workers, partial(train_setup.make_optimizer, args, steps=steps))
    reader, test_batch = READERS[args.reader], train_setup.evaluation_batch(args, serial)
    own, test_reader = train_setup.held(protocol, train, args.seed), reader(net, data.test)
    parts = parts_of(args, signals, train_setup.handicap(args, comm), train, held_out, data, test_batch, (serial, balance))
    run = Run(net, loss, protocol, reader(net, own), steps, per_epoch, parts, grid, workers, say)
    run.settings = checkpoints.settings_of(args, net, original, len(train), steps, content)
    for line in train_setup.lines(args, data, train, held_out, run, balance):
        say(line)

    # ----- the loop
    with user_input():
        run.begin()
    shares = protocol.shares(len(train), args.batch_size, args.seed)
    for turn in () if run.stop else protocol.turns(shares, steps, run.between):
        run.step(turn.indices, turn.step, turn.whole)
        if run.stop:
            break
        yield turn.step
    run.after()
    protocol.finish()
    if protocol.lost:  # there is no job of all ranks any more: the first worker reports what it has
        if workers.rank:
            end_after_death(0)
        run.warn(f"{protocol.lost} of {workers.size} workers died; the others went on")
        run.grid, comm = net.grid, net.grid.comm
    check_finite(net)
    found = run.report()
    losses = report.losses_of_all(run.grid, net, protocol, run.losses)
    followed = report.of_protocol(run.grid, net, protocol, args.batch_size)

    # ----- the test, on the same grid: all workers have the same network
    tested = evaluate(net, data.test, data.loss, test_reader, test_batch, classes=data.outputs)
    confusion = tested.pop("confusion", None)
    if data.loss == "cross-entropy":
        say(f"test accuracy {tested['accuracy']:.2f} %")
        if confusion:
            say(table(report.confusion_in_words(confusion, data.classes)))
    else:
        rmse = ", ".join(f"{value:.4g}" for value in tested["rmse"][:PRINTED]) + ", .." * (len(tested["rmse"]) > PRINTED)
        say(f"test mean squared error {tested['mse']:.5f} (standardised), root {rmse} {data.units}")
    if args.predictions:
        outputs = predict(net, data.test, test_reader, test_batch)
        on_root(comm, lambda: report.write_array(args.predictions, data.test.unstandardise(outputs)))

    # ----- the result
    if args.report:
        sections = summary(args, data, grid, run, losses), net.pipeline_report(), followed, found
        ended = {f"test_{name}": value for name, value in tested.items()}
        ended |= {"classes": data.classes, "confusion": confusion} if confusion else {}
        ended |= {"params_digest": report.digest(net), "flops_a_sample": report.flops_a_sample(serial)}
        on_root(comm, lambda: report.write_json(args.report, {k: v for one in (*sections, ended) for k, v in one.items()}))
    run.written = {name: getattr(args, name) for name in ("report", "predictions") if getattr(args, name)}
    run.close()
    if followed:
        say(report.workers_in_words(followed, found))
    if protocol.lost:
        end_after_death(0)
    grid.free()


def summary(args, data, grid, run, losses):
    """What a report says of any run, a dict on rank 0; the parts of the run add to it."""
    return losses and {
        "program": "train", "settings": vars(args), "dataset": data.name, "synthetic": data.synthetic, "net": args.net,
        "features": data.features, "outputs": data.outputs, "plan": run.net.plan, "protocol": args.protocol,
        "reduction": str(run.net.reduction), "versions": report.versions(), "steps": len(losses), "loss": losses,
        "final_loss": losses[-1], "P": grid.size, "grid": str(grid), "rebalancing": None,
    }  # fmt: skip


if __name__ == "__main__":
    run_job(main)
