"""The workload of one rank in a training step: its operations and the collectives that it takes part in.

The list is made from the layers that the rank would run, which `parallel/placement/placer.py` places for running and for
pricing alike. So blocks, redistributions, halos and gradient reductions are those of a real step. Nothing is computed and no
array is allocated.
"""

from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import groupby, pairwise
from math import prod

import numpy as np

from gridgrad.nn import (
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    Residual,
    TiedAutoencoder,
)
from gridgrad.nn.kernels import scratch_sizes
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.patches import scattering_cost
from gridgrad.nn.kernels.table_in_use import kernels
from gridgrad.nn.layers.activations import Activation
from gridgrad.nn.layers.pool import Pool2d
from gridgrad.nn.sequence import has_parameters, leaves
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.group import MAX_ELEMENTS
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.placement.gathered_linear import GatheredLinear
from gridgrad.parallel.placement.halo_conv import HaloConv2d
from gridgrad.parallel.placement.partition import size
from gridgrad.parallel.placement.placer import EmptyLayer
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.hypergraph import PairedLayer
from gridgrad.parallel.plans.marques import AddBias, HandedConv2d
from gridgrad.parallel.prediction.step_prediction import memory_of

KERNELS = 3, 5  # the kernel sizes for which machine files have tables of convolutions
LONGEST_RUN, MOST_CHANNELS = 1024, 32  # beyond these, copies and poolings get no faster
GRADIENT_BUFFERS = 2  # for gradients of activations: that of a layer's output and that of its input; one more in branches
LOSS = 3  # numbers that ranks sum with the loss: its value, and two that tell whether all have as many samples
PER_CHANNEL = 6  # numbers that a BatchNorm keeps of each channel


@dataclass(frozen=True)
class Work:
    """One operation that a rank computes in a step, or one collective that it takes part in.

    layer: the name of the layer that it belongs to. phase: "forward", "gradients" (of the parameters), "backward" (the gradient
    of the input), "update" or "loss".
    Of an operation: name, sizes: the table of the machine file that has its time, and where in the table; scale: a factor on
    that time; flops: its arithmetic; nbytes: its memory traffic in bytes.
    Of a collective: name: its kind; group: its ranks; nbytes: the bytes that this rank sends; most: the bytes of the rank that
    sends or receives the most, where that is known and more; behind: the Works that it overlaps with, during which the MPI
    library is called so that it makes progress; step: of one that moves activations or kernels, the Move of
    `parallel/placement/moves.py`, which knows its messages.
    """

    layer: str
    phase: str
    name: str
    sizes: tuple = ()
    flops: float = 0.0
    nbytes: float = 0.0
    scale: float = 1.0
    group: object = None
    most: float = 0.0
    behind: tuple = ()
    step: object = None

    @property
    def is_exchange(self):
        """Whether ranks send each other messages, and each waits for its own alone."""
        return self.name == "exchange"

    def messages(self, itemsize=4):
        """The messages of this rank, {rank of the group: bytes}; None where all ranks work together in an algorithm.

        itemsize: bytes of a number.
        """
        counts = self.step and self.step.messages
        return None if counts is None else {rank: count * itemsize for rank, count in enumerate(counts) if count}

    def seconds(self, machine, ranks, itemsize=4):
        """Predicted seconds on a Machine of which `ranks` ranks are in use. itemsize: bytes of a number."""
        if self.group is None:
            seconds = machine.operation_seconds(self.name, self.sizes, self.scale, self.flops, self.nbytes, itemsize, ranks)
            return seconds + machine.core.get("step", 0.0) * (self.name == "loss")
        hidden = sum(work.seconds(machine, ranks, itemsize) for work in self.behind)
        nbytes = max(self.nbytes, self.most)
        seconds = machine.collective_seconds(self.name, self.group, ranks, nbytes) + machine.core.get("wait", 0.0)
        return max(0.0, seconds - hidden)


