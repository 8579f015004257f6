"""What is known of each kind of layer: how it is placed on ranks, what a rank computes in it, and where its channels travel.

`PLACES` has one row for each class, also for its subclasses: a LayerKind, or a function of a Placer and the layer that places
it. A new layer needs nothing else. Layers that stand for others on a rank, such as HaloConv2d, have a method `work` themselves.
"""

from copy import copy
from functools import partial
from math import prod

import numpy as np

from gridgrad import nn
from gridgrad.nn.kernels import scratch_sizes
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import scattering_cost
from gridgrad.nn.layers.activations import Activation
from gridgrad.nn.layers.pool import Pool2d
from gridgrad.parallel.placement.partition import EMPTY, indices, size
from gridgrad.parallel.placement.placements import PIXELS, AtMaster, C, N, Replicate, Shard

TABLED_KERNELS = 3, 5  # the kernel sizes for which machine files have tables of convolutions
MOST_CHANNELS = 32  # beyond these, poolings get no faster
NEEDED_PASSES = "forward", "gradients"  # of a layer with weights, also where no gradient of the input is needed
PER_CHANNEL = 6  # numbers that a BatchNorm keeps of each channel


class LayerKind:
    """A kind of layer; here one that works element by element. place: a function instead of the method `place`."""

    has_pairs = True  # whether the owners of a layer with weights may divide its pairs of inputs and outputs
    joins_whole: bool | None = None  # of branches: whether all channels are on each rank behind them, see `Placer.branches`

    def __init__(self, place=None):
        if place is not None:
            self.place = place

    def place(self, placer, layer):
        """Append to a Placer what this rank runs for a layer of a serial network."""
        placer.whole_values(layer.name)
        placer.append(copy(layer), layer.name)

    def work(self, workload, layer):
        """Add to a Workload what a rank computes and sends in a layer that was placed."""
        workload.both(type(layer).__name__.lower(), prod(workload.shape))
        workload.keep(0, scratch_sizes.of_activation(prod(workload.shape)))

    def channels(self, walk, layer, array, shape):
        """The output, of this shape, for the walk that makes a hypergraph (`parallel/partitioning/network_hypergraph.py`)."""
        raise ValueError(f"layer {layer.name} {layer!r}: a hypergraph has no rule for a {type(layer).__name__}")


class ByChannel(LayerKind):
    """A layer that computes each channel from the same channel, at its owner."""

    def channels(self, walk, layer, array, shape):
        return walk.by_channel(layer, array, shape)


class WithWeights(LayerKind):
    """A layer whose plans say how its weights are placed."""

    def place(self, placer, layer):
        placer.weights(layer)


class FullyConnected(WithWeights):
    def work(self, workload, layer):
        n, (inputs, outputs) = workload.shape[0], layer.weight.block_shape
        products, traffic = 2 * n * inputs * outputs, n * inputs + inputs * outputs + n * outputs
        sizes = n, inputs, outputs
        works = [workload.compute(phase, f"linear.{phase}", sizes, products, traffic) for phase in NEEDED_PASSES]
        if not workload.first:
            works.append(workload.compute("backward", "linear.input_gradient", sizes, products, traffic))
        workload.keep(0, scratch_sizes.of_linear(n, inputs, outputs, workload.dtype))
        workload.shape = n, outputs
        return works

    def channels(self, walk, layer, array, shape):
        return walk.with_weights(layer, array, shape, walk.neuron_blocks)


class Sparse(FullyConnected):
    """A SparseLinear: each neuron is a vertex, because it needs other inputs than its neighbours."""

    has_pairs = False

    def channels(self, walk, layer, array, shape):
        filled = layer.pattern.sum(axis=0)
        # Without measured seconds: a multiplication and an addition for each weight.
        work = walk.work(layer, shape) if walk.seconds is not None else 2 * filled.sum()
        vertices = walk.vertices(work * filled / max(1, filled.sum()))
        feature, output = np.nonzero(layer.pattern)
        channel = feature // (layer.inputs // len(array.owners))
        walk.needs(array, array.source_of_channel[channel], vertices[output])
        return walk.outputs_at(layer, shape, vertices)


