"""Train one network to an accuracy on its training images in several ways on the same ranks, and compare time and epochs.

    gridgrad launch 2 study convergence
    gridgrad plot lines results/convergence.json --x epoch --y test_accuracy --series way

This is the comparison of Figure 5.2 of Eserol (2019), with minibatches that overlap: each has an update of its own although
others are under way. All ways begin with the same weights and see the same minibatches, with the same learning rate, and take
turns, each of a part of an epoch, so that a drift of the machine's speed affects all alike. The clock runs in training steps
alone, also in those with which a pipeline runs empty before the accuracies are computed. A way ends when its accuracy on a
fixed subset of the training images is at least the target.
"""

import time

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.datasets.views import Subset
from gridgrad.experiments.common import report, train_setup
from gridgrad.experiments.common.options import Parser, add_data, number, user_input, whole
from gridgrad.experiments.common.tables import lines, range_of, table
from gridgrad.experiments.plots.style import measured_on
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.random import permutation
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import READERS, ProcessGrid, evaluate, parallelize
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.job.waiting import broadcast
from gridgrad.parallel.training import MicroBatchReader, minibatch_indices, steps_per_epoch
from gridgrad.parallel.training.steps import Diverged

GAIN = 6**0.5  # of the weights of He et al. (2015) over those of `nn`
PROBLEM = "dataset", "net", "ranks", "batch_size", "samples", "lr"  # what names a problem in the results
WAYS = {  # {way: (axis of the grid with all ranks, pipeline, plan)}; {} is the number of minibatches under way
    "serial": (None, None, None),  # rank 0 trains, and the others sleep
    "batch": ("batch", None, None),  # each rank has a part of the minibatch, and the gradients are summed
    "1f1b": ("stage", "1f1b", None),  # micro-batches pass through stages of whole layers; one update
    "async": ("stage", "async:{}", None),  # minibatches overlap; the backward pass uses the weights of its forward pass
    "nostash": ("stage", "async:{}:nostash", None),  # the same with the newest weights
    "hypergraph": ("model", "async:{}", "hypergraph"),  # the filters are divided by a partition, the way of the thesis
}
SEEN = (
    "epoch {epoch:.2f}, {seconds:.1f} s, loss {training_loss:.4f}, accuracy {training_accuracy:.2f} % in training, "
    "{test_accuracy:.2f} % in the test"
)
TEXT = """# Convergence of several ways to train

Written by `gridgrad study convergence`. The ways take turns, and the clock runs in training steps alone. Accuracies
are those at which the target was reached, else the last ones. Behind the median of a step is its range over the
turns. Updates in between are those of a rank between forward and backward of a minibatch, the mean for each rank."""


