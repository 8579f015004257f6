"""Choosing the shares of unequal ranks: even, by constant speeds, and by speed as a function of the share, side by side.

By constant speeds (Marques 2016, section 4.1.2) each rank's speed is measured at one share, and the shares are proportional to
the speeds. By functions (Lastovetsky and Reddy 2007) each rank is measured at several shares, with straight lines between them,
because kernels have steps. The time of the slowest rank is minimised exactly over all integer shares (`fastest_shares`), layer
by layer. Whether the slowest ranks of an axis pay at all is decided by whole steps (`RankCosts.step`), with all communication
and the updates of replicas, which a rank without a share has too.

Along the axis `model` ranks share the neurons or kernels of each layer whose outputs are sharded (choice "out"), the hidden
units of an autoencoder, or the kernels that the master of the plan "marques" hands out. A layer with the choice "in" that takes
outputs as they are divided belongs to the layer before.
"""

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, pairwise
from math import inf, prod
from operator import attrgetter

import numpy as np

from gridgrad.nn import Context, Sequential
from gridgrad.nn.device import synchronise, to_device
from gridgrad.nn.layer import Block
from gridgrad.nn.measured import in_turns, timed
from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.faults.watchdog import in_words
from gridgrad.parallel.grid.process_grid import BATCH, HEIGHT, MODEL, STAGE, GridDescription, places
from gridgrad.parallel.placement.moves import move_between
from gridgrad.parallel.placement.overlapped_layers import GatheredLinear
from gridgrad.parallel.placement.partition import Partition, resized
from gridgrad.parallel.placement.placements import MASTER, C, H, Shard
from gridgrad.parallel.placement.plan import INPUTS, OUTPUTS
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.marques import HandedConv2d, HandOut
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.plans.plans import PLANS
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.workload import Workload

RULES = "even", "constant", "function"
ORDER = MODEL, BATCH, HEIGHT  # of the axes: along each of them the shares along those before it are given
NOUNS = {BATCH: "samples", HEIGHT: "rows"}  # what the ranks of an axis share
RUNS, LONG = 5, 0.2  # a block is run this often, or for this many seconds; the fastest run counts
BUDGET = 5.0  # seconds of all blocks together, after which each is run as seldom as possible
FIRST_SHARES = 8  # as many shares, evenly apart, are measured first
BLAS_STEP = 16  # kernels of BLAS have steps at multiples of this: those next to a chosen share are measured as well
ROUNDS = 4  # how often shares are measured and chosen, at most
TINY = 1e-12  # seconds, in place of none


# ----- what a share costs one rank


# of_block(block, shape of its input, whether it computes no gradient of its input) returns seconds of the passes of a step.


def measured_block(net, handicap=None, memory=inf):
    """An `of_block` that runs a block on random numbers; one that needs more bytes than `memory` takes infinitely long."""
    budget_spent = time.perf_counter() + BUDGET

    def of_block(block, shape, is_first):
        activations = prod(shape) + shape[0] * prod(block.output_shape((*shape[1:-1], block.inputs)))
        if net.dtype.itemsize * (2 * activations + 2 * sum(p.size for p in block.parameters)) > memory:
            return inf
        alone, context, random = Sequential([block], dtype=net.dtype), Context(), np.random.default_rng(0)
        if handicap:
            handicap.slow_down(alone)
        x = to_device(random.standard_normal(shape).astype(net.dtype))
        dy = to_device(random.standard_normal(alone.forward(x, context).shape).astype(net.dtype))

        def passes():
            alone.forward(x, context)
            alone.backward(dy, context, input_gradient=not is_first)
            synchronise()

        passes()  # allocates the workspaces
        end = min(budget_spent, time.perf_counter() + LONG)
        return in_turns([timed(passes)], RUNS, lambda: time.perf_counter() >= end).min()

    return of_block


def predicted_block(net, machine, ranks, speed=1.0):
    """An `of_block` of a rank that computes `speed` times as fast as a Machine on which `ranks` ranks compute."""

    def of_block(block, shape, is_first):
        workload = Workload(shape, shape[0], net.dtype.itemsize)
        workload.first = is_first
        workload.go([block])
        return workload.seconds(machine, ranks) / speed

    return of_block


