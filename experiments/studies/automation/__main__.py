"""Is parallelism through our one call as fast as the same parallelism written by hand?

    mpiexec -n 2 gridgrad study automation --out results/automation.json
    sudo gridgrad launch --hosts 2 --rate 1000 2 study automation --out results/automation.json

That automated parallelization loses no efficiency is the main hypothesis of Grabaskas 2018, whose own comparison is of single
runs. Here the versions of a case take the same steps in one job, by turns, on the same minibatches, from the same weights:

| version  | what it is                                                                                                |
|----------|-----------------------------------------------------------------------------------------------------------|
| by hand  | mpi4py, as in `by_hand.py`: samples divided, columns of weights divided, or both                          |
| the same | `parallelize` with the algorithms of that program: the plan "laugier", and blocking sums of the gradients |
| chosen   | `parallelize` with nothing but the grid: it chooses how weights are divided and how gradients are summed  |

A turn is of as many steps as take about 50 ms; a version begins in each round in another place. What counts is the ratio of the
seconds of a round, so that a drift of the machine's speed affects both sides of it: median and quartiles over the rounds. After
the first steps the losses and all parameters are compared: the versions must be one training.
"""

import math
import os
import platform
import time
from dataclasses import dataclass
from itertools import islice

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, of_other_problems
from gridgrad.experiments.common.options import Parser, number, user_input, whole, whole_list
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import cell, table
from gridgrad.experiments.studies.automation.by_hand import LEARNING_RATE, ByHand
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, minibatch_indices, parallelize
from gridgrad.parallel.calibration.timing import machine
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import UserError, on_root, run

BY_HAND, SAME, CHOSEN = "by hand", "the same", "chosen"
AUTOMATED = {SAME: {"plan": "laugier", "reduction": "plain"}, CHOSEN: {}}  # options of `parallelize`
WARM_UP = 5  # steps of each version that are not timed
MOST = 200  # steps of a turn
TURN = 0.05  # seconds of a turn, at least
PROBLEM = "ranks", "link"  # what tells results apart


@dataclass(frozen=True)
class NetworkCase:
    """net: a name for `network_names.build`. shape: of a sample. convolves: so that only samples are divided by hand."""

    net: str
    shape: tuple
    outputs: int
    loss: str
    samples: int = 1000
    convolves: bool = False

    def serial(self, dtype):
        return network_names.build(self.net, self.shape, self.outputs, dtype=dtype)

    def data(self, dtype):
        """(x, y) of made-up samples."""
        rng = np.random.default_rng(0)
        shape = self.serial(dtype).input_shape
        x = rng.standard_normal((self.samples, *shape)).astype(dtype)
        if self.loss == "mse":
            return x, rng.standard_normal((self.samples, self.outputs)).astype(dtype)
        return x, rng.integers(0, self.outputs, self.samples)


NETWORKS = {  # that of the programs by hand, and those of the thesis
    "airfoil": NetworkCase("mlp:64,30,tanh", (4,), 1, "mse"),
    "mlp3": NetworkCase("mlp3", (32, 32, 1), 10, "cross-entropy"),
    "mnist-cnn": NetworkCase("mnist-cnn", (32, 32, 1), 10, "cross-entropy", convolves=True),
    "cifar-cnn": NetworkCase("cifar-cnn", (32, 32, 3), 10, "cross-entropy", convolves=True),
}


@dataclass(frozen=True)
class AutomationCase:
    """A network on a grid. sizes: {"batch", "model"} of it. batch_size: of the global minibatch."""

    name: str
    sizes: tuple
    batch_size: int

    @property
    def grid(self):
        return dict(self.sizes)

    @property
    def network(self):
        return NETWORKS[self.name]


