"""The seconds that a rank computes a block of a layer: measured by running it, or predicted by the cost model.

Marques 2016 (section 4.1.2) times one convolution on every device, with random numbers, and takes its speed to be a constant.
Here blocks of several sizes are timed, because kernels have steps: twice the share seldom takes exactly twice the time.
"""

import time
from math import inf, prod

import numpy as np

from gridgrad.nn import Context, Sequential
from gridgrad.nn.device import synchronise, to_device
from gridgrad.nn.layer import Block
from gridgrad.nn.sequence import shapes
from gridgrad.parallel.placement.placements import H
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.prediction.workload import Workload

RUNS, LONG = 5, 0.2  # a block is run so often, or for so many seconds; the fastest run counts
BUDGET = 5.0  # seconds of all blocks together, after which each is run as seldom as possible


class LayerSeconds:
    """The common base: seconds of the forward and backward pass of blocks of the layers with weights of a network.

    net: a serial Sequential, which is only looked at. shape: of a sample. layers: its layers with weights, in the order in
    which they run.
    """

    def __init__(self, net, shape):
        self.net, self.layers = net, weighted(net)
        self.inputs = {layer: before for layer, before, _ in shapes(net.layers, shape)}
        self._known = {}

    def seconds(self, layer, inputs, outputs, samples, rows=1.0):
        """Seconds of a training step's passes over the block with so many inputs and outputs of a layer, for so many samples.

        Of an autoencoder the hidden units count as outputs.
        rows: the part of the rows of the layer's images; of a layer without images it is a part of the samples.
        The first layer with weights computes no gradient of its input.
        """
        key = layer, inputs, outputs, samples, rows
        if key not in self._known:
            block, shape = block_of(layer, inputs, outputs), (*self.inputs[layer][:-1], inputs)
            if layer.takes_images:
                here = layer.window.outputs(H, shape[0])
                shape = (shape[0] - (here - round(here * rows)) * layer.window.stride[0], *shape[1:])
            else:
                samples, here = round(samples * rows), 1
            empty = not (inputs and outputs and samples and round(here * rows))
            self._known[key] = 0.0 if empty else self.of_block(block, (samples, *shape), layer is self.layers[0])
        return self._known[key]

    def of_block(self, block, shape, is_first):
        """What `seconds` returns. block: a new layer that is the block. shape: of its input. is_first: see there."""
        raise NotImplementedError


def block_of(layer, inputs, outputs):
    """A new layer that is the block of a layer with weights with so many inputs, and outputs or hidden units."""
    held, kernel = slice(0, outputs), [slice(0, n) for n in layer.weight.shape[:-2]]
    return layer.placed(weight=Block((*kernel, slice(0, inputs), held)), bias=Block((held,)))


class MeasuredSeconds(LayerSeconds):
    """Measured on this rank by running the blocks on random numbers.

    Ranks that compute at the same time in training should also measure at the same time.

    handicap: the Handicap of this rank, or None. memory: the bytes that a rank has; a block that would need more takes
    infinitely long.
    """

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
