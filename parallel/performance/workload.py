"""What a rank does in a training step: its layers are gone through, and what each computes and sends is noted.

The layers are those that the rank would run, made by the same rules (`parallel/placement/placer.py`), so what is noted is what happens:
the same blocks, redistributions, halos and sums of gradients. Nothing is computed and no array allocated.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

import numpy as np

from nn import BatchNorm, Concat, Conv2d, Dropout, Flatten, Linear, LocalResponseNorm, MaxPool2d, Residual
from nn.activations import Activation
from nn.conv_pool import MIN_FUSED_BYTES
from nn.convolution import algorithm
from nn.pool import Pool2d
from nn.sequence import leaves
from nn.workspace import BLOCK_BYTES
from parallel.grid.collectives import all_reduce_elements
from parallel.grid.group import MAX_ELEMENTS
from parallel.placement.gathered_linear import GatheredLinear
from parallel.placement.halo_conv import HaloConv2d
from parallel.placement.partition import size
from parallel.placement.redistribute import Redistribute

STATE = 1  # arrays as large as the parameters that the optimizer keeps, as SGD with momentum does
KERNELS = 3, 5  # of the tables of convolutions
LONGEST_RUN, MOST_CHANNELS = 1024, 32  # from which on copies and poolings go no faster


@dataclass(frozen=True)
class Work:
    """One thing that a rank does in a step.

    layer, phase: of what: "forward", "backward", "gradients", "update" or "loss". name: the operation of a machine's
    table, with its `sizes`; or the kind of a collective of `group`, of which this rank sends `nbytes`, and the rank for whom
    the others wait `most`, if that is more.
    flops: its arithmetic. nbytes: its traffic with memory. scale: how many times the seconds of the table.
    behind: the Works that a collective goes on behind, where someone calls the MPI library meanwhile: else little moves.
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

    def seconds(self, machine, ranks, itemsize=4):
        """On a machine of which so many ranks are in use."""
        if self.group is None:
            seconds = machine.operation_seconds(self.name, self.sizes, self.scale, self.flops, self.nbytes, itemsize, ranks)
            return seconds + machine.core.get("step", 0.0) * (self.name == "loss")
        hidden = sum(work.seconds(machine, ranks, itemsize) for work in self.behind)
        nbytes = max(self.nbytes, self.most)
        seconds = machine.collective_seconds(self.name, self.group, ranks, nbytes) + machine.core.get("wait", 0.0)
        return max(0.0, seconds - hidden)