def cases(names, ranks, batch_sizes):
    """The AutomationCases of some networks on so many ranks.

    Where only columns are divided there is a minibatch of one sample too, as the thesis has it.
    """
    grids = [(ranks, 1), (1, ranks)] + [(2, ranks // 2)] * (ranks > 2 and ranks % 2 == 0)
    return [
        AutomationCase(name, (("batch", batch), ("model", model)), size)
        for name in names
        for batch, model in grids
        for size in sorted({*batch_sizes, 1} if batch == 1 else batch_sizes)
        if model == 1 or not NETWORKS[name].convolves
    ]


class Automated:
    """The same as ByHand, through `parallelize`. options: of it."""

    def __init__(self, serial, loss, comm, sizes, x, y, **options):
        self.grid = ProcessGrid(comm, **sizes)
        self.net = parallelize(serial, self.grid, **options)
        self.loss, self.optimizer, self.x, self.y = loss, SGD(self.net, LEARNING_RATE), x, y

    def step(self, rows):
        return self.net.learn(self.x[rows], self.y[rows], self.loss, self.optimizer)

    def mean(self, value):
        return value

    def parameters(self):
        return [self.net.global_value(p, everywhere=True) for _, p in self.net.parameters]

    def free(self):
        self.grid.free()


class TimedVersion:
    """A version of an AutomationCase, the number of steps that it has taken, and the seconds of its turns."""

    def __init__(self, case, comm, dtype, make):
        self.case, self.comm, self.steps, self.seconds = case, comm, 0, []
        network = case.network
        self.version = make(network.serial(dtype), LOSSES[network.loss](), comm, case.grid, *network.data(dtype))

    def turn(self, steps):
        """Take some steps; returns the seconds of the slowest rank, and the last loss. Collective."""
        self.comm.Barrier()
        start = time.perf_counter()
        for _ in range(steps):
            rows, _ = minibatch_indices(self.case.network.samples, self.case.batch_size, 0, self.steps)
            value = self.version.step(rows)
            self.steps += 1
        return self.comm.allreduce(time.perf_counter() - start, MPI.MAX), value


def sides_of(case, comm, dtype):
    """{name of the version: TimedVersion} of an AutomationCase. Collective."""
    sides = {BY_HAND: TimedVersion(case, comm, dtype, ByHand)}
    for name, options in AUTOMATED.items():
        sides[name] = TimedVersion(case, comm, dtype, lambda *problem, options=options: Automated(*problem, **options))
    return sides


def warmed_up(sides):
    """(steps of a turn, {automated version: the largest relative difference of its loss or parameters}). Collective.

    The losses and parameters of the version by hand are those that others are compared with.
    """
    values, seconds = {}, 0.0
    for name, side in sides.items():
        seconds, value = side.turn(WARM_UP)
        values[name] = [np.array(side.version.mean(value)), *side.version.parameters()]
        side.seconds.append(side.turn(1)[0])
    steps = math.ceil(TURN / max(1e-6, min(side.seconds[0] for side in sides.values())))
    for side in sides.values():
        side.seconds.clear()
    return min(MOST, steps), {name: difference(values[name], values[BY_HAND]) for name in AUTOMATED}


def difference(found, expected):
    """The largest difference of two lists of arrays, each relative to the largest number of its array."""
    return max(
        float(np.abs(np.asarray(a) - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(found, expected, strict=True)
    )


def measure(case, comm, dtype, rounds):
    """The row of an AutomationCase. rounds: an iterable with an item, whatever it is, for each round. Collective."""
    sides = sides_of(case, comm, dtype)
    steps, differences = warmed_up(sides)
    names = list(sides)
    for turn, _ in enumerate(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            sides[name].seconds.append(sides[name].turn(steps)[0] / steps)
    nets = {name: sides[name].version.net for name in AUTOMATED}
    row = {
        "net": case.name,
        "grid": ",".join(f"{axis}={size}" for axis, size in case.sizes if size > 1) or "batch=1",
        "batch_size": case.batch_size,
        "parameters": sum(math.prod(p.shape) for _, p in nets[SAME].parameters),
        "steps": steps,
        "seconds": {name: quartiles(side.seconds) for name, side in sides.items()},
        "ratio": {name: quartiles(np.divide(sides[name].seconds, sides[BY_HAND].seconds)) for name in AUTOMATED},
        "difference": differences,
        "plan": {name: ",".join(net.plan) for name, net in nets.items()},
        "reduction": {name: str(net.reduction) for name, net in nets.items()},
    }
    for side in sides.values():
        side.version.free()
    return row


def quartiles(values):
    """{"median", "lower", "upper"} of some numbers."""
    lower, middle, upper = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return {"median": middle, "lower": lower, "upper": upper}


def describe(args, comm, rows):
    """The report, on rank 0. Collective."""
    ranks = comm.gather((platform.node(), machine(), os.cpu_count() or 1))
    cores = ranks and sum({where: count for _, where, count in ranks}.values())
    return ranks and {
        "ranks": comm.size,
        "hosts": len({host for host, *_ in ranks}),
        "cores": cores,
        "oversubscribed": comm.size > cores,
        "link": args.link,
        "dtype": args.dtype,
        "rounds": args.rounds,
        "versions": report.versions(),
        "rows": rows,
    }


def in_words(result):
    """The report as lines of text."""
    of = lambda found, unit=1.0: "{} ({} - {})".format(*(cell(found[k] / unit) for k in ("median", "lower", "upper")))  # noqa: E731
    yield f"{result['ranks']} ranks on {result['cores']} cores, {result['link']}, {result['dtype']}, {result['rounds']} rounds"
    yield table(
        [
            {"network": row["net"], "grid": row["grid"], "batch": row["batch_size"]}
            | {f"ms a step, {name}": cell(1e3 * row["seconds"][name]["median"]) for name in row["seconds"]}
            | {f"{name} / by hand, median (quartiles)": of(row["ratio"][name]) for name in AUTOMATED}
            | {"difference": f"{max(row['difference'].values()):.0e}"}
            for row in result["rows"]
        ]
    )


def options():
    parser = Parser(prog="study automation", description="Is parallelism through our one call as fast as by hand?")
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--nets", type=names, default=list(NETWORKS), metavar="NET,NET,..", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument(
        "--batch-sizes", type=whole_list, default=[64, 100], metavar="B,B,..", help="samples in the global minibatch"
    )
    parser.add_argument("--rounds", type=whole(1), default=40, help="rounds, in each of which every version has a turn")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="type of all numbers")
    parser.add_argument(
        "--tolerance", type=number(above=0), default=1e-3, help="the most by which versions may differ after the first steps"
    )
    parser.add_argument(
        "--link", default=os.environ.get(LINK, "one machine"), metavar="TEXT", help="a description of the network between hosts"
    )
    parser.add_argument("--out", metavar="FILE.json", help="add the report to those in this file")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    if comm.size == 1:
        raise UserError("there is nothing parallel on 1 rank: start at least 2")
    with user_input():
        for name in args.nets:
            if name not in NETWORKS:
                raise ValueError(f"--nets: there is no {name}: use {', '.join(NETWORKS)}")
    if min(args.batch_sizes) < comm.size or max(args.batch_sizes) > min(one.samples for one in NETWORKS.values()):
        raise UserError(f"--batch-sizes: each rank needs a sample, and there are {NETWORKS['airfoil'].samples} in all")
    before = on_root(comm, lambda: earlier_results(args.out, PROBLEM, "automation")) if args.out else None
    wanted = cases(args.nets, comm.size, args.batch_sizes)
    rounds, rows = iter(progress(range(len(wanted) * args.rounds), "rounds", comm.rank == 0)), []
    for case in wanted:
        row = measure(case, comm, args.dtype, islice(rounds, args.rounds))
        if max(row["difference"].values()) > args.tolerance:
            raise UserError(f"{case}: the versions are not one training, they differ by {row['difference']}")
        rows.append(row)
    result = describe(args, comm, rows)
    if args.out:
        on_root(comm, lambda: report.write_json(args.out, of_other_problems(before, result, PROBLEM) + [result]))
    if comm.rank == 0:
        print(*in_words(result), sep="\n")


if __name__ == "__main__":
    run(main)
