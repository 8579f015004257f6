"""What the ranks of an axis share, and what a share costs one rank: a SharedWork for each thing that is shared.

Along the axis `model` every layer whose outputs are sharded (choice "out") is a problem of its own: its neurons or kernels are
divided so that this layer runs fastest. So are the hidden units of an autoencoder, and the kernels that the master of the plan
"marques" hands out. A layer with the choice "in" that takes outputs as they are divided is part of the same problem. Along the
axis `batch` there is one problem, the samples of a minibatch, which pass through all layers; and along the axis `height` one,
the rows of the images, or where there are no images the samples again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import BATCH, HEIGHT, MODEL
from gridgrad.parallel.placement.gathered_linear import GatheredLinear
from gridgrad.parallel.placement.moves import MASTER, HandOut, move_between
from gridgrad.parallel.placement.partition import Partition, resized
from gridgrad.parallel.placement.placements import C, Shard
from gridgrad.parallel.placement.plan import INPUTS, OUTPUTS
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.marques import HandedConv2d
from gridgrad.parallel.plans.place_network import place, splits
from gridgrad.parallel.plans.plans import PLANS

ORDER = MODEL, BATCH, HEIGHT  # of the axes: along each of them the shares along those before it are given


@dataclass(frozen=True)
class SharedWork:
    """What the ranks of one axis share, and what a share costs.

    axis: whose ranks share. name: of the layer whose outputs are shared; else that of the axis. total: how many kernels,
    neurons, samples or rows there are. layers: the names of the layers with weights that compute with a share.

    computing, sending: functions of a share, from 0 to `total`: the seconds that the rank computes in these layers in a
    training step, and the predicted seconds in which it sends and receives what it computed.
    """

    axis: str
    name: str
    total: int
    layers: tuple
    computing: Callable
    sending: Callable


class RankCosts:
    """Each SharedWork from the point of view of one rank, whose shares are even until others are given.

    net: a serial Sequential. grid: a GridDescription with the place of the rank. plan: as in `parallelize`. batch_size: of the
    global minibatch. machine: a Machine, for what communication costs. layer_seconds: a `LayerSeconds` of this rank.

    same_work: the seconds that this rank would compute with the even shares of the first rank of the grid.
    Not counted as computing are the layers without weights, and as communication halos, moves inside of branches, and the sums
    of the gradients, which take the same time however the work is shared.
    """

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
        """Place the network with these shares and owners (see `parallelize`); `problems` then takes them as given."""
        grid = self.grid
        self.placed = place(self.net, grid, self.plan, shares, owners)
        self.words = dict(zip(self.layers, self.placed.plan, strict=True))
        held = [leaf for leaf in leaves(self.placed.layers) if leaf.name in self.layers and leaf.parameters]
        self.blocks = {leaf.name: held_weight(leaf).block_shape[-2:] for leaf in reversed(held)}  # a bias may follow as a layer
        divided = splits(grid.sizes, shares)
        own = lambda axis: divided[axis].of_length(self.total(axis)).size(grid.coordinates[axis])  # noqa: E731
        self.samples, self.rows = own(BATCH), own(HEIGHT) / max(1, self.total(HEIGHT))

    def total(self, axis):
        """How many samples or rows the ranks of the axis batch or height share."""
        if axis == HEIGHT and any(layer.takes_images for layer in self.net.leaves()):
            return self.net.input_shape[0]
        return self.batch_size

    def problems(self, axis):
        """Each SharedWork along an axis, a list; the same on every rank but for the functions."""
        if axis == MODEL:
            return self._of_outputs()
        total = self.total(axis)
        if axis == BATCH:
            computing, sending = lambda share: self._all_layers(share, self.rows), self._sending_samples
        else:
            computing, sending = lambda share: self._all_layers(self.samples, share / max(1, total)), lambda share: 0.0
        return [SharedWork(axis, axis, total, tuple(self.layers), computing, sending)]

    def _all_layers(self, samples, rows):
        """Seconds of this rank's blocks of all layers with weights, for so many samples and such a part of the rows."""
        total, ranks = 0.0, self.grid.sizes[MODEL]
        for name, layer in self.layers.items():
            plan = PLANS[self.words[name]]
            shares = plan.weight is None and plan.shares_work  # the ranks of the axis share the samples
            part = ranks if shares else 1
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
        """{name of a layer: the Redistribute that moves its sharded outputs}, of the layers outside of branches."""
        found, last = {}, None
        for layer in self.placed.layers:
            move = move_in(layer)
            if move and move.group is self.grid.group(MODEL) and move.source.dim == C and not move.is_exchange:
                found.setdefault(last, move)
            if layer.children or layer.parameters and layer.name in self.layers:
                last = layer.name
        return found

    def _computing(self, name, taken, share):
        """Seconds with a share of the outputs of a layer. taken: the name of the layer that takes them as inputs, or None."""
        layer = self.layers[name]
        total = self.layer_seconds.seconds(layer, layer.inputs, share, self.samples)
        if taken:
            other = self.layers[taken]
            total += self.layer_seconds.seconds(other, share * other.inputs // self.units(name), other.outputs, self.samples)
        return total

    def _sending(self, name, move, share):
        """Seconds in which a share of the outputs of a layer is moved, and their gradient moved back. move: may be None."""
        if move is None:
            return 0.0
        total, group = self.units(name), move.group
        parts = with_share(total, group.size, group.rank, share).grouped(move.source.partition.length // total)
        moved = [[Shard(C, parts) if placement.dim == C else placement for placement in way] for way in move.ways.values()]
        return sum(self._seconds(move, *way, self.samples) for way in moved)

    def _handing(self, name, share):
        """Seconds in which a slave gets the input and its share of the kernels of a convolution and returns its outputs.

        Equation 5.1 of Marques 2016; backward sends as much. The master has nothing to send to itself.
        """
        group, layer = self.grid.group(MODEL), self.layers[name]
        if not share or group.rank == MASTER:
            return 0.0
        before = self.layer_seconds.inputs[layer]
        part = share / self.units(name)
        elements = self.samples * (prod(before) + part * prod(layer.output_shape(before))) + part * layer.weight.size
        return 2 * self.machine.collective_seconds(HandOut.kind, group, self.grid.size, elements * self.itemsize)

    def _seconds(self, move, source, target, samples):
        """Predicted seconds of one way of a move. samples: that the ranks of its group hold together."""
        here, group = (samples, *move.shape), move.group
        if source.dim is not None:
            here = resized(here, source.dim, source.partition_of(samples).size(group.rank))
        step = move_between(group, source, target, here, samples) if source != target else None
        if step is None or step.kind is None:
            return 0.0
        return self.machine.collective_seconds(step.kind, group, self.grid.size, max(step.sent, step.most) * self.itemsize)


def held_weight(leaf):
    """The block of the weight with which a placed layer computes on this rank: a Parameter."""
    return leaf.conv.weight if isinstance(leaf, HandedConv2d) else leaf.parameters[0]


def move_in(layer):
    """The Redistribute that a placed layer is or contains; None if there is none."""
    move = layer.move if isinstance(layer, GatheredLinear) else layer
    return move if isinstance(move, Redistribute) else None


def with_share(total, ranks, rank, share):
    """The Partition of `total` indices in which a rank has `share` of them, and the others have the rest evenly."""
    rest = Partition.even(total - share, max(1, ranks - 1)).sizes
    return Partition.of_sizes([*rest[:rank], share, *rest[rank:]][:ranks])
