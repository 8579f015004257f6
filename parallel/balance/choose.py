"""Choosing the shares of unequal ranks: even, by constant speeds, and by speed as a function of the share, side by side.

By constant speeds (Marques 2016, section 4.1.2) each rank's speed is measured at one share, and the shares are proportional to
the speeds: devices that take 10, 15, 20 and 30 seconds for the same work get [3, 2, 1.5, 1] parts of it. By functions
(Lastovetsky and Reddy 2007) each rank is measured at several shares, and the time of the slowest rank is minimised exactly over
all integer shares (`parallel/balance/exact.py`). A rank whose share would not pay gets none.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from parallel.balance.exact import fastest_shares
from parallel.balance.layer_seconds import MeasuredSeconds, PredictedSeconds
from parallel.balance.problems import RankCosts, of_sizes
from parallel.grid.process_grid import places
from parallel.performance.machine import Machine
from parallel.placement.partition import Partition
from parallel.placement.place_network import checked
from parallel.placement.plans import CHOSEN

RULES = "even", "constant", "function"
FIRST = 8  # so many shares, evenly apart, are measured first
WHAT = {"batch": "samples", "height": "rows"}  # what the ranks of an axis share
STEP = 16  # kernels of BLAS have steps at multiples of this: those next to a chosen share are measured as well
LEAST = 1e-12  # seconds, instead of none
ROUNDS = 4  # how often shares are measured and chosen, at most


@dataclass(frozen=True)
class Chosen:
    """The shares of one Problem by each of the rules.

    axis, name, total: of the Problem. computing, sending: (ranks of the axis, total + 1): seconds of each rank for each share.
    even, constant: the shares by these rules, a list with one whole number for each rank.
    """

    axis: str
    name: str
    total: int
    computing: np.ndarray
    sending: np.ndarray
    even: list
    constant: list

    @cached_property
    def function(self):
        """The shares by the rule "function", which are the fastest ones."""
        return fastest_shares(self.computing + self.sending)

    def times(self, shares):
        """The seconds of each rank with these shares."""
        ranks = range(len(shares))
        return self.computing[ranks, shares] + self.sending[ranks, shares]

    def slowest(self, shares):
        """The seconds of the slowest rank."""
        return float(self.times(shares).max())

    def slowed(self, factors):
        """The same where each rank computes more slowly by its factor, a number for each."""
        return replace(self, computing=self.computing * np.asarray(factors)[:, None])

    def left_out(self):
        """Yields a line for each rank that gets nothing, with the reason."""
        slowest = self.slowest(self.function)
        for rank, share in enumerate(self.function):
            if not share:
                least = float((self.computing + self.sending)[rank, 1:].min(initial=np.inf))
                why = (
                    f"takes {least * 1e3:.4g} ms even for its fastest share" if least > slowest else "would make nothing faster"
                )
                yield f"rank {rank} of the axis {self.axis} is left out: it {why}; the others need {slowest * 1e3:.4g} ms"


@dataclass(frozen=True)
class Balance:
    """The shares of a network on a grid.

    machine: the Machine that said what communication costs. chosen: a list with a Chosen for each Problem. speeds: {axis: the
    relative speed of each of its ranks at an even share; the slowest one has 1}, which Marques calls performance values.
    """

    machine: Machine
    chosen: list
    speeds: dict

    @property
    def shares(self):
        """For `parallelize`: {axis: shares}, the speeds where an axis shares something that is no Problem, such as rows."""
        return self.speeds | {one.axis: tuple(one.function) for one in self.chosen if one.axis != CHOSEN}

    @property
    def owners(self):
        """For `parallelize`: {name of a layer: the Partition of its outputs}."""
        return {one.name: of_sizes(one.function) for one in self.chosen if one.axis == CHOSEN}

    def lines(self):
        """Yields the lines of a table: for each Problem the shares by each rule, and the milliseconds of the slowest rank."""
        for axis, speeds in self.speeds.items():
            yield f"speeds along {axis}: {', '.join(f'{speed:.3g}' for speed in speeds)}"
        for one in self.chosen:
            yield f"{one.total} {WHAT.get(one.axis) or f'outputs of layer {one.name}'} along {one.axis}"
            for rule in RULES:
                shares = getattr(one, rule)
                yield f"  {rule:<8}  slowest rank {one.slowest(shares) * 1e3:8.4g} ms  shares {', '.join(map(str, shares))}"
            yield from one.left_out()


def measured_shares(net, grid, plan, batch_size, machine, handicap=None):
    """The Balance for the ranks of a ProcessGrid, measured now. Collective.

    All ranks time the layers at the same time, each with the same shares. net: a serial Sequential. plan, batch_size: as in
    `parallelize`. machine: a Machine, which says what communication costs. handicap: that of this rank.
    """
    _, shape = checked(net)
    costs = RankCosts(net, grid.sizes, grid.coordinates, plan, batch_size, machine, MeasuredSeconds(net, shape, handicap))
    return balance([costs], lambda rows: np.concatenate(grid.comm.allgather(rows)), grid.sizes)


def predicted_shares(net, sizes, plan, batch_size, machine, speeds):
    """The Balance for a grid of these sizes {axis: ranks} on a Machine. It starts no job.

    speeds: for each rank, how many times as fast it computes as the machine file says.
    """
    _, shape = checked(net)
    costs = [
        RankCosts(net, sizes, at, plan, batch_size, machine, PredictedSeconds(net, shape, machine, len(speeds), speed))
        for at, speed in zip(places(sizes), speeds, strict=True)
    ]
    return balance(costs, lambda rows: rows, sizes)


def balance(costs, gather, sizes):
    """The Balance of a grid of these sizes {axis: ranks}.

    costs: a list with the RankCosts of the ranks of this process. gather: a function from an array with a row for each of them
    to the rows of all ranks, in rank order; it is called equally often on all ranks.
    """
    even = gather(np.array([[one.even_seconds()] for one in costs]))
    slowest = {axis: along(axis, even, sizes)[:, 0] for axis, ranks in sizes.items() if ranks > 1}
    speeds = {axis: tuple((of.max() / np.maximum(of, LEAST)).tolist()) for axis, of in slowest.items()}
    chosen = [solved(number, costs, gather, sizes) for number in range(len(costs[0].problems))]
    return Balance(costs[0].machine, chosen, speeds)


def along(axis, rows, sizes):
    """For each rank of an axis, the elementwise maximum over the ranks of the grid with that coordinate: an array of rows."""
    coordinates = np.array([place[axis] for place in places(sizes)])
    return np.stack([rows[coordinates == coordinate].max(axis=0) for coordinate in range(sizes[axis])])


def solved(number, costs, gather, sizes):
    """The Chosen of the Problem with this number. The arguments are those of `balance`."""
    problem, ranks = costs[0].problems[number], sizes[costs[0].problems[number].axis]
    total, known, best = problem.total, {}, None

    def measure(shares):
        for share in sorted(set(shares) - known.keys()):
            rows = [[one.problems[number].computing(share), one.problems[number].sending(share)] for one in costs]
            known[share] = along(problem.axis, gather(np.array(rows)), sizes)

    same = max(1, total // ranks)  # Marques' rule gives every device the same work to time
    measure({0, min(1, total), min(same, total), *(total * part // FIRST for part in range(1, FIRST + 1))})
    for _ in range(ROUNDS):
        shares = sorted(known)
        everywhere = np.arange(total + 1)
        functions = [
            np.stack([np.interp(everywhere, shares, [known[share][rank, what] for share in shares]) for rank in range(ranks)])
            for what in (0, 1)
        ]
        speeds = 1 / np.maximum(functions[0][:, min(same, total)], LEAST)
        constant = Partition.weighted(total, tuple(speeds.tolist())).sizes
        best = Chosen(problem.axis, problem.name, total, *functions, Partition.even(total, ranks).sizes, constant)
        near = {near for share in best.function if share for near in (share, share // STEP * STEP, -(-share // STEP) * STEP)}
        wanted = {share for share in (*near, *constant, *best.even) if share <= total}
        if wanted <= known.keys():
            break
        measure(wanted)
    return best
