"""The workload of one rank in a training step: its operations and the collectives that it takes part in. It is made from the
layers that the rank would run, so blocks, redistributions, halos and gradient reductions are those of a real step; nothing is
computed or allocated. Each kind of layer says its work in `parallel/placement/layer_kinds.py`."""

from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby, pairwise
from math import prod

import numpy as np

from gridgrad.nn.kernels import scratch_sizes
from gridgrad.nn.sequence import has_parameters, leaves
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.group import MAX_ELEMENTS
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.placement.layer_kinds import kind_of
from gridgrad.parallel.placement.redistribute import Redistribute

LONGEST_RUN = 1024  # beyond it, copies get no faster
GRADIENT_BUFFERS = 2  # for gradients of activations: that of a layer's output and that of its input; one more in branches
OPTIMIZER_ARRAYS = 1  # that the optimizer keeps, each as large as the parameters: one for SGD with momentum
LOSS = 3  # numbers that ranks sum with the loss: its value, and two that tell whether all have as many samples


@dataclass(frozen=True)
class Work:
    """One operation that a rank computes in a step, or one collective that it takes part in."""

    layer: str  # the name of the layer that it belongs to
    phase: str  # "forward", "gradients" (of the parameters), "backward" (the gradient of the input), "update" or "loss"
    name: str  # the operation, which has a table in a machine file, or the kind of the collective
    sizes: tuple = ()  # where in the table its time is
    flops: float = 0.0  # its arithmetic
    nbytes: float = 0.0  # its memory traffic; of a collective, what this rank sends
    scale: float = 1.0  # a factor on the time in the table
    group: object = None  # the ranks of a collective
    most: float = 0.0  # bytes of the rank that sends or receives the most, where that is known and more than `nbytes`
    overlaps: tuple = ()  # the Works that run while a collective is under way, and call MPI so that it makes progress
    move: object = None  # the Move of activations or kernels, which knows its messages
    of_step: bool = False  # whether what a whole step takes once counts with it: `step` of a machine file

    @property
    def is_awaited(self):
        """Whether a rank of a pipeline waits for it, as it does not for the sum of the value of the loss."""
        return self.phase != "loss" or self.group is None

    def messages(self, itemsize=4):
        """The messages of this rank, {rank of the group: bytes}; None where all ranks work together in an algorithm."""
        counts = self.move and self.move.messages
        return None if counts is None else {rank: count * itemsize for rank, count in enumerate(counts) if count}

    def seconds(self, machine, ranks, itemsize=4):
        """Predicted seconds on a Machine of which `ranks` ranks are in use."""
        if self.group is None:
            seconds = machine.operation_seconds(self.name, self.sizes, self.scale, self.flops, self.nbytes, itemsize, ranks)
            return seconds + (machine.core.get("step", 0.0) if self.of_step else 0.0)
        hidden = sum(work.seconds(machine, ranks, itemsize) for work in self.overlaps)
        nbytes = max(self.nbytes, self.most)
        seconds = machine.collective_seconds(self.name, self.group, ranks, nbytes) + machine.core.get("wait", 0.0)
        return max(0.0, seconds - hidden)