class ConvergenceTraining:
    """The training of a network in one way. Its methods are collective. comm: of the ranks that train. history: a dict for each
    evaluation. over: whether the target is reached or the training has diverged."""

    def __init__(self, way, args, serial, data, comm):
        axis, pipeline, plan = WAYS[way]
        pipeline = pipeline and pipeline.format(args.in_flight)
        self.label = ", ".join(filter(None, (f"{axis}={comm.size}" if axis else "serial", plan, pipeline)))
        self.args, self.data, self.grid = args, data, ProcessGrid(comm, **{axis or "batch": comm.size})
        self.net = parallelize(serial, self.grid, plan, reduction="auto", pipeline=pipeline)
        self.trainer = self.net.trainer(LOSSES[data.loss](), SGD(self.net, args.lr, momentum=args.momentum))
        seen = np.sort(permutation(args.seed, 0, args.samples, "evaluated")[: args.evaluated])
        self.parts = {"training_accuracy": Subset(data.train, seen), "test_accuracy": data.test}
        self.test_batch = train_setup.evaluation_batch(args, serial)
        self.per_epoch = steps_per_epoch(args.samples, args.batch_size)
        self.step, self.seconds, self.step_seconds, self.history, self.diverged, self.over = 0, 0.0, [], [], None, False

    def advance(self, until):
        """Train until a step, and evaluate."""
        args, net, each, losses = self.args, self.net, READERS["each"], []
        reader = MicroBatchReader(each(net, self.data.train))
        try:
            self.grid.comm.Barrier()
            start = time.perf_counter()
            for step in range(self.step, until):
                indices, _ = minibatch_indices(args.samples, args.batch_size, args.seed, step)
                losses += self.trainer.step(reader.parts(indices, net.micro_batches), len(indices))
            losses += self.trainer.flush()
            seconds = float(self.grid.max(np.array([time.perf_counter() - start]))[0])
            accuracies = {name: evaluate(net, part, self.data.loss, each(net, part), self.test_batch)["accuracy"]
                          for name, part in self.parts.items()}  # fmt: skip
        except Diverged as error:
            self.diverged, self.over = str(error), True
            return
        self.seconds += seconds
        self.step_seconds.append(seconds / (until - self.step))
        self.step, epoch, loss = until, until / self.per_epoch, sum(losses) / len(losses)
        self.history.append({"epoch": epoch, "seconds": self.seconds, "training_loss": loss, **accuracies})
        self.over = reached(self.history, args.target) is not None

    def result(self):
        """What the results have of this way: a dict on rank 0."""
        found, net = reached(self.history, self.args.target) or {}, self.net
        staleness = self.grid.gather(dict(sorted(self.trainer.staleness.items())))
        return {
            "way": self.label, "grid": str(self.grid), "plan": ",".join(dict.fromkeys(net.plan)), "pipeline": net.pipeline,
            "micro_batches": net.micro_batches, "reduction": str(net.reduction), "epochs": found.get("epoch"),
            "seconds": found.get("seconds"), "seconds_per_step": range_of(self.step_seconds) if self.step_seconds else None,
            "staleness": staleness if any(staleness or ()) else None, "diverged": self.diverged, "history": self.history,
        }  # fmt: skip


def reached(history, target):
    """The first entry of a history with which the target was reached, or None."""
    return next((row for row in history if row["training_accuracy"] >= target), None)


def cells(result):
    """The ways of a result as dicts of what is in the cells of the table."""
    target = result["settings"]["target"]
    serial = next((way["seconds"] for way in result["ways"] if way["way"] == "serial"), None)
    for way in result["ways"]:
        seconds, step, staleness = way["seconds"], way["seconds_per_step"], way["staleness"]
        at = reached(way["history"], target) or (way["history"][-1] if way["history"] else None)
        means = (sum(int(number) * count for number, count in of.items()) / sum(of.values()) for of in staleness or ())
        yield {
            "way": way["way"] + " (diverged)" * bool(way["diverged"]),
            f"epochs to {target:g} %": way["epochs"] and f"{way['epochs']:.2f}",
            f"seconds to {target:g} %": seconds and f"{seconds:.1f}",
            "serial by it": serial and seconds and f"{serial / seconds:.2f}",
            "ms a step": step and f"{1e3 * step['median']:.1f} ({1e3 * step['min']:.1f} - {1e3 * step['max']:.1f})",
            "training accuracy": at and f"{at['training_accuracy']:.2f} %",
            "test accuracy": at and f"{at['test_accuracy']:.2f} %",
            "updates in between": staleness and ", ".join(f"{mean:.2f}" for mean in means),
        }


def document(results):
    """All results of a file as Markdown."""
    yield TEXT
    for one in results:
        settings = one["settings"]
        yield (
            f"\n{one['net']} on {one['samples']} images of {one['dataset']}{' (made up)' * bool(one['synthetic'])}, "
            f"{one['ranks']} ranks, batch {one['batch_size']}, learning rate {one['lr']:g}, momentum {settings['momentum']:g}, "
            f"training accuracy on {settings['evaluated']} images; {measured_on(one['versions'])}:\n"
        )
        yield lines(list(cells(one)))


