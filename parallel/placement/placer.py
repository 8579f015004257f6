"""From the layers of a serial network to those of one rank: layer by layer, with the redistributions between them."""

from copy import copy
from functools import partial

from nn import BatchNorm, Concat, Conv2d, Dropout, Flatten, Linear, LocalResponseNorm, Residual
from nn.activations import Activation
from nn.device import is_cpu
from nn.pool import Pool2d
from parallel.placement.gathered_linear import GatheredLinear
from parallel.placement.halo import Halo, HaloConv2d
from parallel.placement.laugier import CopyThenReduce, GatherThenSlice
from parallel.placement.layout import Layout, parts_of_features
from parallel.placement.placements import C, H, N, Partial, Replicate, Shard
from parallel.placement.plans import INPUT, OUTPUT, route
from parallel.placement.redistribute import Redistribute
from parallel.placement.partition import size, split


class Placer:
    """Walks through a network and knows how the activations lie on the axes besides `batch`.

    grid: a ProcessGrid. choices: {axis: {layer: choice}} for the layers with weights, see `parallel/placement/plans.py`.
    shape: of a sample here. at: {axis: placement} here. unit: how many features stay together. order: the axes that
    split the samples, outermost first. layers: what was placed so far.
    """

    def __init__(self, grid, choices, shape, at, unit=1, order=None):
        self.grid, self.choices, self.shape, self.at, self.unit = grid, choices, shape, dict(at), unit
        self.order = tuple(axis for axis in at if self._splits_samples(axis, at[axis])) if order is None else order
        self.layers = []

    @property
    def layout(self):
        return Layout(self.grid.sizes, dict(self.at), self.shape, self.unit, self.order)

    def _splits_samples(self, axis, placement):
        return placement == Shard(N) and self.grid.sizes[axis] > 1

    def place(self, layers):
        """Place the layers one after another. ValueError for a kind of layer that there is no rule for."""
        for layer in layers:
            kind = next((kind for kind in type(layer).__mro__ if kind in PLACES), None)
            if kind is None:
                raise ValueError(f"layer {layer.name} {layer!r}: there is no rule how to place a {type(layer).__name__}")
            PLACES[kind](self, layer)
            self.shape = layer.output_shape(self.shape)

    def finish(self):
        """Bring the outputs to where the loss is computed: each rank has samples of its own."""
        for axis, placement in self.at.items():
            if placement != Replicate():
                self.move(axis, Shard(N), "output")

    def move(self, axis, target, name):
        """Append what brings the activations to `target` along an axis."""
        source = self.at[axis]
        if source == target:
            return
        inner = self.order[self.order.index(axis) + 1 :] if axis in self.order else ()
        for other in reversed(inner):  # their parts are parts of what this axis is about to put together
            self.move(other, Replicate(), name)
        for a, b in route(source, target):
            self._append_move(axis, a, b, name)
        for other in inner:
            self.move(other, Shard(N), name)

    def _append_move(self, axis, source, target, name):
        outer = self.order[: self.order.index(axis)] if axis in self.order else self.order
        if self.grid.sizes[axis] > 1:
            rows = partial(self.layout.rows_within, ("batch", *outer), coordinates=self.grid.coordinates)
            move = Redistribute(self.grid.group(axis), source, target, self.shape, rows, self.unit)
            self._append(move, name)
        self.at[axis] = target
        self.order = outer + ((axis,) if self._splits_samples(axis, target) else ())

    def _append(self, layer, name):
        layer.give_name(name)
        self.layers.append(layer)

    def whole_values(self, name):
        """What is elementwise, or compares, can not work on addends: sum them."""
        for axis, placement in self.at.items():
            if placement == Partial():
                self.move(axis, Shard(C), name)

    # ----- one method a kind of layer

    def weights(self, layer):
        for axis in self.at:
            self.move(axis, INPUT[self.choices[axis][layer]], layer.name)
        choice, group = self.choices["model"][layer], self.grid.group("model")
        whole = choice == "laugier" and group.size > 1
        if whole:
            self._append(CopyThenReduce(group, self.shape), layer.name)
        block = self._block(layer, choice, group)
        if self.layers and self._hides_gather(self.layers[-1], block):
            block = GatheredLinear(self.layers.pop(), block)
        axis = self._height_axis()
        if axis and isinstance(layer, Conv2d):
            owned, needed, block.window, rows = self._strips(axis, layer.window)
            halo = Halo(self.grid.group(axis), H, owned, needed)
            block = block if halo.moves_nothing else HaloConv2d(block, halo, rows)
        self._append(block, layer.name)
        for axis in self.at:
            self.at[axis] = OUTPUT[self.choices[axis][layer]]
        if whole:
            self._append(GatherThenSlice(group, layer.output_shape(self.shape)), layer.name)
        self.unit = 1

    def _hides_gather(self, before, block):
        """Whether an all-gather goes on behind the products of the Linear that it is for: where it crosses a network."""
        gathers = isinstance(before, Redistribute) and (before.source, before.target) == (Shard(C), Replicate())
        return gathers and isinstance(block, Linear) and is_cpu() and self.grid.spans_nodes("model")

    def _block(self, layer, choice, group):
        """The block of a Linear or Conv2d that this rank of the model axis holds."""
        inputs, outputs = (slice(0, n) for n in layer.weight.shape[-2:])
        rows, columns, biases = [inputs], [outputs], [outputs]
        if choice == "in":
            rows = parts_of_features(layer.weight.shape[-2], self.unit, group.size)
            # The bias is an addend too: one rank adds it.
            columns, biases = [outputs] * group.size, [outputs, *[slice(0, 0)] * (group.size - 1)]
        elif choice in ("out", "laugier"):
            columns = biases = split(outputs.stop, group.size)
            rows = [inputs] * group.size
        me = group.rank if len(rows) > 1 else 0
        if isinstance(layer, Conv2d):
            block = Conv2d(layer.inputs, layer.outputs, layer.window.kernel, layer.window.stride, layer.window.padding,
                           layer.has_bias, rows[me], columns[me], biases[me])  # fmt: skip
        else:
            block = Linear(layer.inputs, layer.outputs, rows[me], columns[me], biases[me])
        if len(rows) > 1:
            kernel = block.weight.index[:-2]
            block.weight.indices = [(*kernel, r, c) for r, c in zip(rows, columns)]
            block.bias.indices = [(b,) for b in biases]
        return block

    def _height_axis(self):
        """The axis of more than one rank along which images are split into strips, or None."""
        return next((axis for axis, p in self.at.items() if p == Shard(H) and self.grid.sizes[axis] > 1), None)

    def _strips(self, axis, window):
        """(owned, needed, window of this rank's strip, rows of its output) of a window over strips."""
        group, height = self.grid.group(axis), self.shape[0]
        outputs = split(window.output(*self.shape[:2])[0], group.size)
        needed = [window.input_rows(rows, height) for rows in outputs]
        mine = outputs[group.rank]
        return split(height, group.size), needed, window.of_rows(mine, height), size(mine)

    def pool(self, layer):
        self.whole_values(layer.name)
        new = copy(layer)
        if axis := self._height_axis():
            owned, needed, new.window, _ = self._strips(axis, layer.window)
            halo = Halo(self.grid.group(axis), H, owned, needed)
            if not halo.moves_nothing:
                self._append(halo, layer.name)
        self._append(new, layer.name)

    def elementwise(self, layer):
        self.whole_values(layer.name)
        self._append(copy(layer), layer.name)

    def dropout(self, layer):
        self.whole_values(layer.name)
        new, layout, coordinates = copy(layer), self.layout, self.grid.coordinates
        new.shape, new.block = self.shape, layout.block(coordinates)
        new.rows = partial(layout.rows, coordinates=coordinates)
        self._append(new, layer.name)

    def batch_norm(self, layer):
        self.whole_values(layer.name)
        apart = [axis for axis, placement in self.at.items() if placement in (Shard(N), Shard(H))]
        group = self.grid.group("batch", *apart)
        if self.at["model"] == Shard(C):
            columns = parts_of_features(self.shape[-1], self.unit, self.grid.sizes["model"])
            new = GlobalBatchNorm(group, layer.channels, layer.eps, layer.momentum, columns[self.grid.coordinates["model"]])
            for array in (*new.parameters, *new.buffers):
                array.indices = [(part,) for part in columns]
        else:
            new = GlobalBatchNorm(group, layer.channels, layer.eps, layer.momentum)
        self._append(new, layer.name)

    def response_norm(self, layer):
        self.whole_values(layer.name)
        new, group = copy(layer), self.grid.group("model")
        if self.at["model"] == Shard(C) and group.size > 1:
            channels = self.shape[-1]
            owned = parts_of_features(channels, self.unit, group.size)
            needed = [
                slice(max(0, own.start - layer.size // 2), min(channels, own.stop + (layer.size - 1) // 2))
                if size(own)
                else slice(0, 0)
                for own in owned
            ]
            mine, seen = owned[group.rank], needed[group.rank]
            if size(mine):
                new.before, new.after = mine.start - seen.start, seen.stop - mine.stop
            halo = Halo(group, C, owned, needed)
            if not halo.moves_nothing:
                self._append(halo, layer.name)
        self._append(new, layer.name)

    def flatten(self, layer):
        self.whole_values(layer.name)
        if len(self.shape) == 1:
            return
        for axis, placement in self.at.items():
            if placement == Shard(H):
                self.move(axis, Shard(N), layer.name)
        self._append(copy(layer), layer.name)
        self.unit = self.shape[0] * self.shape[1]

    def residual(self, layer):
        branch, shortcut = self._branches((layer.branch, layer.shortcut), layer.name)
        self._append_whole(Residual(branch.layers, shortcut.layers), layer.name)

    def concat(self, layer):
        branches = self._branches(layer.branches, layer.name, whole_channels=True)
        self._append_whole(Concat(*(branch.layers for branch in branches)), layer.name)

    def _append_whole(self, container, name):
        """Append what holds branches, whose layers have their names."""
        container.name = name
        self.layers.append(container)

    def _branches(self, branches, name, whole_channels=False):
        """Place each branch from here; all end as the first does, with no addends and, if asked for, all channels."""
        placers = []
        for layers in branches:
            placer = Placer(self.grid, self.choices, self.shape, self.at, self.unit, self.order)
            placer.place(layers)
            if not placers:
                placer.whole_values(name)
                for axis, placement in placer.at.items():
                    if whole_channels and placement == Shard(C):
                        placer.move(axis, Shard(N), name)
            else:
                placer._end_as(placers[0], name)
            placers.append(placer)
        self.at, self.order = placers[0].at, placers[0].order
        self.unit = 1 if whole_channels else placers[0].unit
        return placers

    def _end_as(self, other, name):
        """Append what brings the activations to where another placer left its own."""
        for axis in other.at:
            if self.at[axis] == Shard(C) and self.unit != other.unit:  # blocks of features with other borders
                self.move(axis, Shard(N), name)
        self.unit = other.unit
        for axis, placement in other.at.items():
            self.move(axis, placement, name)
        if self.order != other.order:
            for axis in reversed(self.order):
                self.move(axis, Replicate(), name)
            for axis in other.order:
                self.move(axis, Shard(N), name)


PLACES = {
    Linear: Placer.weights,
    Conv2d: Placer.weights,
    Pool2d: Placer.pool,
    Dropout: Placer.dropout,
    BatchNorm: Placer.batch_norm,
    LocalResponseNorm: Placer.response_norm,
    Flatten: Placer.flatten,
    Residual: Placer.residual,
    Concat: Placer.concat,
    Activation: Placer.elementwise,
}


class GlobalBatchNorm(BatchNorm):
    """BatchNorm with the statistics of the global minibatch. group: the ranks that hold other samples or pixels."""

    def __init__(self, group, *arguments):
        super().__init__(*arguments)
        self.group = group

    def total(self, sums):
        self.group.all_reduce(sums, self.name)
        return sums
