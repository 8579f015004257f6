"""The Placer turns the layers of a serial network into those of one rank, and inserts the redistributions between them.

With an axis `stage`, each chunk of consecutive layers is on one rank of that axis, with all samples of the network's input or
outputs where it is the first or last one. Other ranks hold empty blocks of these arrays. Between chunks activations travel in
the placement that they have along the other axes.
"""

from copy import copy
from dataclasses import replace
from functools import lru_cache, partial

from gridgrad.nn import Linear
from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer, Parameter
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.placement.layer_kinds import kind_of
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.placement.overlapped_layers import GatheredLinear, HaloConv2d
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import MASTER, PIXELS, AtMaster, AtRank, C, Invariant, N, Partial, Replicate, Shard
from gridgrad.parallel.placement.plan import Plan
from gridgrad.parallel.placement.redistribute import Redistribute


class Placer:
    """Goes through a network layer by layer and keeps track of how the activations are placed along every axis."""

    # grid: a ProcessGrid or a GridDescription. plans: {axis: {layer: Plan}} for the layers with weights. splits: {axis: Split},
    # by which an axis divides a dimension that it begins to shard. owners: what the plan of the axis `MODEL` takes, usually
    # {name of a layer: Partition of its outputs}. start: (at, order) in the middle of a network.
    # The state changes from layer to layer. shape: of a whole sample of the activations. at: {axis: placement} of them, for the
    # axes with several ranks. order: the axes that shard the samples, outermost first. stage: the rank along the axis `stage`
    # on which the layers are. layers: those placed so far.

    def __init__(self, grid, plans, shape, splits, owners=None, start=None):
        self.grid, self.plans, self.shape, self.splits, self.owners = grid, plans, shape, splits, owners or {}
        axes = [axis for axis, ranks in grid.sizes.items() if ranks > 1 and axis != STAGE]  # that divide the arrays of layers
        firsts = {axis: next(iter(plans[axis].values()), Plan()) for axis in axes}
        self.of_axis = {axis: Plan() if plan.mixes else plan for axis, plan in firsts.items()}  # where all layers have one
        self.stage, self.layers, self.at = 0, [], {}
        if start is None:
            self.at = {axis: plan.start(self, axis) for axis, plan in firsts.items()}
            self.order = tuple(axis for axis, placement in self.at.items() if placement.dim == N)
        else:
            self.at, self.order = dict(start[0]), start[1]

    def fork(self):
        """A Placer that begins where this one is, for a branch."""
        new = copy(self)
        new.at, new.layers = dict(self.at), []
        return new

    def shard(self, axis, dim):
        """The placement that divides a dimension along an axis, by the Split of that axis."""
        split = self.splits[axis]
        return self.of_axis[axis].samples(split) if dim == N else Shard(dim, split.of_length(self.shape[dim - (dim > 0)]))

    def sharding(self, *dims):
        """The axes along which one of these dimensions is sharded."""
        return [axis for axis, placement in self.at.items() if placement.dim in dims]

    @property
    def layout(self):
        """The Layout of the activations at this point."""
        placements = {axis: self.at[axis] for axis in (*self.order, *(axis for axis in self.at if axis not in self.order))}
        return Layout((None, *self.shape), self.grid.sizes, placements, self.grid.coordinates)

    def layout_of(self, parameter, placements):
        """The Layout of a parameter or buffer of the layer at this point. placements: {axis: placement} on a stage; by default
        it is Invariant along the axes where the activations are, since its gradient is whole there, and else Replicate."""
        whole = {axis: placement for axis, placement in self.at.items() if placement == Invariant()}
        return at_stage(Layout(parameter.shape, self.grid.sizes, whole | placements, self.grid.coordinates), self.stage)

    def at_master(self, axis, parameter):
        """The placement of a parameter of which the master of an axis holds all, by its last dimension."""
        return AtMaster(-1, Partition.at_rank(parameter.shape[-1], self.grid.sizes[axis], MASTER))

    def rows_along(self, axis):
        """A function of a batch size: the slice of such a global minibatch that the ranks along an axis hold together now."""
        layout, coordinates = self.layout, self.grid.coordinates  # of this moment
        return lambda batch_size: layout.of(batch_size).part(0, coordinates, inside=axis)

    # ----- moving the activations, and appending layers

    def move(self, axis, target, name, kind=Redistribute):
        """Append what moves the activations to a placement along an axis. name: of the layer that needs them, for the tally."""
        source = self.at[axis]
        if source == target:
            return
        inner = self.order[self.order.index(axis) + 1 :] if axis in self.order else ()
        for other in reversed(inner):  # inner axes divide the samples of one rank of this axis, so they are undone first
            self.move(other, Replicate(), name)
        if source == Partial() and target.dim is None:  # a reduce-scatter, then an all-gather
            self._append_move(axis, self.shard(axis, C), name)
        self._append_move(axis, target, name, kind)
        for other in inner:
            self.move(other, self.shard(other, N), name)

    def _append_move(self, axis, target, name, kind=Redistribute):
        outer = self.order[: self.order.index(axis)] if axis in self.order else self.order
        self.append(self.redistribution(axis, target, kind), name)
        self.at[axis] = target
        self.order = outer + ((axis,) if target.dim == N else ())

    def redistribution(self, axis, target, kind=Redistribute):
        """The Redistribute, or `kind` of it, of the activations at this point."""
        return kind(self.grid.group(axis), self.at[axis], target, self.shape, self.rows_along(axis))

    def whole_values(self, name):
        """Reduce partial sums with a reduce-scatter, for layers that are not linear and so need the sums themselves."""
        for axis, placement in self.at.items():
            if placement == Partial():
                self.move(axis, self.shard(axis, C), name)

    def append(self, layer, name):
        """Append a layer of this rank. name: of the serial layer that it belongs to."""
        layer.give_name(name)
        self.layers.append(layer)

    def append_block(self, block, layer):
        """Append this rank's block of a layer with parameters, or what another rank than the master has in its place."""
        if any(isinstance(at, AtMaster) and self.grid.coordinates[axis] != MASTER for axis, at in self.at.items()):
            block = EmptyLayer(block, self.shape, layer.output_shape(self.shape))
        self.append(block, layer.name)

    # ----- placing layers

    def place(self, layers):
        """Place layers one after another. ValueError for a kind without a rule."""
        for layer in layers:
            kind_of(layer).place(self, layer)
            self.shape = layer.output_shape(self.shape)

    def finish(self):
        """Move the outputs to where the loss is computed: along each axis they are sharded by samples, or Invariant."""
        for axis, plan in self.of_axis.items():
            plan.finish(self, axis)

    def weights(self, layer):
        """Place a layer with weights: its input moves as the plans require, and this rank keeps its block of the weights."""
        plans = {axis: self.plans[axis][layer] for axis in self.at}
        if any(plan.place(self, axis, layer) for axis, plan in plans.items()):
            return
        for axis, plan in plans.items():
            self.move(axis, plan.wanted(self, axis), layer.name, plan.move)
        arrays = {p.name: p for p in vars(layer).values() if isinstance(p, Parameter)}
        placements, outputs = {name: {} for name in arrays}, {}
        for axis, plan in plans.items():
            found, outputs[axis] = plan.divide(self, axis, layer)
            for name, placement in found.items():
                placements[name][axis] = placement
        block = layer.placed(**{name: self.layout_of(p, placements[name]) for name, p in arrays.items()})
        if self.layers and self._hides_gather(self.layers[-1], block):
            block = GatheredLinear(self.layers.pop(), block)
        if self.sharding(*PIXELS):  # of a convolution: no other layer with weights is given parts of images
            block.window, parts, halos = self.windowed(layer.window)
            outputs |= parts
            for halo in halos[:-1]:
                self.append(halo, layer.name)
            if halos:
                block = HaloConv2d(halos[-1], block)
        self.append(block, layer.name)
        self.at |= outputs
        for axis, plan in plans.items():
            plan.behind(self, axis, layer)

    def _hides_gather(self, before, block):
        """Whether to overlap the all-gather `before` with the products of the Linear `block`: if it crosses nodes."""
        gathers = type(before) is Redistribute and (before.source.dim, before.target) == (C, Replicate())
        if not gathers or type(block) is not Linear or not before.source.partition.is_contiguous:
            return False
        return self.grid.spans_nodes(*(axis for axis in self.at if self.grid.group(axis) is before.group))

    def windowed(self, window):
        """(the window of this rank's outputs, {axis: Shard} of them, [a halo, ..]), where images are sharded. A halo brings the
        rows or columns that the windows cover; the second one also sends what the first has brought: the corners."""
        mine, parts, halos = window, {}, []
        for axis in self.sharding(*PIXELS):
            dim = self.at[axis].dim
            length = self.shape[dim - 1]
            outputs = self.splits[axis].of_length(window.outputs(dim, length))
            needed = needed_part(window, outputs, dim, length)
            halo = self.redistribution(axis, self.at[axis].needing(needed))
            if halo.moves("forward"):
                halos.append(halo)
            mine = mine.of_part(dim, outputs.part(self.grid.coordinates[axis]), length)
            parts[axis] = Shard(dim, outputs)
        return mine, parts, halos

    def branches(self, branches, name, whole_channels):
        """Place the branches of a layer: returns a Placer for each, which end as the first does, without partial sums, and with
        all channels on every rank if `whole_channels` says so and the plan does not leave them at their owners."""
        axes = self.of_axis.items()
        begins = {axis: plan.starts_of_branches(self, axis, branches, name, not whole_channels) for axis, plan in axes}
        apart = {axis for axis, plan in axes if whole_channels and plan.divides_apart}
        placers = []
        for number, layers in enumerate(branches):
            placer = self.fork()
            for axis, starts in begins.items():
                placer.move(axis, starts[number], name)
            placer.place(layers)
            if not placers:
                placer.end_first(name, whole_channels, apart)
            elif not apart:
                placer.end_as(placers[0].at, placers[0].order, name)
            placers.append(placer)
        self.at, self.order = placers[0].at, placers[0].order
        return placers

    def end_first(self, name, whole_channels, apart=()):
        """End the first branch of a layer, without partial sums. apart: axes along which channels stay at their owners."""
        self.whole_values(name)
        for axis, placement in self.at.items():
            if whole_channels and placement.dim == C and axis not in apart:
                self.move(axis, self.shard(axis, N), name)

    def end_as(self, at, order, name):
        """Append the redistributions to the placements, and the order of axes, in which the first branch has ended."""
        for axis, placement in at.items():
            self.move(axis, placement, name)
        if self.order != order:
            for axis in reversed(self.order):
                self.move(axis, Replicate(), name)
            for axis in order:
                self.move(axis, at[axis], name)


@lru_cache(maxsize=1024)  # the planner asks for the same one again and again, and compares the results
def needed_part(window, outputs, dim, length):
    """The Partition of the input, `length` long in dim H or W, that ranks need for their parts of the output, with halos."""
    return outputs.mapped(length, partial(window.input_part, dim, length=length))


def at_stage(layout, stage):
    """The Layout of an array all of which is at one rank of the axis `stage`. layout: along the other axes."""
    if layout.sizes[STAGE] == 1:
        return layout
    held = AtRank(0, Split.at_rank(layout.sizes[STAGE], stage))
    return replace(layout, placements=layout.placements | {STAGE: held})


class EmptyLayer(Layer):
    """What another rank has in place of a layer that runs on the master alone: it passes on empty arrays. layer: with an empty
    block of the parameters. before, after: the shapes of an input and of an output sample."""

    def __init__(self, layer, before, after):
        self.before, self.after = before, after
        self.parameters, self.buffers = layer.parameters, layer.buffers

    def forward(self, x, context):
        return xp.empty((0, *self.after), x.dtype)

    def input_gradient(self, dy, context):
        return xp.empty((0, *self.before), dy.dtype)

    def work(self, workload):
        workload.shape = 0, *self.after
