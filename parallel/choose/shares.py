"""Choosing the shares of unequal ranks: even, by constant speeds, and by speed as a function of the share, side by side. By
constant speeds (Marques 2016, section 4.1.2) each rank's speed is measured at one share, and the shares are proportional to the
speeds: devices that take 10, 15, 20 and 30 seconds for the same work get [3, 2, 1.5, 1] parts of it. By functions (Lastovetsky
and Reddy 2007) each rank is measured at several shares, with straight lines between them, and the time of the slowest rank is
minimised exactly over all integer shares (`fastest_shares`). A rank whose share would not pay gets none. On a grid with several
axes the shares along one axis are chosen after those along another, which are then given."""

import sys
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from gridgrad.parallel.choose.shared_work import BUDGET, ORDER, MeasuredSeconds, PredictedSeconds, RankCosts
from gridgrad.parallel.grid.process_grid import BATCH, HEIGHT, MODEL, STAGE, GridDescription, places
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.prediction.machine import Machine

RULES = "even", "constant", "function"
FIRST_SHARES = 8  # so many shares, evenly apart, are measured first
BLAS_STEP = 16  # kernels of BLAS have steps at multiples of this: those next to a chosen share are measured as well
ROUNDS = 4  # how often shares are measured and chosen, at most
TINY = 1e-12  # seconds, in place of none
NOUNS = {BATCH: "samples", HEIGHT: "rows"}  # what the ranks of an axis share


@dataclass(frozen=True)
class Choice:
    """The shares of one SharedWork by each rule, which are lists with a number for each rank of the axis."""

    axis: str
    name: str
    total: int
    layers: tuple
    coordinates: np.ndarray  # along the axis, of each rank of the grid
    computing: np.ndarray  # (ranks, total + 1): seconds of each rank for each share
    sending: np.ndarray
    even: list
    constant: list
    function: list

    @property
    def what(self):
        return NOUNS.get(self.axis) or f"outputs of layer {self.name}"

    def at(self, seconds, shares):
        """The entries of `seconds`, (ranks, total + 1), for the shares of the axis: one for each rank of the grid."""
        return seconds[np.arange(len(seconds)), np.asarray(shares)[self.coordinates]]

    def slowest(self, shares):
        """The seconds of the slowest rank, computing and sending."""
        return float(self.at(self.computing + self.sending, shares).max())

    def left_out(self):
        """Yield a line for each rank of the axis that gets nothing, with the reason."""
        slowest, seconds = self.slowest(self.function), of_axis(self.computing + self.sending, self.coordinates)
        for rank, share in enumerate(self.function):
            if not share:
                least = float(seconds[rank, 1:].min(initial=inf))
                why = f"takes {least * 1e3:.4g} ms even for its fastest share" if least > slowest else "would shorten nothing"
                yield f"rank {rank} of {self.axis} gets no {self.what}: it {why}; the others need {slowest * 1e3:.4g} ms"