class RankCosts:
    """What shares cost the rank `at` of a grid, in seconds. `works` does not count layers without weights, halos, moves inside
    of branches, and sums of gradients; `step` does. same_work: of computing with the even shares of the first rank. slowness:
    the ratio to what the machine file says of them."""

    def __init__(self, net, sizes, at, plan, batch_size, machine, of_block):
        layers, shape = checked(net)
        self.net, self.plan, self.batch_size, self.machine = net, plan, batch_size, machine
        self.layers = {layer.name: layer for layer in layers}
        self.inputs = {layer: inputs for layer, inputs, _ in shapes(net.layers, shape)}
        self.grid = GridDescription(sizes, {}, machine.node["ranks"])
        self.of_layer = self._layer_seconds(of_block)
        self.on_machine = self._layer_seconds(predicted_block(net, machine, self.grid.size))
        self.give({}, {})
        self.same_work = self._all_layers(self.samples, self.rows)
        self.slowness = self.same_work / max(self._all_layers(self.samples, self.rows, self.on_machine), TINY)
        self.grid = GridDescription(sizes, at, machine.node["ranks"])
        self.give({}, {})

    def _layer_seconds(self, of_block):
        """A function: the seconds of a block of a layer with so many inputs, outputs (or hidden units) and samples. rows: the
        part of the rows of the images, or of the samples of a layer without images."""
        first = next(iter(self.layers.values()))

        @cache
        def seconds(layer, inputs, outputs, samples, rows):
            held, kernel = slice(0, outputs), [slice(0, n) for n in layer.weight.shape[:-2]]
            block = layer.placed(weight=Block((*kernel, slice(0, inputs), held)), bias=Block((held,)))
            shape = (*self.inputs[layer][:-1], inputs)
            if layer.takes_images:
                here = layer.window.outputs(H, shape[0])
                shape = (shape[0] - (here - round(here * rows)) * layer.window.stride[0], *shape[1:])
            else:
                samples, here = round(samples * rows), 1
            if not (inputs and outputs and samples and round(here * rows)):
                return 0.0
            return of_block(block, (samples, *shape), layer is first)

        return seconds

    def give(self, shares, owners):
        """Place the network with these shares and owners; `works` then takes them as given."""
        self.cost = Cost(self.net, self.grid, self.plan, self.batch_size, self.machine, shares, owners)
        self.placed = self.cost.placed
        self.plans = {name: PLANS[word] for name, word in zip(self.layers, self.placed.plan, strict=True)}
        self.blocks = {}
        for leaf in reversed(list(leaves(self.placed.layers))):  # a bias may follow as a layer
            if leaf.name in self.layers and leaf.parameters:
                weight = leaf.conv.weight if isinstance(leaf, HandedConv2d) else leaf.parameters[0]
                self.blocks[leaf.name] = weight.block_shape[-2:]
        at, splits = self.grid.coordinates, self.placed.splits
        self.samples, rows = (splits[axis].of_length(self.total(axis)).size(at[axis]) for axis in (BATCH, HEIGHT))
        self.rows = rows / max(1, self.total(HEIGHT))

    def total(self, axis):
        """How many samples or rows the ranks of the axis batch or height share."""
        if axis == HEIGHT and any(layer.takes_images for layer in self.net.leaves()):
            return self.net.input_shape[0]
        return self.batch_size

    def step(self):
        """(computing, communicating) of this rank in a whole step, as the network is placed now. Outside of the layers with
        weights it is as many times slower than the machine file says as it was in them."""
        layers, known = (self._all_layers(self.samples, self.rows, of) for of in (self.of_layer, self.on_machine))
        parts = self.cost.parts
        rest = max(0.0, parts["compute"] + parts["update"] - known)
        return layers + self.slowness * rest, parts["gradients"] + parts["activations"]

    def alone(self):
        """Seconds of a step of the whole network on this rank, if it had a job of its own."""
        one = GridDescription(dict.fromkeys(self.grid.sizes, 1), {})
        return self.slowness * Cost(self.net, one, self.plan, self.batch_size, self.machine).seconds

    def works(self, axis):
        """[(name, total, layers, seconds)] of what the ranks of an axis share, as in SharedWork. seconds(share): (computing,
        sending) of this rank."""
        if axis == MODEL:
            return list(self._outputs())
        return [(axis, self.total(axis), tuple(self.layers), partial(self._of_part, axis))]

    def _of_part(self, axis, share):
        """(computing, sending) with a share of the samples or rows."""
        if axis == HEIGHT:
            return self._all_layers(self.samples, share / max(1, self.total(HEIGHT))), 0.0
        moves = [move for move in map(move_in, self.placed.layers) if move and not move.is_exchange]
        return self._all_layers(share, self.rows), sum(self._moving(move, move.ways.values(), share) for move in moves)

    def _all_layers(self, samples, rows, of_layer=None):
        """Seconds of this rank's blocks of all layers with weights, for some samples and a part of the rows."""
        of_layer, total = of_layer or self.of_layer, 0.0
        for name, layer in self.layers.items():
            plan = self.plans[name]
            part = self.grid.sizes[MODEL] if plan.weight is None and plan.shares_work else 1  # of the samples
            total += of_layer(layer, *self.blocks[name], samples, rows / part)
        return total

    def _outputs(self):
        """Yield what `works` returns for each layer outside of branches whose outputs, hidden units or kernels are shared."""
        outside, moves = {layer.name for layer in self.net.layers}, self._moves_behind()
        for name, following in pairwise([*self.layers, None]):
            layer, plan = self.layers[name], self.plans[name]
            has_master = plan.bounding_rank is not None
            if name not in outside or plan.weight != OUTPUTS or has_master and not layer.takes_images:
                continue  # a master computes layers without images alone
            taken = following in outside and self.plans[following].weight == INPUTS
            names = (name, following) if taken else (name,)
            sending = partial(self._handing, layer) if has_master else partial(self._sending, layer, moves.get(name))
            total, layers = layer.weight.shape[-1], [self.layers[one] for one in names]
            yield name, total, names, partial(self._of_outputs, total, layers, sending)

    def _moves_behind(self):
        """{name of a layer outside of branches: the Redistribute that moves its sharded outputs}."""
        found, last = {}, None
        for layer in self.placed.layers:
            move = move_in(layer)
            if move and move.group is self.grid.group(MODEL) and move.source.dim == C and not move.is_exchange:
                found.setdefault(last, move)
            if layer.children or layer.parameters and layer.name in self.layers:
                last = layer.name
        return found

    def _of_outputs(self, total, layers, sending, share):
        """(computing, sending) with a share of the outputs of a layer. layers: it, and the one that takes them as they are."""
        layer, *taking = layers
        computing = self.of_layer(layer, layer.inputs, share, self.samples, 1.0)
        for other in taking:
            computing += self.of_layer(other, share * other.inputs // total, other.outputs, self.samples, 1.0)
        return computing, sending(share)

    def _sending(self, layer, move, share):
        """Seconds in which a share of the outputs of a layer is moved by the Redistribute `move` or None, and back."""
        if move is None:
            return 0.0
        total, group = layer.weight.shape[-1], move.group
        rest = Partition.even(total - share, max(1, group.size - 1)).sizes  # of the other ranks
        sizes = [*rest[: group.rank], share, *rest[group.rank :]][: group.size]
        parts = Partition.of_sizes(sizes).grouped(move.source.partition.length // total)
        moved = [[Shard(C, parts) if placement.dim == C else placement for placement in way] for way in move.ways.values()]
        return self._moving(move, moved, self.samples)

    def _handing(self, layer, share):
        """Seconds in which a slave gets the input and its kernels and returns its outputs (equation 5.1 of Marques 2016)."""
        group, before = self.grid.group(MODEL), self.inputs[layer]
        if not share or group.rank == MASTER:
            return 0.0
        part = share / layer.weight.shape[-1]
        elements = self.samples * (prod(before) + part * prod(layer.output_shape(before))) + part * layer.weight.size
        return 2 * self._collective(HandOut.kind, group, elements)  # backward sends as much

    def _moving(self, move, ways, samples):
        """Predicted seconds of a Redistribute in ways [(source, target)]. samples: of the ranks of its group together."""
        total, group = 0.0, move.group
        for source, target in ways:
            here = (samples, *move.shape)
            if source.dim is not None:
                here = resized(here, source.dim, source.partition_of(samples).size(group.rank))
            if source != target and (step := move_between(group, source, target, here, samples)).kind:
                total += self._collective(step.kind, group, max(step.sent, step.most))
        return total

    def _collective(self, kind, group, elements):
        return self.machine.collective_seconds(kind, group, self.grid.size, elements * self.net.dtype.itemsize)


def move_in(layer):
    """The Redistribute that a placed layer is or contains, or None."""
    move = layer.move if isinstance(layer, GatheredLinear) else layer
    return move if isinstance(move, Redistribute) else None


# ----- the shares of all ranks


@dataclass(frozen=True)
class SharedWork:
    """What the ranks of an axis share, and the shares by each rule: lists with a number for each rank of the axis."""

    axis: str
    name: str  # of the layer whose outputs are shared, or of the axis
    total: int  # kernels, neurons, samples or rows
    layers: tuple  # the names of the layers with weights that compute with a share
    coordinates: np.ndarray  # along the axis, of each rank of the grid
    computing: np.ndarray  # (ranks, total + 1): seconds of a step in which each rank computes in these layers, for each share
    sending: np.ndarray  # the same: predicted seconds in which it sends and receives what it computed
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

    def without(self, ranks, computing):
        """The same with functions of other seconds of computing, and nothing for some ranks of the axis."""
        seconds = of_axis(computing + self.sending, self.coordinates)
        seconds[list(ranks), 1:] = inf
        return replace(self, function=fastest_shares(seconds))

    def left_out(self, known):
        """Yield a line for each rank of the axis that gets nothing, with the reason. known: ranks of which it is known."""
        slowest, seconds = self.slowest(self.function), of_axis(self.computing + self.sending, self.coordinates)
        for rank, share in enumerate(self.function):
            if not share and rank not in known:
                least = float(seconds[rank, 1:].min(initial=inf))
                why = f"takes {least * 1e3:.4g} ms even for its fastest share" if least > slowest else "would shorten nothing"
                yield f"rank {rank} of {self.axis} gets no {self.what}: it {why}; the others need {slowest * 1e3:.4g} ms"


@dataclass(frozen=True)
class Balance:
    """The shares of a network on a grid, and what they were chosen from."""

    machine: Machine  # which said what communication costs
    chosen: list  # a SharedWork for each thing that is shared
    given: dict  # {name of a SharedWork: shares} with which the work along later axes is shared
    speeds: dict  # {axis: relative speeds of its ranks for the same work, the slowest 1}: Marques' performance values
    coordinates: dict  # {axis: those of each rank of the grid}
    left: dict  # {axis: ranks of it that get nothing, because a whole step is faster without them}
    steps: dict  # {axis: [predicted seconds of a step without any, one, two, .. of its slowest ranks]}
    alone: float  # predicted seconds of a step on the fastest rank in a job of its own

    def placement(self):
        """(shares, owners) for `parallelize` by functions; what is no SharedWork is shared by the speeds. Ranks that are left
        out or get nothing by any function have no part of it either."""
        shares = {}
        for axis, speeds in self.speeds.items():
            functions = [one.function for one in self.chosen if one.axis == axis] or [speeds]
            has_part = np.any(functions, axis=0)
            has_part[self.left[axis]] = False
            shares[axis] = tuple((has_part * speeds).tolist())
        shares |= {one.axis: tuple(one.function) for one in self.chosen if one.axis != MODEL}
        return shares, {one.name: Partition.of_sizes(one.function) for one in self.chosen if one.axis == MODEL}

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
        return {name for one in self._by_axis()[-1] for name in one.layers}

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
                chosen.append(one.without(self.left[one.axis], one.computing * np.reshape(factor, (-1, 1))))
            now = sum(one.at(one.computing, one.function) for one in chosen[-len(group) :])
            then = sum(one.at(one.computing, self.given[one.name]) for one in slower)
            factor = factor * change(now, then)
        speeds = {}
        for axis, before in self.speeds.items():
            now = np.array(before) / of_axis(slowness[:, None], self.coordinates[axis])[:, 0]
            speeds[axis] = tuple((now / now.min()).tolist())
        return replace(self, chosen=chosen, speeds=speeds)

    def _by_axis(self):
        return [list(group) for _, group in groupby(self.chosen, key=attrgetter("axis"))]

    def lines(self):
        """Yield the lines of a table: for each SharedWork its shares by each rule, and milliseconds of the slowest rank."""
        for axis, speeds in self.speeds.items():
            yield f"speeds along {axis}: {', '.join(f'{speed:.3g}' for speed in speeds)}"
        for one in self.chosen:
            yield f"{one.total} {one.what} along {one.axis}"
            for rule in RULES:
                shares = getattr(one, rule)
                yield f"  {rule:<8}  slowest rank {one.slowest(shares) * 1e3:8.4g} ms  shares {', '.join(map(str, shares))}"
        yield from self.left_out()

    def left_out(self):
        """Yield lines about the ranks that get nothing."""
        for axis, ranks in self.left.items():
            if ranks:
                now, before = (f"{seconds * 1e3:.4g}" for seconds in (min(self.steps[axis]), self.steps[axis][0]))
                yield f"nothing for {in_words(ranks)} of {axis}: a step is predicted to take {now} ms, and {before} with all"
        for one in self.chosen:
            yield from one.left_out(self.left[one.axis])
        if self.steps and self.alone < (step := min(map(min, self.steps.values()))):
            yield (f"the fastest rank in a job of its own is predicted to take {self.alone * 1e3:.4g} ms, all together "
                   f"{step * 1e3:.4g}: try fewer ranks")  # fmt: skip


def measured_shares(net, grid, placing, batch_size, machine, handicap=None):
    """The Balance for the ranks of a ProcessGrid, measured now, on all ranks at the same time. Collective. placing: a
    PlacementSpec with the plan; shares that need more than its memory are impossible. machine: prices communication."""
    if grid.rank == 0:
        print(f"measuring for about {BUDGET:g} seconds how fast each rank computes parts of the layers, to choose the shares",
              file=sys.stderr, flush=True)  # fmt: skip
    of_block = measured_block(net, handicap, placing.memory or inf)
    costs = RankCosts(net, grid.sizes, grid.coordinates, placing.plan, batch_size, machine, of_block)
    return balance([costs], lambda rows: np.concatenate(grid.comm.allgather(rows)), grid.comm.bcast)


def predicted_shares(net, sizes, plan, batch_size, machine, speeds):
    """The Balance for a grid {axis: ranks}, without a job. speeds: of each rank, times those of the machine file."""
    blocks = zip(places(sizes), (predicted_block(net, machine, len(speeds), speed) for speed in speeds), strict=True)
    costs = [RankCosts(net, sizes, at, plan, batch_size, machine, of_block) for at, of_block in blocks]
    return balance(costs, lambda rows: rows, lambda decision: decision)


def balance(costs, gather, agree):
    """The Balance of a grid; ValueError for a pipeline. costs: [RankCosts of the ranks of this process]. gather(rows of these):
    the rows of all ranks. agree(decision): that of the first process. Both are called alike on all ranks."""
    sizes = costs[0].grid.sizes
    if sizes[STAGE] > 1:
        raise ValueError("shares are not chosen for a pipeline: leave --shares out, or use a grid without the axis stage")
    all_coordinates = {axis: np.array([at[axis] for at in places(sizes)]) for axis in ORDER if sizes[axis] > 1}
    same_work, alone = gather(np.array([(one.same_work, one.alone()) for one in costs])).T
    best = Balance(costs[0].machine, [], {}, {}, all_coordinates, {}, {}, float(alone.min()))
    for axis, coordinates in all_coordinates.items():
        slowest, found = np.maximum(of_axis(same_work, coordinates), TINY), []
        speeds = agree(tuple((slowest.max() / slowest).tolist()))
        for works in zip(*(one.works(axis) for one in costs), strict=True):
            (name, total, layers, _), of_share = works[0], [seconds for *_, seconds in works]
            by_each_rule = chosen_shares(total, coordinates, of_share, gather, agree)
            found.append(SharedWork(axis, name, total, layers, coordinates, *by_each_rule))
        by_speed, ways, steps = sorted(range(sizes[axis]), key=speeds.__getitem__), [], []
        with suppress(ValueError):  # the ranks that are kept can not have all
            for count in range(sizes[axis]):  # the slowest ranks leave one after the other
                left = by_speed[:count]
                chosen = [*best.chosen, *(one.without(left, one.computing) if left else one for one in found)]
                ways.append(replace(best, chosen=chosen, given={one.name: one.function for one in chosen},
                                    speeds=best.speeds | {axis: speeds}, left=best.left | {axis: sorted(left)}))  # fmt: skip
        for way in ways:
            for one in costs:
                one.give(*way.placement())
            steps.append(float(gather(np.array([one.step() for one in costs])).max(axis=0).sum()))
        # of equally fast ways the one with the most ranks
        best = replace(ways[agree(int(np.argmin(steps)))], steps=best.steps | {axis: steps})
        for one in costs:
            one.give(*best.placement())
    return best


def chosen_shares(total, coordinates, of_share, gather, agree):
    """(computing, sending, even, constant, function) of a SharedWork, whose ranks have these coordinates along its axis.
    of_share: for each rank of this process a function of a share, (computing, sending). gather, agree: as for `balance`."""
    ranks, known = int(coordinates.max()) + 1, {}
    equal_share = min(total, max(1, total // ranks))  # Marques' rule gives every device the same work to time
    even = Partition.even(total, ranks).sizes
    wanted = {0, min(1, total), equal_share, *even, *(total * part // FIRST_SHARES for part in range(1, FIRST_SHARES + 1))}
    for _ in range(ROUNDS):
        for share in sorted(wanted - known.keys()):
            known[share] = gather(np.array([seconds(share) for seconds in of_share]))
        computing, sending = (interpolated(known, what, total) for what in (0, 1))
        speeds = 1 / np.maximum(of_axis(computing, coordinates)[:, equal_share], TINY)
        constant = agree(Partition.weighted(total, tuple(speeds.tolist())).sizes)
        function = agree(fastest_shares(of_axis(computing + sending, coordinates)))
        steps = {step for share in function if share for step in (share // BLAS_STEP, -(-share // BLAS_STEP))}
        wanted = {*function, *constant, *(step * BLAS_STEP for step in steps if step * BLAS_STEP <= total)}
        if wanted <= known.keys():
            break
    return computing, sending, even, constant, function


def change(now, then):
    """The ratio of what ranks compute now and what they computed then, elementwise; 1 where they computed nothing."""
    return np.divide(now, then, out=np.ones(len(now)), where=then > 0)


def of_axis(rows, coordinates):
    """For each rank of an axis, the elementwise maximum of the rows of its ranks of the grid."""
    return np.stack([rows[coordinates == coordinate].max(axis=0) for coordinate in range(coordinates.max() + 1)])


def interpolated(known, what, total):
    """Seconds of each rank for all shares up to `total`, (ranks, total + 1), by straight lines; infinite above the largest that
    a rank can have. known: {share: (ranks, 2) seconds}. what: the column."""
    shares = np.array(sorted(known))
    rows = np.array([known[share][:, what] for share in shares.tolist()]).T
    fits = np.isfinite(rows)
    lines = [np.interp(np.arange(total + 1), shares[fit], row[fit], right=inf) for row, fit in zip(rows, fits)]
    return np.array(lines)


def fastest_shares(seconds):
    """[share of each rank], whole numbers with the sum `total`, with the least time of the slowest rank, exactly; among equals
    with the smallest sum of squared times. seconds: (ranks, total + 1), infinite for shares that a rank can not have.
    ValueError if no shares are possible."""
    seconds = np.array(seconds, np.float64)
    speeds = 1 / np.maximum(seconds[:, -1], TINY)
    if speeds.any():  # what takes longer than the slowest rank with shares by these is not tried: most of all shares
        some = Partition.weighted(seconds.shape[1] - 1, tuple(speeds.tolist())).sizes
        seconds[seconds > seconds[np.arange(len(some)), some].max()] = inf
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