class Walk:
    """Goes through the layers of one rank and notes what they do.

    itemsize: bytes of a number. batch_size: of the global minibatch. shape: of this rank's array here, samples first.
    works: what was noted, in the order of the forward pass. elements: of the arrays that are kept for backward.
    parameters: how many are held and updated. of: the works that are no communication, by the layer that does them.
    """

    def __init__(self, shape, batch_size, itemsize=4):
        self.shape, self.batch_size, self.itemsize = tuple(shape), batch_size, itemsize
        self.works, self.elements, self.parameters = [], prod(shape), 0
        self.layer, self.of = None, defaultdict(list)
        self.before, self.streams = None, False  # the layer before; whether its outputs never leave the cache
        self.first = True  # no layer so far had parameters, so nothing goes backward any further

    def go(self, layers):
        for layer in layers:
            outer, self.layer, self.name = self.layer, layer, layer.name
            kind = next(kind for kind in type(layer).__mro__ if kind in RULES)
            RULES[kind](self, layer)
            self.elements += prod(self.shape)
            if self.first and any(leaf.parameters for leaf in leaves([layer])):
                self.first = False
            self.layer, self.name, self.before = outer, outer and outer.name, layer

    def step(self, layers, outline):
        """All layers of a network, and what comes behind them in a step."""
        self.go(layers)
        self.loss(outline)
        self.update(layers, outline)

    @property
    def memory(self):
        """Bytes that the rank needs: parameters, gradients, the optimizer's state, and the arrays of its layers, each way."""
        return self.itemsize * (self.parameters * (2 + STATE) + 2 * self.elements)

    def loss(self, outline):
        """Behind the layers of a network."""
        self.name = "loss"
        self.compute("loss", "loss", (prod(self.shape),), 0, 4 * prod(self.shape))
        backward = tuple(work for work in self.works if work.group is None and work.phase in ("gradients", "backward"))
        self.all_reduce_doubles("loss", 1, outline.group("batch", "height", "model"), backward)

    def update(self, layers, outline):
        """The sums of the gradients of layers, and the update of their parameters."""
        self.name = "gradients"
        for group, elements in gradient_sums(layers, outline):
            self.communicate("update", "all-reduce", group, all_reduce_elements(elements, group.size, group.rank))
        self.name = "update"
        parameters = sum(p.size for leaf in leaves(layers) for p in leaf.parameters)
        self.compute("update", "update", (parameters,), 4 * parameters, 5 * parameters)
        self.parameters += parameters

    # ----- notes

    def compute(self, phase, name, sizes, flops, elements, scale=1.0):
        self.works.append(Work(self.name, phase, name, sizes, flops, elements * self.itemsize, scale))
        self.of[self.layer].append(self.works[-1])
        return self.works[-1]

    def communicate(self, phase, kind, group, elements, behind=(), most=0):
        if group.size > 1:
            nbytes, most = round(elements * self.itemsize), most * self.itemsize
            self.works.append(Work(self.name, phase, kind, nbytes=nbytes, group=group, most=most, behind=behind))

    def both(self, name, elements, arrays=2, block=None, more=()):
        """A layer that goes through so many elements each way, in blocks of so many of them. more: sizes of its table."""
        sizes, scale = (block or elements, *more), elements / block if block else 1.0
        self.compute("forward", f"{name}.forward", sizes, 0, arrays * elements, scale)
        if not self.first:
            self.compute("backward", f"{name}.backward", sizes, 0, (arrays + 1) * elements, scale)

    def pack(self, phase, elements, run):
        """Copy elements of which so many lie side by side."""
        self.compute(phase, "pack", (elements, min(max(run, 1), LONGEST_RUN)), 0, 2 * elements)

    def all_reduce_doubles(self, phase, numbers, group, behind=()):
        self.communicate(phase, "all-reduce", group, all_reduce_elements(numbers, group.size, group.rank) * 8 / self.itemsize, behind)

    # ----- one rule a kind of layer

    def linear(self, layer):
        n, (inputs, outputs) = self.shape[0], layer.weight.block_shape
        products, traffic = 2 * n * inputs * outputs, n * inputs + inputs * outputs + n * outputs
        sizes = n, inputs, outputs
        works = [self.compute("forward", "linear.forward", sizes, products, traffic)]
        works.append(self.compute("gradients", "linear.gradients", sizes, products, traffic))
        if not self.first:
            works.append(self.compute("backward", "linear.input_gradient", sizes, products, traffic))
        self.shape = n, outputs
        return works

    def convolution(self, layer):
        n, height, width, _ = self.shape
        kh, kw, inputs, outputs = layer.weight.block_shape
        rows, columns = layer.window.output(height, width)
        pixels = rows * columns
        products = 2 * n * pixels * kh * kw * inputs * outputs
        traffic = prod(self.shape) + kh * kw * inputs * outputs + n * pixels * outputs
        phases = "forward", "gradients" if self.first else "backward"
        chosen = algorithm(layer.window, inputs, outputs, rows, columns, np.dtype(f"f{self.itemsize}"))
        self.streams = chosen.goes_block_by_block and n * pixels * outputs * self.itemsize >= MIN_FUSED_BYTES
        pixels = chosen.pixels_computed(rows, columns)
        works = []
        for phase in phases:
            times = 2 if phase == "backward" else 1
            if kh * kw == 1:  # a product of matrices, and nothing else
                name, sizes, scale = f"linear.{'forward' if times == 1 else 'gradients'}", (n * pixels, inputs, outputs), times
            else:
                kernel = min(KERNELS, key=lambda k: abs(k * k - kh * kw))
                name, sizes = f"conv{kernel}.{phase}", (n, pixels, inputs, outputs)
                scale = kh * kw / kernel**2
                if phase == "backward":  # half of it is for the kernel
                    scale *= (1 + chosen.input_gradient_cost(height, width, inputs, outputs)) / 2
            works.append(self.compute(phase, name, sizes, times * products, times * traffic, scale))
        self.shape = n, rows, columns, outputs
        return works

    def pool(self, layer):
        rows, columns = layer.window.output(*self.shape[1:3])
        joined = self.streams and isinstance(layer, MaxPool2d) and type(self.before) is Conv2d  # see `nn/conv_pool.py`
        elements = self.shape[0] * rows * columns * self.shape[3] * prod(layer.window.kernel)
        name, block = ("pooled", BLOCK_BYTES // self.itemsize) if joined else (type(layer).__name__.lower(), None)
        self.both(name, elements, block=block, more=(min(self.shape[3], MOST_CHANNELS),))
        self.shape = self.shape[0], rows, columns, self.shape[3]

    def elementwise(self, layer):
        self.both(type(layer).__name__.lower(), prod(self.shape))

    def response_norm(self, layer):
        self.elementwise(layer)
        self.shape = *self.shape[:-1], self.shape[-1] - layer.before - layer.after  # neighbours' channels end here

    def batch_norm(self, layer):
        self.both("batchnorm", prod(self.shape), 4)
        if hasattr(layer, "group"):
            channels = self.shape[-1]
            for phase, numbers in (("forward", channels + 1), ("forward", channels), ("backward", 2 * channels)):
                if phase == "forward" or not self.first:  # the sums of backward are for the input's gradient alone
                    self.all_reduce_doubles(phase, numbers, layer.group)

    def flatten(self, layer):
        if len(self.shape) > 2:
            self.both("flatten", prod(self.shape))
            self.shape = self.shape[0], prod(self.shape[1:])

    def residual(self, layer):
        before = self.shape
        self.enter_branches(layer)
        self.go(layer.branch)
        after, self.shape = self.shape, before
        self.go(layer.shortcut)
        self.shape = after
        self.both("add", prod(after), 3)

    def enter_branches(self, layer):
        """A layer with branches that have parameters always computes the gradient of its input, also as the first one."""
        if any(leaf.parameters for leaf in leaves([layer])):
            self.first = False

    def concat(self, layer):
        before, channels = self.shape, 0
        self.enter_branches(layer)
        for branch in layer.branches:
            self.shape = before
            self.go(branch)
            channels += self.shape[-1]
        self.shape = *self.shape[:-1], channels
        self.both("copy", prod(self.shape))

    def redistribute(self, move):
        """Every layer that only communicates: forward, and backward unless nothing goes back any further."""
        self.shape = self.moved("forward", move)
        if not self.first:
            self.moved("backward", move, self.shape)

    def moved(self, direction, move, shape=None):
        """Note one direction of a Redistribute; returns the shape behind it. shape: of what comes in, by default the one here."""
        step = move.step(direction, self.shape if shape is None else shape, self.batch_size)
        if step is None:
            return self.shape if shape is None else shape
        if step.kind:
            self.communicate(direction, step.kind, move.group, step.sent, most=step.most)
        for elements, run in step.copies:
            self.pack(direction, elements, run)
        return step.there

    def halo_convolution(self, layer):
        before = self.shape
        self.shape = layer.halo.step("forward", before, self.batch_size).there
        forward, _ = self.convolution(layer.conv)
        after, self.shape = self.shape, before
        share = size(layer.inner) / max(after[1], 1)  # of the rows that need no halo; the others are a call of their own
        if 0 < share < 1 and len(forward.sizes) == 4:
            n, pixels, *channels = forward.sizes
            parts = [
                replace(forward, sizes=(n, pixels * p, *channels), flops=forward.flops * p, nbytes=forward.nbytes * p)
                for p in (share, 1 - share)
            ]
            for works in (self.works, self.of[self.layer]):
                works[works.index(forward)] = parts[0]
                works.append(parts[1])
        self.redistribute(layer.halo)
        self.shape = after

    def gathered(self, layer):
        """The all-gather of a GatheredLinear, and backward its reduce-scatter, which goes on behind the weights' gradient."""
        forward = layer.move.step("forward", self.shape, self.batch_size)
        backward = layer.move.step("backward", forward.there, self.batch_size)
        self.shape = forward.there
        self.elements += prod(forward.there)  # the gathered blocks
        _, *back = self.linear(layer.linear)
        self.communicate("forward", forward.kind, layer.group, forward.sent)
        self.communicate("backward", backward.kind, layer.group, backward.sent, tuple(back[:1]))


RULES = {
    Linear: Walk.linear,
    Conv2d: Walk.convolution,
    Pool2d: Walk.pool,
    Dropout: Walk.elementwise,
    BatchNorm: Walk.batch_norm,
    LocalResponseNorm: Walk.response_norm,
    Flatten: Walk.flatten,
    Residual: Walk.residual,
    Concat: Walk.concat,
    Activation: Walk.elementwise,
    Redistribute: Walk.redistribute,
    HaloConv2d: Walk.halo_convolution,
    GatheredLinear: Walk.gathered,
}


def gradient_sums(layers, outline):
    """(group, elements) of the collectives in which the gradients of layers are summed, see `parallel/sync/reduction.py`."""
    parameters = [p for leaf in leaves(layers) for p in leaf.parameters]
    for axes, run in groupby(parameters, key=lambda p: p.layout.replicated):
        group, elements = outline.group(*axes), sum(p.size for p in run)
        for start in range(0, elements if group.size > 1 else 0, MAX_ELEMENTS):
            yield group, min(elements - start, MAX_ELEMENTS)
