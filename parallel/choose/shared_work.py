"""What the ranks of an axis share, and what a share costs one rank: a SharedWork for each thing that is shared.

Along the axis `model` it is the neurons or kernels of each layer whose outputs are sharded (choice "out"), the hidden units of
an autoencoder, or the kernels that the master of the plan "marques" hands out. A layer with the choice "in" that takes outputs
as they are divided belongs to the layer before. Along the axis `batch` it is the samples of a minibatch, along `height` the
rows of the images, or without images the samples again. How long a block of a layer takes is measured by running it, or
predicted by the cost model, for several sizes: kernels have steps, and twice the share seldom takes exactly twice the time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, prod

import numpy as np

from gridgrad.nn import Context, Sequential
from gridgrad.nn.device import synchronise, to_device
from gridgrad.nn.layer import Block
from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.grid.process_grid import BATCH, HEIGHT, MODEL, GridDescription
from gridgrad.parallel.placement.moves import move_between
from gridgrad.parallel.placement.overlapped_layers import GatheredLinear
from gridgrad.parallel.placement.partition import Partition, resized
from gridgrad.parallel.placement.placements import MASTER, C, H, Shard
from gridgrad.parallel.placement.plan import INPUTS, OUTPUTS, weighted
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.marques import HandedConv2d, HandOut
from gridgrad.parallel.plans.place_network import place, splits
from gridgrad.parallel.plans.plans import PLANS
from gridgrad.parallel.prediction.workload import Workload

ORDER = MODEL, BATCH, HEIGHT  # of the axes: along each of them the shares along those before it are given
RUNS, LONG = 5, 0.2  # a block is run so often, or for so many seconds; the fastest run counts
BUDGET = 5.0  # seconds of all blocks together, after which each is run as seldom as possible


class LayerSeconds:
    """Seconds of the passes over blocks of the layers with weights. A subclass says by `of_block(block, shape, is_first)` what
    one takes. shape: of its input. is_first: it computes no gradient of its input."""

    def __init__(self, net, shape):
        self.net, self.layers = net, weighted(net)
        self.inputs = {layer: before for layer, before, _ in shapes(net.layers, shape)}
        self._known = {}

    def seconds(self, layer, inputs, outputs, samples, rows=1.0):
        """Seconds of a training step's passes over the block with so many inputs and outputs (or hidden units) of a layer.
        rows: the part of the rows of its images, of a layer without images of the samples."""
        key = layer, inputs, outputs, samples, rows
        if key not in self._known:
            held, kernel = slice(0, outputs), [slice(0, n) for n in layer.weight.shape[:-2]]
            block = layer.placed(weight=Block((*kernel, slice(0, inputs), held)), bias=Block((held,)))
            shape = (*self.inputs[layer][:-1], inputs)
            if layer.takes_images:
                here = layer.window.outputs(H, shape[0])
                shape = (shape[0] - (here - round(here * rows)) * layer.window.stride[0], *shape[1:])
            else:
                samples, here = round(samples * rows), 1
            empty = not (inputs and outputs and samples and round(here * rows))
            self._known[key] = 0.0 if empty else self.of_block(block, (samples, *shape), layer is self.layers[0])
        return self._known[key]


class MeasuredSeconds(LayerSeconds):
    """Measured by running the blocks on random numbers; a block that needs more bytes than `memory` takes infinitely long."""

    def __init__(self, net, shape, handicap=None, memory=inf):
        super().__init__(net, shape)
        self.handicap, self.memory, self.end = handicap, memory, time.perf_counter() + BUDGET

    def of_block(self, block, shape, is_first):
        activations = prod(shape) + shape[0] * prod(block.output_shape((*shape[1:-1], block.inputs)))
        if self.net.dtype.itemsize * (2 * activations + 2 * sum(p.size for p in block.parameters)) > self.memory:
            return inf
        net, context = Sequential([block], dtype=self.net.dtype), Context()
        if self.handicap:
            self.handicap.slow_down(net)
        random = np.random.default_rng(0)
        x = to_device(random.standard_normal(shape).astype(net.dtype))
        dy = to_device(random.standard_normal(net.forward(x, context).shape).astype(net.dtype))

        def passes():
            net.forward(x, context)
            net.backward(dy, context, input_gradient=not is_first)
            synchronise()

        passes()  # allocates the workspaces
        found, end = [], min(self.end, time.perf_counter() + LONG)
        while len(found) < RUNS and (not found or time.perf_counter() < end):
            start = time.perf_counter()
            passes()
            found.append(time.perf_counter() - start)
        return min(found)


class PredictedSeconds(LayerSeconds):
    """Predicted for a rank of a Machine, which computes `speed` times as fast as the machine file says."""

    def __init__(self, net, shape, machine, ranks, speed=1.0):
        super().__init__(net, shape)
        self.machine, self.ranks, self.speed = machine, ranks, speed

    def of_block(self, block, shape, is_first):
        workload = Workload(shape, shape[0], self.net.dtype.itemsize)
        workload.first = is_first
        workload.go([block])
        return workload.seconds(self.machine, self.ranks) / self.speed


@dataclass(frozen=True)
class SharedWork:
    """What the ranks of one axis share, and what a share costs one of them."""

    axis: str
    name: str  # of the layer whose outputs are shared, or of the axis
    total: int  # kernels, neurons, samples or rows
    layers: tuple  # the names of the layers with weights that compute with a share
    computing: Callable  # function of a share from 0 to `total`: seconds of a step in which the rank computes in these layers
    sending: Callable  # the same: predicted seconds in which it sends and receives what it computed


class RankCosts:
    """Each SharedWork from the point of view of one rank. Not counted are layers without weights, halos, moves inside of
    branches, and sums of gradients. same_work: seconds that this rank would compute with the even shares of the first rank."""

    def __init__(self, net, grid, plan, batch_size, machine, layer_seconds):
        self.net, self.plan, self.batch_size, self.machine = net, plan, batch_size, machine
        self.layer_seconds, self.itemsize = layer_seconds, net.dtype.itemsize
        self.layers = {layer.name: layer for layer in layer_seconds.layers}
        self.grid = GridDescription(grid.sizes, {}, grid.ranks_per_node)
        self.give({}, {})
        self.same_work = self._all_layers(self.samples, self.rows)
        self.grid = grid
        self.give({}, {})

    def give(self, shares, owners):
        """Place the network with these shares and owners; `problems` then takes them as given."""
        grid = self.grid
        self.placed = place(self.net, grid, self.plan, shares, owners)
        self.words = dict(zip(self.layers, self.placed.plan, strict=True))
        held = [leaf for leaf in leaves(self.placed.layers) if leaf.name in self.layers and leaf.parameters]
        self.blocks = {}
        for leaf in reversed(held):  # a bias may follow as a layer
            weight = leaf.conv.weight if isinstance(leaf, HandedConv2d) else leaf.parameters[0]
            self.blocks[leaf.name] = weight.block_shape[-2:]
        divided = splits(grid.sizes, shares)
        own = lambda axis: divided[axis].of_length(self.total(axis)).size(grid.coordinates[axis])  # noqa: E731
        self.samples, self.rows = own(BATCH), own(HEIGHT) / max(1, self.total(HEIGHT))

    def total(self, axis):
        """How many samples or rows the ranks of the axis batch or height share."""
        if axis == HEIGHT and any(layer.takes_images for layer in self.net.leaves()):
            return self.net.input_shape[0]
        return self.batch_size

    def problems(self, axis):
        """[each SharedWork along an axis]; on every rank the same ones, with functions of its own."""
        if axis == MODEL:
            return self._of_outputs()
        total = self.total(axis)
        if axis == BATCH:
            computing, sending = lambda share: self._all_layers(share, self.rows), self._sending_samples
        else:
            computing, sending = lambda share: self._all_layers(self.samples, share / max(1, total)), lambda share: 0.0
        return [SharedWork(axis, axis, total, tuple(self.layers), computing, sending)]

    def _all_layers(self, samples, rows):
        """Seconds of this rank's blocks of all layers with weights, for so many samples and a part of the rows."""
        total = 0.0
        for name, layer in self.layers.items():
            plan = PLANS[self.words[name]]
            part = self.grid.sizes[MODEL] if plan.weight is None and plan.shares_work else 1  # of the samples
            total += self.layer_seconds.seconds(layer, *self.blocks[name], samples, rows / part)
        return total

    def _sending_samples(self, share):
        moves = [move for move in map(move_in, self.placed.layers) if move and not move.is_exchange]
        return sum(self._seconds(move, *way, share) for move in moves for way in move.ways.values())

    def _of_outputs(self):
        """One SharedWork for each layer outside of branches whose outputs, hidden units or kernels are shared."""
        top, moves, found = {layer.name for layer in self.net.layers}, self._moves_behind(), []
        for name, following in zip(self.layers, [*list(self.layers)[1:], None]):
            plan = PLANS[self.words[name]]
            has_master, is_dense = plan.bounding_rank is not None, not self.layers[name].takes_images
            if name not in top or plan.weight != OUTPUTS or has_master and is_dense:  # which the master computes alone
                continue
            taken = following if following in top and PLANS[self.words[following]].weight == INPUTS else None
            computing, sending = partial(self._computing, name, taken), partial(self._sending, name, moves.get(name))
            if has_master:
                sending = partial(self._handing, name)
            found.append(SharedWork(MODEL, name, self.units(name), (name, taken) if taken else (name,), computing, sending))
        return found

    def units(self, name):
        """How many outputs, hidden units or kernels of a layer are shared."""
        return self.layers[name].weight.shape[-1]

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

    def _computing(self, name, taken, share):
        """Seconds with a share of the outputs of a layer. taken: the name of the layer that takes them as they are, or None."""
        layer = self.layers[name]
        total = self.layer_seconds.seconds(layer, layer.inputs, share, self.samples)
        if taken:
            other = self.layers[taken]
            total += self.layer_seconds.seconds(other, share * other.inputs // self.units(name), other.outputs, self.samples)
        return total

    def _sending(self, name, move, share):
        """Seconds in which a share of the outputs of a layer is moved by the Redistribute `move` or None, and back."""
        if move is None:
            return 0.0
        total, group = self.units(name), move.group
        rest = Partition.even(total - share, max(1, group.size - 1)).sizes  # of the other ranks
        sizes = [*rest[: group.rank], share, *rest[group.rank :]][: group.size]
        parts = Partition.of_sizes(sizes).grouped(move.source.partition.length // total)
        moved = [[Shard(C, parts) if placement.dim == C else placement for placement in way] for way in move.ways.values()]
        return sum(self._seconds(move, *way, self.samples) for way in moved)

    def _handing(self, name, share):
        """Seconds in which a slave gets the input and its share of kernels and returns its outputs (equation 5.1 of Marques
        2016); backward sends as much, and the master nothing to itself."""
        group, layer = self.grid.group(MODEL), self.layers[name]
        if not share or group.rank == MASTER:
            return 0.0
        before = self.layer_seconds.inputs[layer]
        part = share / self.units(name)
        elements = self.samples * (prod(before) + part * prod(layer.output_shape(before))) + part * layer.weight.size
        return 2 * self.machine.collective_seconds(HandOut.kind, group, self.grid.size, elements * self.itemsize)

    def _seconds(self, move, source, target, samples):
        """Predicted seconds of one way of a move. samples: of the ranks of its group together."""
        here, group = (samples, *move.shape), move.group
        if source.dim is not None:
            here = resized(here, source.dim, source.partition_of(samples).size(group.rank))
        step = move_between(group, source, target, here, samples) if source != target else None
        if step is None or step.kind is None:
            return 0.0
        return self.machine.collective_seconds(step.kind, group, self.grid.size, max(step.sent, step.most) * self.itemsize)


def move_in(layer):
    """The Redistribute that a placed layer is or contains, or None."""
    move = layer.move if isinstance(layer, GatheredLinear) else layer
    return move if isinstance(move, Redistribute) else None
