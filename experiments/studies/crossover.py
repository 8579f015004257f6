"""Time a training step on every grid of the ranks of this job for several global batch sizes, to see which is the fastest.

    mpiexec -n 4 gridgrad study crossover --batch-sizes 16,64,256,1024,4096 --out results/crossover.json
    gridgrad plot lines results/crossover.json --x batch_size --y seconds.median --series grid --log x,y

Batch parallelism sends all gradients, however small the minibatch; model parallelism sends activations, which grow with it.
So on a slow network there is a batch size below which grids with a model axis are faster, and above which the pure batch
grid is. Laugier et al. 2018 leave this threshold open (section 10): at 1,024 neurons a layer on a supercomputer, pure batch
parallelism was the fastest.

All grids are in one job and are timed alternately, so that a drift of the machine's speed affects all of them alike.
"""

import math
import os
import platform
import time
from itertools import product

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import byte_formulas, report
from gridgrad.experiments.common.made_up_data import minibatch, own_block
from gridgrad.experiments.common.options import (
    Parser,
    add_reduction,
    check_writable,
    reduction_of,
    user_input,
    whole,
    whole_list,
)
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import spread, table
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.calibration.this_machine import memory_of_machine
from gridgrad.parallel.calibration.timing import machine
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import UserError, on_root, run
from gridgrad.parallel.plans.fewest_bytes import feature_sizes
from gridgrad.parallel.prediction.planner import every_grid

WARM_UP = 2  # steps of every grid, at every batch size, that are not timed
COPIES = 3  # arrays as large as the parameters: they, their gradients, momentum


class TimedGrid:
    """One grid with its network and optimizer.

    serial: the network, a description. sizes: of the grid's axes. reduction: of the gradients, as
    `parallelize` takes it.
    """

    def __init__(self, serial, comm, sizes, reduction):
        self.sizes, self.grid = sizes, ProcessGrid(comm, **sizes)
        self.net = parallelize(serial, self.grid, allocate=False, **reduction)  # `check_memory` comes first
        self.optimizer = None

    def begin(self, x, y):
        """Take this rank's block of a global minibatch for the steps to come, and warm up."""
        self.batch_size = len(x)
        self.x, self.y = own_block(self.net, x, y)
        self.optimizer = self.optimizer or SGD(self.net, lr=0.001, momentum=0.9)
        self.seconds = []
        self.run(WARM_UP)
        self.seconds.clear()
        self.grid.tally.clear()

    def run(self, steps):
        loss = SoftmaxCrossEntropy()
        self.grid.world.comm.Barrier()
        for _ in range(steps):
            start = time.perf_counter()
            train_step(self.net, loss, self.optimizer, self.x, self.y, self.batch_size)
            self.seconds.append(time.perf_counter() - start)

    def row(self, rounds, widths):
        """The measurements, on rank 0: for each round the median step, where a step takes as long as its slowest rank.

        Collective.
        """
        measured = report.time_and_bytes(self.grid, self.seconds, 0.0)
        steps = self.grid.max(np.array(self.seconds)).reshape(rounds, -1)
        a_round = np.median(steps, axis=1)
        return measured and {
            "grid": str(self.grid),
            "batch_size": self.batch_size,
            "plan": self.net.plan,
            "reduction": str(self.net.reduction),
            "seconds": {"median": float(np.median(a_round)), "min": float(a_round.min()), "max": float(a_round.max())},
            "time": measured["time"],
            "bytes": measured["bytes"],
            "formula": formula(widths, self.net.plan, self.batch_size, **self.sizes),
        }


def formula(widths, plan, batch_size, batch, model):
    """The bytes of a step, over all ranks: {"gradients", "activations", "loss"}. widths: from the inputs to the outputs."""
    return {
        "gradients": byte_formulas.gradients(widths, batch, model),
        "activations": byte_formulas.activations(batch_size, widths, plan, batch, model),
        "loss": 24 * byte_formulas.all_reduce(1, batch * model),
    }


def measure(sides, serial, batch_sizes, outputs, rounds, steps):
    """Rows of all sides at all batch sizes, on rank 0. Collective."""
    rows = []
    widths = [serial.input_shape[0], *(after for _, after in feature_sizes(serial, serial.input_shape))]
    turns = list(product(batch_sizes, range(rounds)))
    for batch_size, turn in progress(turns, "rounds", sides[0].grid.rank == 0):
        if turn == 0:
            x, y = minibatch(serial.input_shape, outputs, batch_size)
            for side in sides:
                side.begin(x, y)
        for side in sides:
            side.run(steps)
        if turn == rounds - 1:
            rows += [side.row(rounds, widths) for side in sides]
    return rows