class Autoencoder(WithWeights):
    """A TiedAutoencoder: the products of a Linear layer that encodes, and of one that decodes."""

    def work(self, workload, layer):
        n, (inputs, hidden) = workload.shape[0], layer.weight.block_shape
        products, traffic = 2 * n * inputs * hidden, n * inputs + inputs * hidden + n * hidden
        # The gradient of the weight is one product of twice as many rows: samples above gradients of the output.
        encode, decode, stacked = (n, inputs, hidden), (n, hidden, inputs), (2 * n, inputs, hidden)
        workload.compute("forward", "linear.forward", encode, products, traffic)
        workload.compute("forward", "sigmoid.forward", (n * hidden,), 0, 2 * n * hidden)
        workload.compute("forward", "linear.forward", decode, products, traffic)
        workload.compute("gradients", "linear.input_gradient", decode, products, traffic)
        workload.compute("gradients", "sigmoid.backward", (n * hidden,), 0, 3 * n * hidden)
        workload.compute("gradients", "linear.gradients", stacked, 2 * products, 2 * traffic)
        if not workload.first:
            workload.compute("backward", "linear.input_gradient", encode, products, traffic)
        workload.keep(2 * n * (inputs + hidden))


class Convolution(WithWeights):
    def work(self, workload, layer):
        n, height, width, _ = workload.shape
        kh, kw, inputs, outputs = layer.weight.block_shape
        rows, columns = layer.window.output(height, width)
        pixels = rows * columns
        products = 2 * n * pixels * kh * kw * inputs * outputs
        traffic = prod(workload.shape) + kh * kw * inputs * outputs + n * pixels * outputs
        chosen = algorithm(layer.window, inputs, outputs, rows, columns, workload.dtype, n)
        output_bytes = n * pixels * outputs * workload.itemsize
        workload.streams = chosen.goes_block_by_block and output_bytes >= kernels().fused_bytes
        pixels = chosen.pixels_computed(rows, columns)
        if kh * kw == 1:  # a product of matrices, and nothing else
            operation, sizes, scale = "linear", (n * pixels, inputs, outputs), 1.0
        else:
            kernel = min(TABLED_KERNELS, key=lambda k: abs(k * k - kh * kw))
            operation, sizes, scale = f"conv{kernel}", (n, pixels, inputs, outputs), kh * kw / kernel**2
        works = [workload.compute(phase, f"{operation}.{phase}", sizes, products, traffic, scale) for phase in NEEDED_PASSES]
        if not workload.first:
            # The cost is in units of the input gradient in the tables, whose layers keep the size of the images, where the
            # gradient is itself a convolution; in units of forward where it is added up pixel by pixel.
            cost = chosen.input_gradient_cost(n, height, width, inputs, outputs) if kh * kw > 1 else 1.0
            unit = "forward" if cost == scattering_cost(inputs, outputs) else "input_gradient"
            works.append(workload.compute("backward", f"{operation}.{unit}", sizes, products, traffic, scale * cost))
        workload.convolved = layer.window, workload.shape, outputs, workload.dtype, not workload.first
        workload.keep(0, scratch_sizes.of_convolution(*workload.convolved))
        workload.shape = n, rows, columns, outputs
        return works

    def channels(self, walk, layer, array, shape):
        if walk.fine:
            return walk.with_pairs(layer, array, shape)
        return walk.with_weights(layer, array, shape, walk.filter_blocks)