class Workload:
    """The Works of one rank, collected layer by layer. shape: of its block of the minibatch, of `batch_size` samples in all."""

    def __init__(self, shape, batch_size, itemsize=4):
        self.shape = tuple(shape)  # of this rank's block of the activations at the current layer, samples first
        self.batch_size, self.itemsize, self.dtype = batch_size, itemsize, np.dtype(f"f{itemsize}")
        self.works = []  # in the order of the forward pass, each layer's backward behind its forward
        self.starts = []  # where in `works` those of each layer begin, and where those of all layers end
        # Numbers of elements: kept for backward (activations that no layer overwrites, masks, buffers of messages); held and
        # updated; of gradients that are kept where the gradients of parameters come later.
        self.elements, self.parameters, self.postponed = prod(shape), 0, 0
        self.passed, self.buffers = [], GRADIENT_BUFFERS  # the gradient that each layer passes on in one of these buffers
        self.scratch = {}  # {name: elements of the memory that layers work in}
        self.name = None  # of the layer whose work is added
        self.before, self.streams = None, False  # the previous layer; whether its outputs are still in the cache
        self.first = True  # no layer so far has parameters, so that no gradient of the input is needed

    def go(self, layers):
        """Add the forward and backward work of layers that run one after another."""
        self.before = None
        for layer in layers:
            outer, self.name = self.name, layer.name
            self.starts.append(len(self.works))
            self.passed.append(prod(self.shape) if layer.passes_buffer and not self.first else 0)
            outputs = layer.has_own_output(self.before)
            self.add(layer)
            self.keep(prod(self.shape) * outputs)
            self.postponed += prod(self.shape) if layer.parameters else 0
            if self.first and has_parameters(layer):
                self.first = False
            self.name, self.before = outer, layer
        self.starts.append(len(self.works))  # what a layer adds behind its branches is a layer of its own

    def add(self, layer):
        """Add the work of one layer or of a part of it; returns what the rule of its kind returns."""
        if isinstance(layer, Redistribute):
            self.shape = self.moved("forward", layer)
            return None if self.first else self.moved("backward", layer)
        if hasattr(type(layer), "work"):  # it stands for another layer on this rank
            return layer.work(self)
        return kind_of(layer).work(self, layer)

    def step(self, layers, grid):
        """Add a whole training step: all layers of a network, the loss, the gradient reductions and the update."""
        self.go(layers)
        self.loss(grid, of_step=True)
        self.update(layers, grid)

    @property
    def executed(self):
        """The Works of a step as they are executed: forward, loss, the sum of its value, backward, gradient sums, update."""
        layers = [self.works[start:stop] for start, stop in pairwise(self.starts)]
        forward = [work for works in layers for work in works if work.phase == "forward"]
        backward = [work for works in reversed(layers) for work in works if work.phase != "forward"]
        rest = self.works[self.starts[-1] :]
        loss = [work for work in rest if work.phase == "loss"]
        return forward + loss + backward + [work for work in rest if work.phase != "loss"]

    def seconds(self, machine, ranks, first=0):
        """Predicted seconds of all Works from the number `first` on, on a Machine of which `ranks` ranks are in use."""
        return sum(work.seconds(machine, ranks, self.itemsize) for work in self.works[first:])

    @property
    def memory_of(self):
        """{what: bytes} that the rank needs."""
        return memory_of(self.itemsize, self.parameters, self.elements, *self.shared)

    @property
    def shared(self):
        """Elements of what layers use in turn: the buffers for gradients of activations, and the memory that they work in."""
        return sum(nlargest(self.buffers, self.passed)), sum(self.scratch.values())

    def loss(self, grid, of_step=False):
        """Add the loss: its own computation, and the all-reduce of its value, which overlaps with backward."""
        self.name = "loss"
        self.keep(prod(self.shape))
        self.compute("loss", "loss", (prod(self.shape),), 0, 4 * prod(self.shape), of_step=of_step)
        backward = tuple(work for work in self.works if work.group is None and work.phase in ("gradients", "backward"))
        self.all_reduce_doubles("loss", LOSS, grid.group(*AXES), backward)

    def update(self, layers, grid):
        """Add the all-reduces of the layers' gradients, as `parallel/sync/reduction.py` does them, and the update."""
        self.name = "gradients"
        parameters = [p for leaf in leaves(layers) for p in leaf.parameters]
        for (summed, _), run in groupby(parameters, key=lambda p: p.layout.sharing):
            group, elements = grid.group(*summed), sum(p.size for p in run)
            for start in range(0, elements if group.size > 1 else 0, MAX_ELEMENTS):
                some = min(elements - start, MAX_ELEMENTS)
                self.communicate("update", "all-reduce", group, all_reduce_elements(some, group.size, group.rank))
        self.name, updated = "update", sum(p.size for p in parameters)
        self.compute("update", "update", (updated,), 4 * updated, 5 * updated)
        self.parameters += updated

    # ----- adding one operation or collective

    def keep(self, elements, scratch=None):
        """Count elements that are kept, and the scratch memory that a layer works in, {name: elements}."""
        self.elements += elements
        if scratch:
            self.scratch = scratch_sizes.largest(self.scratch, scratch)

    def compute(self, phase, name, sizes, flops, elements, scale=1.0, of_step=False):
        self.works.append(Work(self.name, phase, name, sizes, flops, elements * self.itemsize, scale, of_step=of_step))
        return self.works[-1]

    def communicate(self, phase, kind, group, elements, overlaps=(), most=0, move=None):
        if group.size > 1:
            nbytes, most = round(elements * self.itemsize), most * self.itemsize
            self.works.append(Work(self.name, phase, kind, nbytes=nbytes, group=group, most=most, overlaps=overlaps, move=move))

    def both(self, name, elements, arrays=2, block=None, more=()):
        """Add forward and backward of a layer that only passes over its elements. arrays: of that size, which forward reads
        and writes; backward has one more. block: elements processed at a time, or all. more: further sizes of its table."""
        sizes, scale = (block or elements, *more), elements / block if block else 1.0
        self.compute("forward", f"{name}.forward", sizes, 0, arrays * elements, scale)
        if not self.first:
            self.compute("backward", f"{name}.backward", sizes, 0, (arrays + 1) * elements, scale)

    def pack(self, phase, elements, run):
        """Add a copy into or out of a message buffer. run: how many elements lie side by side."""
        self.compute(phase, "pack", (elements, min(max(run, 1), LONGEST_RUN)), 0, 2 * elements)

    def all_reduce_doubles(self, phase, numbers, group, overlaps=()):
        elements = all_reduce_elements(numbers, group.size, group.rank) * 8 / self.itemsize
        self.communicate(phase, "all-reduce", group, elements, overlaps)

    # ----- adding layers that are made of others, or only communicate

    def branches(self, layer):
        """Add the work of branches, each of which begins as their layer does; returns the shapes of their outputs."""
        before, first, shapes, self.buffers = self.shape, self.first, [], GRADIENT_BUFFERS + 1
        for branch in layer.children:
            self.shape, self.first = before, first
            self.go(branch)
            shapes.append(self.shape)
        self.first = first
        return shapes

    def moved(self, direction, layer, shape=None, phase=None):
        """Add one direction of a Redistribute to the current block or one of this shape; returns the shape after it."""
        phase, shape = phase or direction, self.shape if shape is None else shape
        move = layer.step(direction, shape, self.batch_size)
        if move is None:
            return shape
        packed, unpacked = move.copies
        self.keep(move.held)
        for run, elements in packed.items():
            self.pack(phase, elements, run)
        if move.kind:
            self.communicate(phase, move.kind, move.group, move.sent, most=move.most, move=move)
        for run, elements in unpacked.items():
            self.pack(phase, elements, run)
        return move.there


def local_shape(layout, batch_size, grid):
    """The shape of a rank's block of the activations with this Layout for a global minibatch, samples first."""
    return layout.of(batch_size).local_shape(grid.coordinates)


def memory_of(itemsize, parameters, activations, gradients_of_activations, scratch=0, gradients=1, versions=1):
    """{what: bytes} that a rank needs, from numbers of elements of `itemsize` bytes; activations with masks and buffers of
    messages. gradients, versions: how many of all parameters it keeps, such as the gradient of a micro-batch beside the sum."""
    return {
        "parameters": versions * parameters * itemsize,
        "gradients": gradients * parameters * itemsize,
        "optimizer": OPTIMIZER_ARRAYS * parameters * itemsize,
        "activations": activations * itemsize,
        "gradients of activations": gradients_of_activations * itemsize,
        "scratch": scratch * itemsize,
    }