class Workload:
    """The Works of one rank, collected layer by layer.

    shape: of this rank's block of the activations at the current layer, samples first. batch_size: of the global minibatch.
    itemsize: bytes of a number.

    works: all Works so far, in the order of the forward pass, each layer's backward behind its forward.
    elements: number of elements that are kept for backward: activations that no layer overwrites, masks, buffers of messages.
    passed: for each layer, those of the gradient that it passes on in one of the `buffers` that all use in turn. postponed:
    those of gradients that are kept where the gradients of parameters come later. scratch: {name: elements of the memory that
    layers work in}. parameters: number of elements that are held and updated.
    """

    def __init__(self, shape, batch_size, itemsize=4):
        self.shape, self.batch_size, self.itemsize = tuple(shape), batch_size, itemsize
        self.dtype = np.dtype(f"f{itemsize}")
        self.works, self.elements, self.parameters = [], prod(shape), 0
        self.passed, self.buffers, self.postponed, self.scratch = [], GRADIENT_BUFFERS, 0, {}
        self.starts = []  # where in `works` those of each layer begin, and where those of all layers end
        self.name = None  # of the layer whose work is added
        self.before, self.streams = None, False  # the previous layer; whether its outputs are still in the cache
        self.first = True  # no layer so far has parameters, so that no gradient of the input is needed

    def go(self, layers):
        """Add the forward and backward work of layers that run one after another."""
        self.before = None
        for layer in layers:
            outer, self.name = self.name, layer.name
            self.starts.append(len(self.works))
            kind = next(kind for kind in type(layer).__mro__ if kind in RULES)
            self.passed.append(prod(self.shape) if layer.passes_buffer and not self.first else 0)
            has_output = layer.has_own_output(self.before)
            RULES[kind](self, layer)
            self.keep(prod(self.shape) if has_output else 0)
            self.postponed += prod(self.shape) if layer.parameters else 0
            if self.first and has_parameters(layer):
                self.first = False
            self.name, self.before = outer, layer
        self.starts.append(len(self.works))  # what a layer adds behind its branches is a layer of its own

    def step(self, layers, grid):
        """Add a whole training step: all layers of a network, the loss, the gradient reductions and the update."""
        self.go(layers)
        self.loss(grid)
        self.update(layers, grid)

    @property
    def executed(self):
        """The Works of a whole step in the order in which they are executed.

        These are: forward, the loss, the beginning of the sum of its value, backward, the gradient reductions, the update.
        """
        layers = [self.works[start:stop] for start, stop in pairwise(self.starts)]
        forward = [work for works in layers for work in works if work.phase == "forward"]
        backward = [work for works in reversed(layers) for work in works if work.phase != "forward"]
        rest = self.works[self.starts[-1] :]
        loss = [work for work in rest if work.phase == "loss"]
        return forward + loss + backward + [work for work in rest if work.phase != "loss"]

    def seconds(self, machine, ranks):
        """Predicted seconds of all Works so far on a Machine of which `ranks` ranks are in use."""
        return sum(work.seconds(machine, ranks, self.itemsize) for work in self.works)

    @property
    def memory_of(self):
        """{what: bytes} that the rank needs, see `memory_of` of `parallel/prediction/step_prediction.py`."""
        return memory_of(self.itemsize, self.parameters, self.elements, *self.shared)

    @property
    def shared(self):
        """Elements of what layers use in turn: the buffers for gradients of activations, and the memory that they work in."""
        return sum(nlargest(self.buffers, self.passed)), sum(self.scratch.values())

    def loss(self, grid):
        """Add the loss: its own computation, and the all-reduce of its value, which overlaps with backward."""
        self.name = "loss"
        self.keep(prod(self.shape))
        self.compute("loss", "loss", (prod(self.shape),), 0, 4 * prod(self.shape))
        backward = tuple(work for work in self.works if work.group is None and work.phase in ("gradients", "backward"))
        self.all_reduce_doubles("loss", LOSS, grid.group(*AXES), backward)

    def update(self, layers, grid):
        """Add the reductions of the gradients of these layers, and the update of their parameters."""
        self.name = "gradients"
        for group, elements in gradient_sums(layers, grid):
            self.communicate("update", "all-reduce", group, all_reduce_elements(elements, group.size, group.rank))
        self.name = "update"
        parameters = sum(p.size for leaf in leaves(layers) for p in leaf.parameters)
        self.compute("update", "update", (parameters,), 4 * parameters, 5 * parameters)
        self.parameters += parameters

    # ----- adding one operation or collective

    def keep(self, elements, scratch=None):
        """Count elements that are kept, and the scratch memory that a layer works in, {name: elements}."""
        self.elements += elements
        self.scratch = scratch_sizes.largest(self.scratch, scratch or {})

    def compute(self, phase, name, sizes, flops, elements, scale=1.0):
        self.works.append(Work(self.name, phase, name, sizes, flops, elements * self.itemsize, scale))
        return self.works[-1]

    def communicate(self, phase, kind, group, elements, behind=(), most=0, step=None):
        if group.size > 1:
            nbytes, most = round(elements * self.itemsize), most * self.itemsize
            self.works.append(Work(self.name, phase, kind, nbytes=nbytes, group=group, most=most, behind=behind, step=step))

    def both(self, name, elements, arrays=2, block=None, more=()):
        """Add forward and backward of a layer that only passes over its elements.

        arrays: how many arrays of that size forward reads and writes; backward has one more. block: elements that are processed
        at a time, by default all. more: further sizes that the layer's table depends on.
        """
        sizes, scale = (block or elements, *more), elements / block if block else 1.0
        self.compute("forward", f"{name}.forward", sizes, 0, arrays * elements, scale)
        if not self.first:
            self.compute("backward", f"{name}.backward", sizes, 0, (arrays + 1) * elements, scale)

    def pack(self, phase, elements, run):
        """Add a copy into or out of a message buffer. run: how many elements lie side by side."""
        self.compute(phase, "pack", (elements, min(max(run, 1), LONGEST_RUN)), 0, 2 * elements)

    def all_reduce_doubles(self, phase, numbers, group, behind=()):
        self.communicate(
            phase, "all-reduce", group, all_reduce_elements(numbers, group.size, group.rank) * 8 / self.itemsize, behind
        )

    # ----- one method for each kind of layer

    def linear(self, layer):
        n, (inputs, outputs) = self.shape[0], layer.weight.block_shape
        products, traffic = 2 * n * inputs * outputs, n * inputs + inputs * outputs + n * outputs
        sizes = n, inputs, outputs
        works = [self.compute("forward", "linear.forward", sizes, products, traffic)]
        works.append(self.compute("gradients", "linear.gradients", sizes, products, traffic))
        if not self.first:
            works.append(self.compute("backward", "linear.input_gradient", sizes, products, traffic))
        self.keep(0, scratch_sizes.of_linear(n, inputs, outputs, self.dtype))
        self.shape = n, outputs
        return works

    def autoencoder(self, layer):
        """A TiedAutoencoder: the products of a Linear layer that encodes, and of one that decodes.

        The gradient of the weight is one product of twice as many rows, for which the samples and the gradients of the output
        are copied one below the other. The passes over the hidden units are those of a Sigmoid.
        """
        n, (inputs, hidden) = self.shape[0], layer.weight.block_shape
        products, traffic = 2 * n * inputs * hidden, n * inputs + inputs * hidden + n * hidden
        encode, decode, stacked = (n, inputs, hidden), (n, hidden, inputs), (2 * n, inputs, hidden)
        self.compute("forward", "linear.forward", encode, products, traffic)
        self.compute("forward", "sigmoid.forward", (n * hidden,), 0, 2 * n * hidden)
        self.compute("forward", "linear.forward", decode, products, traffic)
        self.compute("gradients", "linear.input_gradient", decode, products, traffic)
        self.compute("gradients", "sigmoid.backward", (n * hidden,), 0, 3 * n * hidden)
        self.compute("gradients", "linear.gradients", stacked, 2 * products, 2 * traffic)
        if not self.first:
            self.compute("backward", "linear.input_gradient", encode, products, traffic)
        self.keep(2 * n * (inputs + hidden))

    def convolution(self, layer):
        n, height, width, _ = self.shape
        kh, kw, inputs, outputs = layer.weight.block_shape
        rows, columns = layer.window.output(height, width)
        pixels = rows * columns
        products = 2 * n * pixels * kh * kw * inputs * outputs
        traffic = prod(self.shape) + kh * kw * inputs * outputs + n * pixels * outputs
        chosen = algorithm(layer.window, inputs, outputs, rows, columns, self.dtype, n)
        self.streams = chosen.goes_block_by_block and n * pixels * outputs * self.itemsize >= kernels().fused_bytes
        pixels = chosen.pixels_computed(rows, columns)
        if kh * kw == 1:  # a product of matrices, and nothing else
            operation, sizes, scale = "linear", (n * pixels, inputs, outputs), 1.0
        else:
            kernel = min(KERNELS, key=lambda k: abs(k * k - kh * kw))
            operation, sizes, scale = f"conv{kernel}", (n, pixels, inputs, outputs), kh * kw / kernel**2
        works = [
            self.compute(phase, f"{operation}.{phase}", sizes, products, traffic, scale) for phase in ("forward", "gradients")
        ]
        if not self.first:
            # The cost is in units of the input gradient in the tables, whose layers keep the size of the images, where the
            # gradient is itself a convolution; in units of forward where it is added up pixel by pixel.
            cost = chosen.input_gradient_cost(n, height, width, inputs, outputs) if kh * kw > 1 else 1.0
            unit = "forward" if cost == scattering_cost(inputs, outputs) else "input_gradient"
            works.append(self.compute("backward", f"{operation}.{unit}", sizes, products, traffic, scale * cost))
        self.convolved = layer.window, self.shape, outputs, self.dtype, not self.first
        self.keep(0, scratch_sizes.of_convolution(*self.convolved))
        self.shape = n, rows, columns, outputs
        return works

    def pool(self, layer):
        rows, columns = layer.window.output(*self.shape[1:3])
        joined = self.streams and isinstance(layer, MaxPool2d) and type(self.before) is Conv2d  # see `nn/layers/conv_pool.py`
        elements = self.shape[0] * rows * columns * self.shape[3] * prod(layer.window.kernel)
        name, block = ("pooled", kernels().block_bytes // self.itemsize) if joined else (type(layer).__name__.lower(), None)
        self.both(name, elements, block=block, more=(min(self.shape[3], MOST_CHANNELS),))
        self.keep(sum(map(prod, layer.mask_shapes(self.shape).values())) // self.itemsize)
        if joined:  # the output of the convolution is not kept, and its gradient not passed on
            self.keep(-prod(self.shape), scratch_sizes.of_convolution(*self.convolved, layer.window))
            self.passed[-1] = 0
        else:
            self.keep(0, scratch_sizes.of_pooling(layer.window, self.shape, self.dtype, layer.is_max_pooling))
        self.shape = self.shape[0], rows, columns, self.shape[3]

    def elementwise(self, layer):
        self.both(type(layer).__name__.lower(), prod(self.shape))
        self.keep(0, scratch_sizes.of_activation(prod(self.shape)))

    def dropout(self, layer):
        self.elementwise(layer)
        self.keep(prod(self.shape) if layer.p else 0)  # the mask

    def response_norm(self, layer):
        self.elementwise(layer)
        self.shape = *self.shape[:-1], self.shape[-1] - layer.before - layer.after  # neighbours' channels end here

    def batch_norm(self, layer):
        self.both("batchnorm", prod(self.shape), 4)
        self.keep(PER_CHANNEL * self.shape[-1], scratch_sizes.of_batch_norm(self.shape))
        if hasattr(layer, "group"):
            channels = self.shape[-1]
            for phase, numbers in (("forward", channels + 1), ("forward", channels), ("backward", 2 * channels)):
                if phase == "forward" or not self.first:  # the sums of backward are for the input's gradient alone
                    self.all_reduce_doubles(phase, numbers, layer.group)

    def flatten(self, layer):
        if len(self.shape) > 2:
            self.both("flatten", prod(self.shape))
            self.shape = self.shape[0], prod(self.shape[1:])
        else:  # it returns its input
            self.keep(-prod(self.shape))

    def residual(self, layer):
        self.branches(layer)
        self.both("add", prod(self.shape), 3)
        if layer.children[0] and layer.children[0][-1].overwrites_gradient:
            self.keep(prod(self.shape))  # the gradient, which the shortcut needs too

    def concat(self, layer):
        shapes = self.branches(layer)
        channels = sum(shape[-1] for shape in shapes)
        self.shape = *self.shape[:-1], channels
        self.both("copy", prod(self.shape))
        self.keep(prod(self.shape[:-1]) * max(shape[-1] for shape in shapes))  # the gradient of a branch's output

    def branches(self, layer):
        """Add the work of the branches of a layer; returns the shapes of their outputs.

        Each branch begins as the layer does: no gradient of the input is needed before its own first parameters if none is
        needed before the layer.
        """
        before, first, shapes, self.buffers = self.shape, self.first, [], GRADIENT_BUFFERS + 1
        for branch in layer.children:
            self.shape, self.first = before, first
            self.go(branch)
            shapes.append(self.shape)
        self.first = first
        return shapes

    def redistribute(self, move):
        """A layer that only communicates: forward, and backward where a gradient of the input is needed."""
        self.shape = self.moved("forward", move)
        if not self.first:
            self.moved("backward", move, self.shape)

    def moved(self, direction, move, shape=None, phase=None):
        """Add one direction of a Redistribute; returns the shape of the block after it.

        shape: of the block before it, by default the current one. phase: of its Works, by default the direction.
        """
        phase = phase or direction
        step = move.step(direction, self.shape if shape is None else shape, self.batch_size)
        if step is None:
            return self.shape if shape is None else shape
        packed, unpacked = step.copies
        self.keep(step.held)
        for run, elements in packed.items():
            self.pack(phase, elements, run)
        if step.kind:
            self.communicate(phase, step.kind, move.group, step.sent, most=step.most, step=step)
        for run, elements in unpacked.items():
            self.pack(phase, elements, run)
        return step.there

    def halo_convolution(self, layer):
        before = self.shape
        self.shape = layer.halo.step("forward", before, self.batch_size).there
        forward, *_ = self.convolution(layer.conv)
        after, self.shape = self.shape, before
        # The outputs that need no halo; the others are computed in a separate call.
        share = size(layer.inner) / max(after[layer.dim], 1)
        if 0 < share < 1 and len(forward.sizes) == 4:
            n, pixels, *channels = forward.sizes
            parts = [
                replace(forward, sizes=(n, pixels * p, *channels), flops=forward.flops * p, nbytes=forward.nbytes * p)
                for p in (share, 1 - share)
            ]
            self.works[self.works.index(forward)] = parts[0]
            self.works.append(parts[1])
        self.redistribute(layer.halo)
        self.keep(0 if self.first else -prod(before))  # the gradient of the input is passed on
        self.shape = after

    def gathered(self, layer):
        """A GatheredLinear: its all-gather and, in backward, its reduce-scatter, which overlaps with the weights' gradient."""
        forward = layer.move.step("forward", self.shape, self.batch_size)
        self.shape = forward.there
        self.communicate("forward", forward.kind, layer.group, forward.sent)
        _, *back = self.linear(layer.linear)
        # The gathered blocks, the product with one of them, and the terms of the gradient that are sent and received.
        self.keep((1 if self.first else 3) * prod(forward.there) + prod(self.shape))
        if not self.first:
            backward = layer.move.step("backward", forward.there, self.batch_size)
            self.communicate("backward", backward.kind, layer.group, backward.sent, tuple(back[:1]))

    def handed_convolution(self, layer):
        """A HandedConv2d: its kernels come from the master, and their gradients return to it."""
        held = self.moved("forward", layer.kernels, layer.weight.block_shape)
        self.convolution(layer.conv)
        self.moved("backward", layer.kernels, held, "gradients")

    def paired(self, layer):
        """A PairedLayer: the products of its rectangles, zeros included, and copies of their kernels and of parts of arrays."""
        before = self.shape
        for product in layer.products:
            block = product.block
            self.shape = *before[:-1], block.weight.block_shape[-2]
            self.convolution(block) if block.kind == "conv" else self.linear(block)
            copied = block.weight.size + (0 if layer.is_one else prod(before) + prod(self.shape))
            self.pack("forward", copied, self.shape[-1])
            self.pack("gradients", copied, self.shape[-1])
            self.keep(block.weight.size + copied)  # the kernel and its gradient, and parts of arrays
        self.keep(0 if layer.is_one or self.first else prod(before))  # the gradient of the input
        self.shape = before[0], *layer.after[:-1], layer.made

    def add_bias(self, layer):
        self.both("add", prod(self.shape))

    def empty_layer(self, layer):
        self.shape = 0, *layer.after


RULES = {
    Linear: Workload.linear,
    Conv2d: Workload.convolution,
    TiedAutoencoder: Workload.autoencoder,
    Pool2d: Workload.pool,
    Dropout: Workload.dropout,
    BatchNorm: Workload.batch_norm,
    LocalResponseNorm: Workload.response_norm,
    Flatten: Workload.flatten,
    Residual: Workload.residual,
    Concat: Workload.concat,
    Activation: Workload.elementwise,
    Redistribute: Workload.redistribute,
    HaloConv2d: Workload.halo_convolution,
    GatheredLinear: Workload.gathered,
    HandedConv2d: Workload.handed_convolution,
    PairedLayer: Workload.paired,
    AddBias: Workload.add_bias,
    EmptyLayer: Workload.empty_layer,
}


def gradient_sums(layers, grid):
    """Yields (group, elements) of each all-reduce of the layers' gradients, as `parallel/sync/reduction.py` does them."""
    parameters = [p for leaf in leaves(layers) for p in leaf.parameters]
    for (summed, _), run in groupby(parameters, key=lambda p: p.layout.sharing):
        group, elements = grid.group(*summed), sum(p.size for p in run)
        for start in range(0, elements if group.size > 1 else 0, MAX_ELEMENTS):
            yield group, min(elements - start, MAX_ELEMENTS)