class Pooling(ByChannel):
    def place(self, placer, layer):
        """It gets a halo where its windows cover rows or columns of other ranks."""
        placer.whole_values(layer.name)
        new = copy(layer)
        new.window, parts, halos = placer.windowed(layer.window)
        for halo in halos:
            placer.append(halo, layer.name)
        placer.at |= parts
        placer.append(new, layer.name)

    def work(self, workload, layer):
        n, height, width, channels = workload.shape
        rows, columns = layer.window.output(height, width)
        # Fused with the convolution in front, see `nn/layers/conv.py`.
        joined = workload.streams and isinstance(layer, nn.MaxPool2d) and type(workload.before) is nn.Conv2d
        elements = n * rows * columns * channels * prod(layer.window.kernel)
        name = "pooled" if joined else type(layer).__name__.lower()
        block = kernels().block_bytes // workload.itemsize if joined else None
        workload.both(name, elements, block=block, more=(min(channels, MOST_CHANNELS),))
        workload.keep(sum(map(prod, layer.mask_shapes(workload.shape).values())) // workload.itemsize)
        if joined:  # the output of the convolution is not kept, and its gradient not passed on
            workload.keep(-prod(workload.shape), scratch_sizes.of_convolution(*workload.convolved, layer.window))
            workload.passed[-1] = 0
        else:
            workload.keep(0, scratch_sizes.of_pooling(layer.window, workload.shape, workload.dtype, layer.is_max_pooling))
        workload.shape = n, rows, columns, channels


class Masked(ByChannel):
    """A Dropout: each rank draws its block of the mask that the serial layer draws."""

    def place(self, placer, layer):
        placer.whole_values(layer.name)
        new, layout, coordinates = copy(layer), placer.layout, placer.grid.coordinates
        new.shape, new.part = placer.shape, layout.sample_block(coordinates)
        new.rows = partial(layout.rows, coordinates=coordinates)
        placer.append(new, layer.name)

    def work(self, workload, layer):
        super().work(workload, layer)
        workload.keep(prod(workload.shape) if layer.p else 0)  # the mask


class BatchNormalisation(ByChannel):
    """Each rank holds its channels; statistics are summed over the axes that shard samples or pixels."""

    def place(self, placer, layer):
        placer.whole_values(layer.name)
        for axis, placement in placer.at.items():
            if placement == Replicate() and not placer.of_axis[axis].sums_gradients:  # each parameter has one owner
                placer.move(axis, placer.shard(axis, C), layer.name)
        apart = [axis for axis, p in placer.at.items() if p.dim not in (None, C) and not isinstance(p, AtMaster)]
        channels = {axis: Shard(0, p.partition) for axis, p in placer.at.items() if p.dim == C}
        channels |= {axis: placer.at_master(axis, layer.gamma) for axis, p in placer.at.items() if isinstance(p, AtMaster)}
        new = GlobalBatchNorm(placer.grid.group(*apart), layer.channels, layer.eps, layer.momentum)
        layout = placer.layout_of(layer.gamma, channels)
        placer.append_block(new.placed(**{p.name: layout for p in (*new.parameters, *new.buffers)}), layer)

    def work(self, workload, layer):
        channels = workload.shape[-1]
        workload.both("batchnorm", prod(workload.shape), 4)
        workload.keep(PER_CHANNEL * channels, scratch_sizes.of_batch_norm(workload.shape))
        if isinstance(layer, GlobalBatchNorm):
            workload.all_reduce_doubles("forward", channels + 1, layer.group)
            workload.all_reduce_doubles("forward", channels, layer.group)
            if not workload.first:  # the sums of backward are for the input's gradient alone
                workload.all_reduce_doubles("backward", 2 * channels, layer.group)


class GlobalBatchNorm(nn.BatchNorm):
    """BatchNorm with the statistics of the global minibatch. group: ranks with other samples or pixels of the same channels."""

    def __init__(self, group, *arguments):
        super().__init__(*arguments)
        self.group = group

    def sum_over_ranks(self, sums):
        self.group.all_reduce(sums, self.name)
        return sums


class ResponseNormalisation(ByChannel):
    """A LocalResponseNorm: where channels are sharded, it gets a halo of the neighbouring channels."""

    def place(self, placer, layer):
        placer.whole_values(layer.name)
        new, channels = copy(layer), placer.shape[-1]
        for axis in placer.sharding(C):
            if not placer.at[axis].partition.is_contiguous:  # neighbouring channels should be on the same rank
                placer.move(axis, placer.shard(axis, C), layer.name)
            owned, rank = placer.at[axis].partition, placer.grid.coordinates[axis]
            needed = owned.mapped(channels, lambda part: layer.neighbours(part, channels) if size(part) else EMPTY)
            mine, seen = owned.part(rank), needed.part(rank)
            if size(mine):
                new.before, new.after = mine.start - seen.start, seen.stop - mine.stop
            halo = placer.redistribution(axis, placer.at[axis].needing(needed))
            if halo.moves("forward"):
                placer.append(halo, layer.name)
        placer.append(new, layer.name)

    def work(self, workload, layer):
        super().work(workload, layer)
        *before, channels = workload.shape
        workload.shape = *before, channels - layer.before - layer.after  # neighbours' channels end here

    def channels(self, walk, layer, array, shape):
        """The owner of a channel needs its neighbours, too."""
        channels = shape[-1]  # or features: several of each channel behind a Flatten
        near = [indices(layer.neighbours(slice(c, c + 1), channels)) for c in range(channels)]
        channel = np.concatenate(near) // (channels // len(array.owners))
        owner = np.repeat(array.owners_of_features, [len(some) for some in near])
        walk.needs(array, array.source_of_channel[channel], owner)
        return super().channels(walk, layer, array, shape)


class Flattening(ByChannel):
    """A Flatten: parts of images become shards of the samples; shards of channels become shards of the features."""

    def place(self, placer, layer):
        placer.whole_values(layer.name)
        if len(placer.shape) == 1:
            return
        for axis in placer.sharding(*PIXELS):
            placer.move(axis, placer.shard(axis, N), layer.name)
        placer.append(copy(layer), layer.name)
        pixels = placer.shape[0] * placer.shape[1]
        placer.at |= {axis: Shard(C, p.partition.grouped(pixels)) for axis, p in placer.at.items() if p.dim == C}

    def work(self, workload, layer):
        if len(workload.shape) > 2:
            workload.both("flatten", prod(workload.shape))
            workload.shape = workload.shape[0], prod(workload.shape[1:])
        else:  # it returns its input
            workload.keep(-prod(workload.shape))


class Added(LayerKind):
    """A Residual: both branches end in the same placement, so that they can be added."""

    joins_whole = False

    def place(self, placer, layer):
        branch, shortcut = placer.branches(layer.children, layer.name, self.joins_whole)
        placer.layers.append(layer.of_branches([branch.layers, shortcut.layers]))

    def work(self, workload, layer):
        workload.branches(layer)
        workload.both("add", prod(workload.shape), 3)
        if layer.children[0] and layer.children[0][-1].overwrites_gradient:
            workload.keep(prod(workload.shape))  # the gradient, which the shortcut needs too

    def channels(self, walk, layer, array, shape):
        """The channels of the shortcut travel to where those of the branch are."""
        array = array.after(array.shape)  # what stands around it gets the channels that it needs by itself
        branch, shortcut = (walk.through(branch, array) for branch in layer.children)
        if branch.is_free and shortcut.is_free:
            return branch.after(shape)
        owners = branch.owned(layer)
        channel = np.arange(shape[-1]) // (shape[-1] // len(shortcut.owners))
        walk.needs(shortcut, shortcut.source_of_channel[channel], owners)
        return walk.made_by(layer, shape, owners)


class SideBySide(LayerKind):
    """A Concat: all branches end in the same placement, with all channels on each rank, or with those that it owns."""

    joins_whole = True

    def place(self, placer, layer):
        branches = placer.branches(layer.children, layer.name, self.joins_whole)
        for axis, plan in placer.of_axis.items():
            plan.join(placer, axis, branches, layer.name)
        placer.layers.append(layer.of_branches([branch.layers for branch in branches]))

    def work(self, workload, layer):
        channels = [shape[-1] for shape in workload.branches(layer)]
        workload.shape = *workload.shape[:-1], sum(channels)
        workload.both("copy", prod(workload.shape))
        workload.keep(prod(workload.shape[:-1]) * max(channels))  # the gradient of a branch's output

    def channels(self, walk, layer, array, shape):
        """Each channel stays where its branch has made it."""
        array = array.after(array.shape)
        ends = [walk.through(branch, array) for branch in layer.children]
        is_free = all(end.is_free for end in ends)
        owners = [end.owners_of_features if is_free else end.owned(layer) for end in ends]
        return walk.made_by(layer, shape, np.concatenate(owners))


PLACES = {
    nn.Linear: FullyConnected(),
    nn.SparseLinear: Sparse(),
    nn.Conv2d: Convolution(),
    nn.TiedAutoencoder: Autoencoder(),
    Pool2d: Pooling(),
    nn.Dropout: Masked(),
    nn.BatchNorm: BatchNormalisation(),
    nn.LocalResponseNorm: ResponseNormalisation(),
    nn.Flatten: Flattening(),
    nn.Residual: Added(),
    nn.Concat: SideBySide(),
    Activation: ByChannel(),
}


def kind_of(layer):
    """The LayerKind of a layer; ValueError for a class without a row."""
    row = next((PLACES[base] for base in type(layer).__mro__ if base in PLACES), None)
    if row is None:
        raise ValueError(f"layer {layer.name} {layer!r}: there is no rule how to place a {type(layer).__name__}")
    return row if isinstance(row, LayerKind) else LayerKind(row)
