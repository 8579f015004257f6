"""Measure how much of the all-reduce of the gradients is hidden behind backward when it is done bucket by bucket.

    mpiexec -n 2 gridgrad study overlap --net cifar-cnn --shape 32,32,3 --batch-size 64 --out results/overlap.json

Steps with the blocking all-reduce and with buckets alternate, on a grid with the axis `batch` over all ranks. The times are
read off their traces, on the rank that arrives last and so waits for no other:

- "alone": seconds of the blocking all-reduce.
- "coverable": the part of it that backward could hide at best. This assumes that each bucket takes a share of "alone" in
  proportion to its bytes, and starts as soon as it is written and the bucket before it has arrived.
- "exposed": seconds that the rank still spends on buckets after backward.

The share that is hidden is

    hidden = (alone - exposed) / coverable,   at most 1.

Between ranks on the same node nothing is hidden, because the cores that would have to move the data are busy with backward.
"""

import os
import time
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, of_other_problems
from gridgrad.experiments.common.made_up_data import minibatch, own_block
from gridgrad.experiments.common.options import Parser, add_problem, user_input, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import UserError, on_root, run
from gridgrad.parallel.observe.trace import Trace

WARM_UP = 2
PROBLEM = "net", "batch_size", "P", "link"  # what tells results apart


class ReducedNetwork:
    """A network whose gradients are summed in one way, and its steps on a minibatch of its own."""

    def __init__(self, args, comm, reduction):
        serial = network_names.build(args.net, args.shape, args.outputs)
        self.grid = ProcessGrid(comm, batch=comm.size)
        self.net = parallelize(serial, self.grid, reduction=reduction)
        self.optimizer, self.loss = SGD(self.net, lr=0.001, momentum=0.9), LOSSES["cross-entropy"]()
        self.x, self.y = own_block(self.net, *minibatch(serial.input_shape, args.outputs, args.batch_size))
        self.batch_size = args.batch_size

    def step(self):
        """(seconds, Trace) of one step, which the ranks begin together."""
        with Trace(self.net, 1) as trace:
            self.grid.comm.Barrier()
            start = time.perf_counter()
            train_step(self.net, self.loss, self.optimizer, self.x, self.y, self.batch_size)
            return time.perf_counter() - start, trace


def backward_ends(trace):
    """The time at which the backward pass of a step ended."""
    return max(event.stop for event in trace.spans if event.name.endswith((" gradients", " input_gradient", " backward")))


def of_gradients(trace, category):
    """(start, stop, bytes) of the collectives of one category, on gradients."""
    calls = [event for event in trace.collectives if event.category == category and event.name.startswith("gradients ")]
    return [(event.start, event.stop, event.bytes) for event in calls]


def least_exposed(flights, ends, alone):
    """The least seconds of communication that remain when backward ends, if all buckets together take `alone` seconds."""
    total, arrived = sum(sent for *_, sent in flights), 0.0
    for start, _, sent in sorted(flights):
        arrived = max(arrived, start) + alone * sent / total
    return max(arrived - ends, 0.0)


def measured(grid, plain, overlap):
    """{"alone", "coverable", "exposed", "hidden"} of one round's traces: seconds, and a share. Collective."""
    alone = grid.min(np.array([sum(stop - start for start, stop, _ in of_gradients(plain, "collective"))]))[0]
    flights, ends = of_gradients(overlap, "flight"), backward_ends(overlap)
    after = of_gradients(overlap, "progress") + of_gradients(overlap, "collective")
    exposed = sum(stop - start for start, stop, _ in after if start >= ends)
    exposed, least = min(grid.comm.allgather((exposed, least_exposed(flights, ends, alone))))
    coverable = max(alone - least, 0.0)
    hidden = min(max(alone - exposed, 0.0) / coverable, 1.0) if coverable else 0.0
    return {"alone": float(alone), "coverable": float(coverable), "exposed": float(exposed), "hidden": float(hidden)}


WORDS = {  # what each number of a round is called, and its unit
    "alone": ("all-reduce alone, ms", 1e-3), "coverable": ("that backward could hide, ms", 1e-3),
    "exposed": ("not hidden, ms", 1e-3), "hidden": ("hidden, % of what could be", 1e-2),
    "plain_step": ("step with the blocking all-reduce, ms", 1e-3), "overlap_step": ("step with buckets, ms", 1e-3),
}  # fmt: skip


def in_words(results):
    """The results as lines of text."""
    yield (
        f"{results['net']}, batch {results['batch_size']}, {results['P']} ranks, {results['link'] or 'one machine'}, "
        f"--reduction {results['reduction']}"
    )
    of = {name: range_of([found[name] for found in results["rounds"]]) for name in WORDS}
    yield table([{"measured": words, "median (range)": spread(of[name], unit)} for name, (words, unit) in WORDS.items()])


def options():
    parser = Parser(prog="study overlap", description="How much of the all-reduce of the gradients hides behind backward?")
    add_problem(parser, "cifar-cnn", [32, 32, 3], outputs=10, batch_size=64)
    parser.add_argument("--reduction", default="overlap", help="overlap or overlap:KIB, see train --help")
    parser.add_argument("--rounds", type=whole(1), default=15, help="rounds, in each of which both sides take a step")
    parser.add_argument(
        "--link", default=os.environ.get(LINK), help="a description of the network between the hosts, for the report"
    )
    parser.add_argument("--out", metavar="FILE.json", help="add the results to those in this file")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    if comm.size == 1:
        raise UserError("there is nothing to hide on 1 rank: start at least 2")
    if not args.reduction.startswith("overlap"):
        raise UserError(f"--reduction must be overlap or overlap:KIB, not '{args.reduction}'")
    before = on_root(comm, lambda: earlier_results(args.out, PROBLEM, "overlap")) if args.out else None
    with user_input():
        plain, overlap = (ReducedNetwork(args, comm, reduction) for reduction in ("plain", args.reduction))
    rounds = []
    for _ in progress(range(args.rounds + WARM_UP), "rounds", comm.rank == 0):
        (seconds, trace), (other_seconds, other_trace) = plain.step(), overlap.step()
        found = measured(plain.grid, trace, other_trace)
        slowest = plain.grid.max(np.array([seconds, other_seconds])).tolist()
        rounds.append(found | dict(zip(("plain_step", "overlap_step"), slowest)))
    rounds = rounds[WARM_UP:]
    results = {
        "net": args.net, "batch_size": args.batch_size, "P": comm.size, "link": args.link,
        "reduction": str(overlap.net.reduction), "parameters": overlap.net.size, "versions": report.versions(),
        "rounds": rounds,
        "median": {name: median(r[name] for r in rounds) for name in rounds[0]},
    }  # fmt: skip
    if comm.rank == 0:
        print(*in_words(results), sep="\n")
    if args.out:
        on_root(comm, lambda: report.write_json(args.out, of_other_problems(before, results, PROBLEM) + [results]))
    plain.grid.free()
    overlap.grid.free()


if __name__ == "__main__":
    run(main)