def options():
    parser = Parser(prog="study convergence", description="Which of several ways to train reaches an accuracy first?")
    add_data(parser, "cifar10", "vgg-style:16,32,64", 64)
    add = parser.add_argument
    add("--ways", metavar="WAY,WAY,..", help=f"some of {', '.join(WAYS)} (default: all, or serial where there is one rank)")
    add("--target", type=number(above=0, below=100), default=70.0, metavar="PERCENT", help="accuracy on the training images")
    add("--epochs", type=whole(1), default=6, help="the most passes over the training images")
    add("--every", type=number(above=0), default=0.5, metavar="EPOCHS", help="how often the accuracies are computed")
    add("--samples", type=whole(1), metavar="S", help="use only so many training images, the first ones (default: all)")
    add("--evaluated", type=whole(1), default=5000, metavar="S", help="training images on which the accuracy is computed")
    add("--lr", type=number(above=0), default=0.005, help="learning rate of all ways")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="momentum of all ways")
    add("--in-flight", type=whole(1), metavar="K", help="minibatches that are under way at a time in async, nostash and "
        "hypergraph (default: as many as there are ranks)")  # fmt: skip
    add("--out", default="results/convergence.json", metavar="FILE.json", help="file of the results, to which these are added")
    return parser


def network(args, data, ranks):
    """(the serial network, the data in its shape); completes the options. ValueError if they do not fit the data."""
    if data.loss != "cross-entropy":
        raise ValueError(f"--dataset {args.dataset} has no classes, and so no accuracy: use another one, such as cifar10")
    train_setup.complete_samples(args, data)
    args.in_flight, args.evaluated = args.in_flight or ranks, min(args.evaluated, args.samples)
    serial = network_names.build(args.net, data.sample_shape, data.outputs, args.seed)
    # the weights of He et al. (2015) are larger than those of `nn`: else such networks hardly learn in the first epoch
    for _, parameter in serial.parameters if args.net.startswith(network_names.VGG) else ():
        if parameter.name == "weight":
            parameter.value *= GAIN
    return serial, data.reshaped(serial.input_shape)


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    np.seterr(all="ignore")  # a loss that is not finite is found and named
    before = on_root(comm, lambda: report.earlier_results(args.out, (*PROBLEM, "ways"), "convergence", document))
    on_root(comm, lambda: datasets.prepare(args.dataset, args.data_dir))
    with user_input():
        everything = list(WAYS) if comm.size > 1 else ["serial"]
        going = everything if args.ways is None else list(dict.fromkeys(args.ways.split(",")))
        for name in going:
            if name not in WAYS:
                raise ValueError(f"--ways {args.ways}: there is no way '{name}': use {', '.join(WAYS)}")
            if WAYS[name][0] and comm.size == 1:
                raise ValueError(f"--ways {args.ways}: '{name}' is for several ranks: start at least 2")
        serial, data = network(args, datasets.load(args.dataset, args.data_dir), comm.size)
        comms = {name: comm if WAYS[name][0] else MPI.COMM_SELF if comm.rank == 0 else None for name in going}
        trainings = {name: mine and ConvergenceTraining(name, args, serial, data, mine) for name, mine in comms.items()}

    per_epoch = steps_per_epoch(args.samples, args.batch_size)
    interval, steps = max(1, round(args.every * per_epoch)), args.epochs * per_epoch
    for until in (*range(interval, steps, interval), steps):
        for name in list(going):
            if training := trainings[name]:
                training.advance(until)
            said = training and (training.diverged or SEEN.format(**training.history[-1]), training.over)
            line, over = broadcast(comm, said)  # a rank without a part in it sleeps meanwhile: its core is for the others
            if over:
                going.remove(name)
            if comm.rank == 0:
                print(f"{name}: {line}", flush=True)

    ways = [training.result() for training in trainings.values() if training]
    result = {
        "dataset": data.name, "synthetic": data.synthetic, "net": args.net, "ranks": comm.size, "batch_size": args.batch_size,
        "samples": args.samples, "lr": args.lr, "settings": vars(args), "versions": report.versions(), "ways": ways,
    }  # fmt: skip
    on_root(comm, lambda: report.write_results(args.out, before, result, PROBLEM, document))
    if comm.rank == 0:
        print(f"{table(list(cells(result)))}\nresults added to {args.out}, and the table beside it")
    for training in filter(None, trainings.values()):
        training.grid.free()


if __name__ == "__main__":
    run(main)