@dataclass(frozen=True)
class Balance:
    """The shares of a network on a grid, and what they were chosen from."""

    machine: Machine  # which said what communication costs
    chosen: list  # a Choice for each SharedWork
    given: dict  # {name of a SharedWork: shares} with which the work along later axes is shared
    speeds: dict  # {axis: relative speeds of its ranks for the same work, the slowest 1}: Marques' performance values
    coordinates: dict  # {axis: those of each rank of the grid}

    def placement(self, rule="function"):
        """(shares, owners) for `parallelize` by one of the rules; what is no SharedWork is shared evenly or by the speeds."""
        shares = {} if rule == "even" else dict(self.speeds)
        shares |= {one.axis: tuple(getattr(one, rule)) for one in self.chosen if one.axis != MODEL}
        return shares, {one.name: Partition.of_sizes(getattr(one, rule)) for one in self.chosen if one.axis == MODEL}

    def placed(self, placing):
        """A PlacementSpec with the shares and owners by functions."""
        shares, owners = self.placement()
        return replace(placing, shares=shares, owners=owners)

    @property
    def shares(self):
        """{name of a SharedWork: shares} by functions."""
        return {one.name: one.function for one in self.chosen}

    @property
    def layers(self):
        """The names of the layers whose time `computing` predicts."""
        last = [one for one in self.chosen if one.axis == self.chosen[-1].axis]
        return {name for one in last for name in one.layers}

    def computing(self, shares):
        """Predicted seconds that each rank of the grid computes in a step with {name of a SharedWork: shares}, an array."""
        factor = 1.0
        for group in self._by_axis():
            now, then = (sum(one.at(one.computing, of[one.name]) for one in group) for of in (shares, self.given))
            seconds, factor = now * factor, factor * change(now, then)
        return seconds

    def seconds(self, shares):
        """Predicted seconds of the slowest rank in a step with {name of a SharedWork: shares}."""
        *before, last = self._by_axis()
        if not before and last[0].axis == MODEL:  # the ranks wait for each other after each layer
            return sum(one.slowest(shares[one.name]) for one in last)
        return float((self.computing(shares) + sum(one.at(one.sending, shares[one.name]) for one in last)).max())

    def slowed(self, slowness):
        """The Balance of ranks that compute more slowly by these factors, an array."""
        chosen, factor = [], 1.0
        for group in self._by_axis():
            slower = [replace(one, computing=one.computing * slowness[:, None]) for one in group]
            for one in slower:
                seconds = one.computing * np.reshape(factor, (-1, 1)) + one.sending
                chosen.append(replace(one, function=fastest_shares(of_axis(seconds, one.coordinates))))
            now = sum(one.at(one.computing, one.function) for one in chosen[-len(group) :])
            then = sum(one.at(one.computing, self.given[one.name]) for one in slower)
            factor = factor * change(now, then)
        speeds = {}
        for axis, before in self.speeds.items():
            now = np.array(before) / of_axis(slowness[:, None], self.coordinates[axis])[:, 0]
            speeds[axis] = tuple((now / now.min()).tolist())
        return replace(self, chosen=chosen, speeds=speeds)

    def _by_axis(self):
        groups = ([one for one in self.chosen if one.axis == axis] for axis in ORDER)
        return [group for group in groups if group]

    def lines(self):
        """Yield the lines of a table: for each SharedWork its shares by each rule, and milliseconds of the slowest rank."""
        for axis, speeds in self.speeds.items():
            yield f"speeds along {axis}: {', '.join(f'{speed:.3g}' for speed in speeds)}"
        for one in self.chosen:
            yield f"{one.total} {one.what} along {one.axis}"
            for rule in RULES:
                shares = getattr(one, rule)
                yield f"  {rule:<8}  slowest rank {one.slowest(shares) * 1e3:8.4g} ms  shares {', '.join(map(str, shares))}"
            yield from one.left_out()


def measured_shares(net, grid, placing, batch_size, machine, handicap=None):
    """The Balance for the ranks of a ProcessGrid, measured now, on all ranks at the same time. Collective. placing: a
    PlacementSpec with the plan; shares that need more than its memory are impossible. machine: prices communication."""
    _, shape = checked(net)
    if grid.rank == 0:
        print(f"measuring for about {BUDGET:g} seconds how fast each rank computes parts of the layers, to choose the shares",
              file=sys.stderr, flush=True)  # fmt: skip
    timed = MeasuredSeconds(net, shape, handicap, placing.memory or inf)
    place = GridDescription(grid.sizes, grid.coordinates, machine.node["ranks"])
    costs = RankCosts(net, place, placing.plan, batch_size, machine, timed)
    return balance([costs], lambda rows: np.concatenate(grid.comm.allgather(rows)), grid.comm.bcast)


def predicted_shares(net, sizes, plan, batch_size, machine, speeds):
    """The Balance for a grid {axis: ranks}, without a job. speeds: of each rank, times those of the machine file."""
    _, shape = checked(net)
    costs = []
    for at, speed in zip(places(sizes), speeds, strict=True):
        predicted = PredictedSeconds(net, shape, machine, len(speeds), speed)
        grid = GridDescription(sizes, at, machine.node["ranks"])
        costs.append(RankCosts(net, grid, plan, batch_size, machine, predicted))
    return balance(costs, lambda rows: rows, lambda decision: decision)


def balance(costs, gather, agree):
    """The Balance of a grid; ValueError for a pipeline. costs: [RankCosts of the ranks of this process]. gather(rows of these):
    the rows of all ranks, in rank order. agree(decision): that of the first process. Both are called alike on all ranks."""
    sizes, all_places = costs[0].grid.sizes, places(costs[0].grid.sizes)
    if sizes[STAGE] > 1:
        raise ValueError("shares are not chosen for a pipeline: leave --shares out, or use a grid without the axis stage")
    all_coordinates = {axis: np.array([place[axis] for place in all_places]) for axis in ORDER if sizes[axis] > 1}
    same_work, speeds, chosen, shares, owners = gather(np.array([[one.same_work] for one in costs])), {}, [], {}, {}
    for axis, coordinates in all_coordinates.items():
        slowest = np.maximum(of_axis(same_work, coordinates)[:, 0], TINY)
        speeds[axis] = shares[axis] = agree(tuple((slowest.max() / slowest).tolist()))
        for problems in zip(*(one.problems(axis) for one in costs), strict=True):
            chosen.append(solution(problems, coordinates, gather, agree))
            if axis == MODEL:
                owners[chosen[-1].name] = Partition.of_sizes(chosen[-1].function)
            else:
                shares[axis] = tuple(chosen[-1].function)
        for one in costs:
            one.give(shares, owners)
    return Balance(costs[0].machine, chosen, {one.name: one.function for one in chosen}, speeds, all_coordinates)


