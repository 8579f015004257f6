"""From the serial network to the one that a rank of a grid runs."""

from copy import copy
from functools import cached_property, partial
from itertools import groupby

import numpy as np

from nn.activations import Dropout
from nn.layer import aligned_empty
from nn.linear import Linear
from nn.sequential import Sequential
from parallel.laugier import CopyThenReduce, GatherThenSlice
from parallel.layout import Layout
from parallel.placements import C, N, Partial, Replicate, Shard
from parallel.plan import INPUT, OUTPUT, parse_plan, route
from parallel.redistribute import Redistribute
from parallel.split import size, split


def parallelize(net, grid, plan="fewest-bytes"):
    """The network that this rank of `grid` runs, equal to the serial `net` taken over all ranks.

    net: a Sequential; one that was never used costs no memory here, one that was hands its weights on.
    grid: a ProcessGrid. plan: see `parallel/plan.py`. ValueError if the plan does not fit the net, or the layers each
    other, or if there is no Linear layer.
    """
    linear = [layer for layer in net.layers if isinstance(layer, Linear)]
    if not linear:
        raise ValueError("there is nothing to parallelize: the net has no Linear layer")
    inputs = features = linear[0].inputs
    net.output_features(inputs)
    choices = parse_plan(plan, [inputs, *(layer.outputs for layer in linear)], grid.sizes["model"])
    group = grid.group("model")
    start = at = INPUT[choices[0]]  # how activations lie on the model axis
    layers = []

    def place(target, name):
        """Append what brings the activations from where they are to `target`."""
        nonlocal at
        if group.size > 1 and at != target:
            for source, destination in route(at, target):
                layers.append(_named(Redistribute(group, source, destination, features, block_rows), name))
        at = target

    block_rows = partial(Layout(grid.sizes, Replicate(), 0).rows, coordinates=grid.coordinates)
    remaining = iter(choices)
    for layer in net.layers:
        if isinstance(layer, Linear):
            choice = next(remaining)
            place(INPUT[choice], layer.name)
            whole = choice == "laugier" and group.size > 1
            if whole:
                layers.append(_named(CopyThenReduce(group, features), layer.name))
            layers.append(_named(_block(layer, choice, group), layer.name))
            features = layer.outputs
            if whole:
                layers.append(_named(GatherThenSlice(group, features), layer.name))
            at = OUTPUT[choice]
        else:
            if at == Partial():
                place(Shard(C), layer.name)
            layers.append(_elementwise(layer, at, features, grid))
    if at != Replicate():
        place(Shard(N), "output")
    parallel = ParallelSequential(
        layers, grid, choices, Layout(grid.sizes, start, inputs), Layout(grid.sizes, at, features), net.seed, net.dtype
    )
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


class ParallelSequential(Sequential):
    """One rank's part of a network.

    plan: the placement of each Linear layer's weights, see `parallel/plan.py`.
    input, output: the Layouts of what `forward` takes and returns.
    """

    def __init__(self, layers, grid, plan, input, output, seed, dtype):
        super().__init__(layers, seed=seed, dtype=dtype)
        self.grid, self.plan, self.input, self.output = grid, plan, input, output

    def name_layers(self):
        """They have the names of the serial layers that they belong to."""

    def input_block(self, batch_size):
        """(rows, columns): the slices of the global minibatch that this rank's `forward` takes."""
        return self.input.rows(batch_size, self.grid.coordinates), self.input.columns(self.grid.coordinates)

    def output_rows(self, batch_size):
        """The slice of the global minibatch whose outputs this rank's `forward` returns."""
        return self.output.rows(batch_size, self.grid.coordinates)

    @property
    def is_counted(self):
        """Whether this rank's outputs count in sums over the grid (otherwise they are copies of another rank's)."""
        return self.output.is_first_copy(self.grid.coordinates)

    def synchronise(self):
        """Sum the gradients over the ranks that hold the same weights: one all-reduce for each run of parameters
        that are replicated along the same axes."""
        for group, start, stop in self._runs:
            group.all_reduce(self.grads[start:stop], "gradients")

    @cached_property
    def _runs(self):
        """(group, start, stop) of the slices of `grads` that are summed together."""
        runs, start = [], 0
        for axes, run in groupby(self.parameters, key=lambda pair: _replicated(pair[1])):
            stop = start + sum(p.size for _, p in run)
            runs.append((self.grid.group(*axes), start, stop))
            start = stop
        return runs

    def whole(self, parameter):
        """The global array of which `parameter` holds a block, on every rank. Collective, as is `state_dict`."""
        model = self.grid.group("model")
        if not parameter.indices or model.size == 1:
            return parameter.value
        shapes = [[size(part) for part in index] for index in parameter.indices]
        counts = [int(np.prod(shape)) for shape in shapes]
        flat = aligned_empty(sum(counts), self.dtype)
        model.all_gather(parameter.value, flat, counts, "state")
        whole = np.empty(parameter.shape, self.dtype)
        start = 0
        for index, shape, count in zip(parameter.indices, shapes, counts):
            whole[index] = flat[start : start + count].reshape(shape)
            start += count
        return whole


def _replicated(parameter):
    """The axes along which a parameter is `Replicate`, so that its gradient there is `Partial`."""
    return {"batch"} if parameter.indices else {"batch", "model"}


def _named(layer, name):
    """`layer` under the name of the serial layer that it belongs to."""
    layer.name = name
    return layer


def _block(linear, choice, group):
    """The block of a Linear that this rank of the model axis holds."""
    inputs, outputs = slice(0, linear.inputs), slice(0, linear.outputs)
    if choice == "replicate":
        return Linear(linear.inputs, linear.outputs)
    if choice == "in":  # the bias is an addend too: one rank adds it
        blocks = [(part, outputs) for part in split(linear.inputs, group.size)]
        biases = [(outputs if rank == 0 else slice(0, 0),) for rank in range(group.size)]
    else:
        biases = [(part,) for part in split(linear.outputs, group.size)]
        blocks = [(inputs, part) for (part,) in biases]
    block = Linear(linear.inputs, linear.outputs, *blocks[group.rank], bias=biases[group.rank][0])
    block.weight.indices, block.bias.indices = blocks, biases
    return block


def _elementwise(layer, at, features, grid):
    """A copy of an elementwise layer, told which block of the activations it sees if it depends on that."""
    new = copy(layer)
    new.__dict__.pop("_spaces", None)
    if isinstance(layer, Dropout):
        layout = Layout(grid.sizes, at, features)
        new.features, new.columns = features, layout.columns(grid.coordinates)
        new.rows = partial(layout.rows, coordinates=grid.coordinates)
    return new
