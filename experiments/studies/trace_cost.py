"""Measure what tracing costs: the time of a step divided by the time of a step that cannot be traced.

    mpiexec -n 2 gridgrad study trace-cost --net cifar-cnn --shape 32,32,3 --outputs 10 --batch-size 64

"on" is the ratio while a trace is open. "off" is the ratio when none is open, so that the code only checks whether an observer
is registered. The three kinds of steps alternate, a few steps each, and the medians of the ratios count.
"""

import time
from contextlib import nullcontext
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import problem_of
from gridgrad.experiments.common.options import Parser, add_device, add_grid, add_problem, check_writable, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.nn import LOSSES, SGD, Context, device
from gridgrad.parallel import train_step
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.observe.trace import Trace

STEPS = 5  # of one turn that are timed, after one that is not
NEVER = "never"  # what the other steps are compared with
WORDS = {NEVER: "impossible", "off": "off", "on": "on"}


class Unobserved(Context):
    """A context that does not notify observers of the passes of its layers."""

    def run(self, layer, phase, array):
        return getattr(layer, phase)(array, self)


def measure(net, step, rounds):
    """{"never", "off", "on": the seconds of a step in each round}; see the module's text. Collective.

    step: a function that does one step of `net` in the context that it is given.
    """
    contexts = {NEVER: Unobserved(), "off": Context(), "on": Context()}  # one each, so that their caches are alike
    found = {state: [] for state in contexts}
    for _ in progress(range(rounds), "rounds", net.grid.rank == 0):
        for state, medians in found.items():
            one = partial(step, contexts[state])
            with Trace(net, STEPS + 1) if state == "on" else nullcontext():
                one()
                medians.append(np.median(net.grid.max(np.array([seconds(one) for _ in range(STEPS)]))))
    return found


def seconds(step):
    start = time.perf_counter()
    step()
    device.synchronise()
    return time.perf_counter() - start


def options():
    parser = Parser(prog="study trace-cost", description="What does tracing cost?")
    add_problem(parser, "mlp:512,512,relu", [784], outputs=10, batch_size=128)
    add_grid(parser)
    parser.add_argument("--rounds", type=whole(1), default=100, help="how often each of the three is timed")
    parser.add_argument("--out", metavar="FILE.json", help="also write the numbers to this file")
    add_device(parser)
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    on_root(comm, lambda: check_writable(args.out) if args.out else None)
    grid, net, x, y = problem_of(args, comm)
    optimizer, loss = SGD(net, 0.01, 0.9), LOSSES["cross-entropy"]()
    step = lambda context: train_step(net, loss, optimizer, x, y, args.batch_size, context)  # noqa: E731
    found = measure(net, step, args.rounds)
    seconds = {state: range_of(values) for state, values in found.items()}
    ratios = {state: range_of(np.divide(values, found[NEVER])) for state, values in found.items()}
    if comm.rank == 0:
        print(table([
            {"tracing": words, "ms a step": spread(seconds[state], 1e-3), "times the first": spread(ratios[state])}
            for state, words in WORDS.items()
        ]))  # fmt: skip
    if args.out:
        content = {"settings": vars(args), "versions": report.versions(), "seconds": seconds, "ratios": ratios}
        on_root(comm, lambda: report.write_json(args.out, content))
    grid.free()


if __name__ == "__main__":
    run(main)