def change(now, then):
    """The ratio of what ranks compute now and what they computed then, elementwise; 1 where they computed nothing."""
    return np.divide(now, then, out=np.ones(len(now)), where=then > 0)


def of_axis(rows, coordinates):
    """For each rank of an axis, the elementwise maximum of the rows of its ranks of the grid."""
    return np.stack([rows[coordinates == coordinate].max(axis=0) for coordinate in range(coordinates.max() + 1)])


def solution(problems, coordinates, gather, agree):
    """The Choice of a SharedWork, as the ranks of this process see it. coordinates: of all ranks along its axis."""
    problem, ranks, known = problems[0], int(coordinates.max()) + 1, {}
    total = problem.total
    equal_share = min(total, max(1, total // ranks))  # Marques' rule gives every device the same work to time
    even = Partition.even(total, ranks).sizes
    wanted = {0, min(1, total), equal_share, *even, *(total * part // FIRST_SHARES for part in range(1, FIRST_SHARES + 1))}
    for _ in range(ROUNDS):
        for share in sorted(wanted - known.keys()):
            known[share] = gather(np.array([[one.computing(share), one.sending(share)] for one in problems]))
        computing, sending = (interpolated(known, what, total) for what in (0, 1))
        speeds = 1 / np.maximum(of_axis(computing, coordinates)[:, equal_share], TINY)
        constant = agree(Partition.weighted(total, tuple(speeds.tolist())).sizes)
        function = agree(fastest_shares(of_axis(computing + sending, coordinates)))
        steps = {step for share in function if share for step in (share // BLAS_STEP, -(-share // BLAS_STEP))}
        wanted = {*function, *constant, *(step * BLAS_STEP for step in steps if step * BLAS_STEP <= total)}
        if wanted <= known.keys():
            break
    what = problem.axis, problem.name, total, problem.layers
    return Choice(*what, coordinates, computing, sending, even, constant, function)


def interpolated(known, what, total):
    """Seconds of each rank for all shares from 0 to `total`, (ranks, total + 1), by straight lines; infinite above the largest
    share that a rank can have. known: {share: (ranks, 2) seconds}. what: the column."""
    shares = np.array(sorted(known))
    rows = np.array([known[share][:, what] for share in shares.tolist()]).T
    everywhere, found = np.arange(total + 1), []
    for row in rows:
        possible = np.isfinite(row)
        line = np.interp(everywhere, shares[possible], row[possible])
        found.append(np.where(everywhere <= shares[possible][-1], line, inf))
    return np.array(found)


def fastest_shares(seconds):
    """[share of each rank], whole numbers with the sum `total`, with the least time of the slowest rank, exactly; among equals
    with the smallest sum of squared times. seconds: (ranks, total + 1), of each rank for each share, infinite where it can not
    have that. ValueError if no shares are possible."""
    seconds = np.array(seconds, np.float64)
    slowest = combined(seconds, np.maximum)[0][-1]
    if not np.isfinite(slowest):
        raise ValueError("no shares are possible: the largest shares that the ranks can have do not add up to the whole")
    squares = np.where(seconds <= slowest, np.square(seconds), np.inf)
    best = combined(squares, np.add)
    shares, rest = [], seconds.shape[1] - 1
    for own, behind in zip(squares, best[1:], strict=True):
        shares.append(int(np.argmin(own[: rest + 1] + behind[rest::-1])))
        rest -= shares[-1]
    return shares


def combined(costs, combine):
    """best[r, s]: the least cost of the ranks from r on for shares with the sum s, by dynamic programming in O(ranks total^2).
    costs: (ranks, total + 1). combine: elementwise, of the cost of one rank and that of the ranks behind it."""
    ranks, sums = costs.shape
    best = np.full((ranks + 1, sums), np.inf)
    best[ranks, 0] = 0.0
    for rank in reversed(range(ranks)):
        own, behind, here = costs[rank], best[rank + 1], best[rank]
        for share in np.flatnonzero(np.isfinite(own)):
            np.minimum(here[share:], combine(own[share], behind[: sums - share]), out=here[share:])
    return best
