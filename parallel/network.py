"""From the serial network to the one that a rank of a grid runs."""

from functools import cached_property
from itertools import groupby
from math import prod

from nn import Conv2d, Flatten
from nn.chain import sharing
from nn.device import empty, xp
from nn.pool import Pool2d
from nn.sequential import Sequential
from parallel.place import Placer
from parallel.placements import N, Replicate, Shard
from parallel.plan import INPUT, along_height, feature_sizes, parse_plan, weighted
from parallel.split import size


def parallelize(net, grid, plan="fewest-bytes"):
    """The network that this rank of `grid` runs, equal to the serial `net` taken over all ranks.

    net: a Sequential; one that was never used costs no memory here, one that was hands its weights on.
    Images need its `input_shape`. grid: a ProcessGrid. plan: see `parallel/plan.py`. ValueError if the plan does not fit
    the net, or the layers each other, or if there is no layer with weights.
    """
    layers = weighted(net)
    if not layers:
        raise ValueError("there is nothing to parallelize: the net has no Linear or Conv2d layer")
    if net.input_shape is None and any(isinstance(layer, Conv2d | Pool2d | Flatten) for layer in net.leaves()):
        raise ValueError("the size of the images is not known: give Sequential(.., input_shape=(height, width, channels))")
    shape = tuple(net.input_shape or (layers[0].inputs,))
    model = parse_plan(plan, layers, feature_sizes(net, shape), grid.sizes["model"])
    if "height" in model and grid.sizes["height"] > 1:
        raise ValueError(f"plan '{plan}': the axis height splits the images already: leave height out of one of the two")
    if "laugier" in model and any(p for layer in net.leaves() for p in layer.parameters if layer not in layers):
        raise ValueError("plan 'laugier' has no rule for layers such as BatchNorm: use another plan")
    choices = {"height": dict(zip(layers, along_height(layers))), "model": dict(zip(layers, model))}
    start = {axis: INPUT[choices[axis][layers[0]]] for axis in choices}
    placer = Placer(grid, choices, shape, start)
    input = placer.layout
    placer.place(net.layers)
    for axis, placement in placer.at.items():
        if placement != Replicate():
            placer.move(axis, Shard(N), "output")
    parallel = ParallelSequential(placer.layers, grid, model, input, placer.layout, net.seed, net.dtype)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


class ParallelSequential(Sequential):
    """One rank's part of a network.

    plan: the placement of the weights of each Linear and Conv2d, see `parallel/plan.py`.
    input, output: the Layouts of what `forward` takes and returns.
    """

    def __init__(self, layers, grid, plan, input, output, seed, dtype):
        super().__init__(layers, seed=seed, dtype=dtype)
        self.grid, self.plan, self.input, self.output = grid, plan, input, output

    def arrange(self, layers):
        """They are in order, under the names of the serial layers that they belong to."""
        return sharing(list(layers))

    def input_block(self, batch_size):
        """The index of the part of a global minibatch x that this rank's `forward` takes: x[net.input_block(len(x))]."""
        return self.input.rows(batch_size, self.grid.coordinates), *self.input.block(self.grid.coordinates)

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
        counts = [prod(shape) for shape in shapes]
        flat = empty(sum(counts), self.dtype)
        model.all_gather(parameter.value, flat, counts, "state")
        whole = xp.empty(parameter.shape, self.dtype)
        start = 0
        for index, shape, count in zip(parameter.indices, shapes, counts):
            whole[index] = flat[start : start + count].reshape(shape)
            start += count
        return whole


def _replicated(parameter):
    """The axes along which a parameter is `Replicate`, so that its gradient there is `Partial`."""
    return {"batch", "height"} if parameter.indices else {"batch", "height", "model"}