def crossings(rows):
    """{grid: the global batch size from which the pure batch grid is faster}; None where it is not, up to the largest.

    rows: what `measure` returns. Between measurements, seconds follow straight lines on logarithmic axes.
    """
    times = {}
    for row in rows:
        times.setdefault(row["grid"], {})[row["batch_size"]] = math.log(row["seconds"]["median"])
    first, *others = times
    return {grid: _crossing({b: times[grid][b] - times[first][b] for b in sorted(times[first])}) for grid in others}


def _crossing(lead):
    """Where `lead`, {batch size: log of the ratio}, becomes positive for good."""
    sizes = list(lead)
    lost = max((i for i, size in enumerate(sizes) if lead[size] <= 0), default=None)
    if lost is None or lost + 1 == len(sizes):
        return sizes[0] if lost is None else None
    below, above = sizes[lost], sizes[lost + 1]
    return below * (above / below) ** (lead[below] / (lead[below] - lead[above]))


def check_memory(comm, sides):
    """Raise UserError, on all ranks, if the networks of all grids do not fit a machine together."""
    own = sum(COPIES * side.net.size * side.net.dtype.itemsize for side in sides)
    here = sum(needed for where, needed in comm.allgather((machine(), own)) if where == machine())
    share = comm.allreduce(here / memory_of_machine(), MPI.MAX)
    if share > 1:
        raise UserError(f"the networks of all grids need {share:.1f} times the memory of a machine: use a smaller --net")


def describe(args, comm, rows):
    """The report, on rank 0. Collective."""
    ranks = comm.gather((platform.node(), machine(), os.cpu_count() or 1))
    return ranks and {
        "ranks": comm.size,
        "hosts": [host for host, *_ in ranks],
        "cores": sum({where: count for _, where, count in ranks}.values()),
        "link": args.link,
        "versions": report.versions(),
        **{name: getattr(args, name) for name in ("net", "features", "outputs", "rounds", "steps")},
        "warm_up": WARM_UP,
        "rows": rows,
        "batch_faster_from": crossings(rows),
    }


def in_words(result):
    """The report as lines of text."""
    yield f"{result['net']}, {result['ranks']} ranks on {result['cores']} cores, {result['link']}"
    rows = []
    for row in result["rows"]:
        parts = {f"ms {part}": 1e3 * row["time"][part] for part in ("compute", "wait", "communicate")}
        sent = {"MB sent, a rank": sum(row["bytes"].values()) / result["ranks"] / 1e6}
        rows.append({"batch": row["batch_size"], "grid": row["grid"], "ms a step": spread(row["seconds"], 1e-3)} | parts | sent)
    yield table(rows)
    for grid, size in result["batch_faster_from"].items():
        yield f"pure batch is faster than {grid} " + (
            f"from a batch of {size:.0f} on" if size else "at none of these batch sizes"
        )


def options():
    parser = Parser(prog="study crossover", description="Which grid of the ranks takes the shortest step, by batch size?")
    parser.add_argument(
        "--net", default="mlp:2048,2048,2048,relu", help=f"a network of Linear layers only; {network_names.HELP}"
    )
    parser.add_argument("--features", type=whole(1), default=1024, help="number of features of a sample")
    parser.add_argument("--outputs", type=whole(1), default=10, help="number of classes")
    parser.add_argument(
        "--batch-sizes", type=whole_list, default=[64], metavar="B,B,..", help="samples in the global minibatch"
    )
    parser.add_argument("--rounds", type=whole(1), default=7, help="rounds, in each of which every grid is timed once")
    parser.add_argument("--steps", type=whole(1), default=1, help="steps that are timed together")
    add_reduction(parser)
    parser.add_argument(
        "--link",
        default=os.environ.get(LINK, "network unnamed"),
        metavar="TEXT",
        help="a description of the network between the hosts",
    )
    parser.add_argument("--out", default="results/crossover.json", metavar="FILE.json", help="the report")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    on_root(comm, lambda: check_writable(args.out))
    with user_input():
        serial = network_names.build(args.net, args.features, args.outputs)
        # The pure batch grid comes first: `crossings` compares the others with it.
        sides = [TimedGrid(serial, comm, sizes, reduction_of(args)) for sizes in every_grid(comm.size, ("model", "batch"))]
    check_memory(comm, sides)
    rows = measure(sides, serial, sorted(set(args.batch_sizes)), args.outputs, args.rounds, args.steps)
    result = describe(args, comm, rows)
    on_root(comm, lambda: report.write_json(args.out, result))
    if comm.rank == 0:
        print(*in_words(result), f"report written to {args.out}", sep="\n")
    for side in sides:
        side.grid.free()


if __name__ == "__main__":
    run(main)
