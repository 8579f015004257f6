"""Measure what shares by speed gain on ranks of unequal speed, and how fast they are found again when a rank becomes slow.

    mpiexec -n 2 gridgrad study unequal --net cifar-cnn --grid batch=2 --handicap 1=2 --out results/unequal.json

The ranks are made unequal by a handicap (`experiments/run_parts.py`). In every round each of these takes some steps, one
after another:

- `even`, `constant` and `function`: the network with shares by each of the rules of `parallel/choose/shares.py`;
- `ideal`: each rank trains the whole network alone on the whole minibatch, all of them at the same time. If rank r takes T_r
  seconds, the harmonic limit 1 / sum_r 1/T_r is what the ranks could reach together without any communication.

Then a network begins with the shares of equal ranks, the handicap sets in at a step in mid-run, and the shares are changed
while it runs (`parallel/choose/rebalance.py`). The seconds of every step are recorded. Some steps later its steps take turns
with those of the network that had the shares by function from the start.
"""

import time
from pathlib import Path
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, of_other_problems
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.options import (
    Parser,
    add_grid,
    add_problem,
    process_grid_of,
    user_input,
    whole,
)
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.experiments.common.train_setup import slowdowns
from gridgrad.experiments.plots.figures import measured_on
from gridgrad.experiments.run_parts import Handicap
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize
from gridgrad.parallel.calibration.this_machine import machine_of_job
from gridgrad.parallel.choose.rebalance import Rebalancer
from gridgrad.parallel.choose.shares import RULES, measured_shares
from gridgrad.parallel.job.run import UserError, on_root, run
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

PROBLEM = "net", "batch_size", "grid", "plan", "handicap"  # what tells results apart
BEFORE, WITHIN, AFTER = 15, 20, 15  # steps before the slowdown, steps that the recovery may take, and steps after that
INTERVAL = 5  # steps between two proposals
WARM_UP = 2


class UnequalTraining:
    """A network, serial or parallel, that takes steps on one made-up minibatch."""

    def __init__(self, args, net, handicap=None):
        self.net, self.loss = net, LOSSES["cross-entropy"]()
        if handicap:
            handicap.slow_down(net)
        self.optimizer = SGD(net, lr=1e-4, momentum=0.9)
        self.minibatch = minibatch(tuple(args.shape), args.outputs, args.batch_size)

    def step(self):
        self.net.learn(*self.minibatch, self.loss, self.optimizer)


class Bench:
    """What all measurements share. args: the options. grid: a ProcessGrid. factor: by which this rank is slowed down."""

    def __init__(self, args, grid, factor):
        self.args, self.grid, self.comm, self.factor = args, grid, grid.comm, factor
        self.machine = machine_of_job(grid.comm)

    def serial(self):
        return network_names.build(self.args.net, tuple(self.args.shape), self.args.outputs)

    def balance(self, factor):
        """The Balance where this rank computes `factor` times as slowly. Collective."""
        placing = PlacementSpec(plan=self.args.plan)
        return measured_shares(self.serial(), self.grid, placing, self.args.batch_size, self.machine, Handicap(factor))

    def placed(self, balance, rule):
        """The parallel network with the shares of a Balance by a rule."""
        shares, owners = balance.placement(rule)
        return parallelize(self.serial(), self.grid, self.args.plan, shares=shares, owners=owners, reduction="shared")

    def seconds(self, training, steps):
        """Seconds a step of every rank, over some steps that they begin together: an array."""
        self.comm.Barrier()
        start = time.perf_counter()
        for _ in range(steps):
            training.step()
        return np.array(self.comm.allgather((time.perf_counter() - start) / steps))

    def rounds(self, balance):
        """The seconds of a step by name in every round: a list of dicts."""
        sides = {rule: UnequalTraining(self.args, self.placed(balance, rule), Handicap(self.factor)) for rule in RULES}
        alone, found = UnequalTraining(self.args, self.serial(), Handicap(self.factor)), []
        for _ in progress(range(WARM_UP + self.args.rounds), "rounds", self.comm.rank == 0):
            row = {rule: float(self.seconds(side, self.args.steps).max()) for rule, side in sides.items()}
            found.append(row | {"ideal": float(1 / np.sum(1 / self.seconds(alone, 1)))})
        return found[WARM_UP:]

    def recovery(self, equal, unequal):
        """(seconds of every step of the run in which the handicap sets in, seconds of the steps that take turns with the last
        ones, the log of the Rebalancer).

        equal, unequal: the Balance without and with the handicap.
        """
        steps = BEFORE + WITHIN + AFTER
        training = UnequalTraining(self.args, self.placed(equal, "function"), Handicap(self.factor, BEFORE))
        other, found, others = UnequalTraining(self.args, self.placed(unequal, "function"), Handicap(self.factor)), [], []
        far = 100 * steps  # a run is much longer than what is measured of it
        rebalancer = Rebalancer(training.net, self.serial(), training.optimizer, equal, INTERVAL, far)
        for step in progress(range(steps), "steps", self.comm.rank == 0):
            found.append(float(self.seconds(training, 1).max()))
            if step >= BEFORE + WITHIN - WARM_UP:
                others.append(float(self.seconds(other, 1).max()))
            rebalancer.after_step()
        return found, others[WARM_UP:], rebalancer.log


def options():
    parser = Parser(prog="study unequal", description="What do shares by speed gain on ranks of unequal speed?")
    add_problem(parser, "cifar-cnn", [32, 32, 3], outputs=10, batch_size=64)
    add_grid(parser)
    parser.add_argument("--plan", default="fewest-bytes", help="see train --help")
    parser.add_argument("--handicap", default="1=2", metavar="RANK=FACTOR,..", help="the ranks that compute more slowly")
    parser.add_argument("--rounds", type=whole(1), default=9, help="rounds, in each of which all sides take steps")
    parser.add_argument("--steps", type=whole(1), default=3, help="steps of a side in a round")
    parser.add_argument("--out", metavar="FILE.json", help="add the results to those in this file, and a table beside it")
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    if comm.size == 1:
        raise UserError("one rank shares nothing: start at least 2")
    before = on_root(comm, lambda: earlier_results(args.out, (*PROBLEM, "ratios"), "unequal", markdown)) if args.out else None
    with user_input():
        grid = process_grid_of(args, comm)
        factors = slowdowns(args.handicap, comm.size)
        if any(first for _, first in factors):
            raise ValueError(f"--handicap {args.handicap}: without @STEP, as the step is chosen here")
        bench = Bench(args, grid, factors[comm.rank][0])
        unequal = bench.balance(bench.factor)
        if not unequal.chosen:
            raise ValueError(f"on the grid {grid} with --plan {args.plan} the ranks share nothing: use another one")
        equal = bench.balance(1.0)
    rounds = bench.rounds(unequal)
    steps, others, log = bench.recovery(equal, unequal)
    medians = {name: median(row[name] for row in rounds) for name in rounds[0]}
    turns = [other / step for step, other in zip(steps[BEFORE + WITHIN :], others, strict=True)]
    results = {
        "net": args.net, "batch_size": args.batch_size, "grid": str(grid), "plan": args.plan, "handicap": args.handicap,
        "versions": report.versions(), "lines": list(unequal.lines()), "rounds": rounds, "median": medians,
        "ratios": {
            "even / function": ratio(rounds, "even", "function"),
            "constant / function": ratio(rounds, "constant", "function"),
            "function / ideal": ratio(rounds, "function", "ideal"),
        },
        "slow_from": BEFORE, "step_seconds": steps, "rebalancing": log,
        "recovered": range_of(turns),
    }  # fmt: skip
    if comm.rank == 0:
        print("\n".join([*results["lines"], "", text(results)]))
    if args.out:
        on_root(comm, lambda: write(args.out, of_other_problems(before, results, PROBLEM) + [results]))
    grid.free()


def write(path, everything):
    """Write all results of a file, and the table beside it."""
    report.write_json(path, everything)
    report.write_text(Path(path).with_suffix(".md"), markdown(everything))


def ratio(rounds, above, below):
    """{"median", "min", "max"} of the ratio of two sides over the rounds."""
    return range_of([row[above] / row[below] for row in rounds])


def text(results):
    """The tables of results that are printed."""
    of = {name: range_of([row[name] for row in results["rounds"]]) for name in results["median"]}
    seconds = [{"shares": name, "ms a step": spread(found, 1e-3)} for name, found in of.items()]
    ratios = [{"ratio of times": name, "median (range)": spread(found)} for name, found in results["ratios"].items()]
    words = f"shares chosen from the start / {WITHIN} steps after a slowdown"
    ratios.append({"ratio of times": words, "median (range)": spread(results["recovered"])})
    return f"{table(seconds)}\n\n{table(ratios)}"


def markdown(everything):
    """The table of all results in a file."""
    rows = [
        {
            "network": results["net"], "batch": results["batch_size"], "grid": results["grid"], "handicap": results["handicap"],
            **{f"{name} (ms)": seconds * 1e3 for name, seconds in results["median"].items()},
            **{name: f"{r['median']:.2f} ({r['min']:.2f}-{r['max']:.2f})" for name, r in results["ratios"].items()},
            f"speed {WITHIN} steps after a slowdown": "{median:.0%} ({min:.0%}-{max:.0%})".format(**results["recovered"]),
        }
        for results in everything
    ]  # fmt: skip
    return f"# Ranks of unequal speed\n\nMeasured on {measured_on(everything[-1]['versions'])}.\n\n{lines(rows)}\n"


if __name__ == "__main__":
    run(main)
