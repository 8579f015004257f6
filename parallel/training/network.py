"""From the serial network to the one that a rank of a grid runs."""

from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np
from mpi4py import MPI

from nn.sequence import sharing
from nn.device import empty, xp
from nn.sequential import Sequential
from parallel.auto.reductions import choose
from parallel.grid.process_grid import ProcessGrid, parse_grid
from parallel.placement.place_network import place
from parallel.performance.planner import BATCH_SIZE, planned
from parallel.sync.reduction import Plain
from parallel.placement.partition import size
from parallel.training.steps import train_step


def parallelize(
    net, grid="auto", plan=None, reduction="plain", sharded=None, half=False, batch_size=BATCH_SIZE, memory=None, machine=None
):
    """The network that this rank runs, equal to the serial `net` taken over all ranks. Collective.

        net = parallelize(net)                     # the planner chooses
        net = parallelize(net, "batch=4")          # data parallelism
        net = parallelize(net, "batch=2,model=4")  # 2-D

    net: a Sequential; one that was never used costs no memory here, one that was hands its weights on.
    Images need its `input_shape`.
    grid: a ProcessGrid; or a text such as "batch=4,model=2", of all ranks; or "auto": `parallel/performance/planner.py` chooses for
    global minibatches of `batch_size` samples, no more than `memory` bytes a rank (by default what the machine has), and the
    machine that this is, or another Machine.
    plan: see `parallel/placement/plans.py`; or "auto", the planner's for this grid, as where the grid is; by default "fewest-bytes".
    reduction: how gradients are summed, sharded: whether each rank updates only its part of the parameters, half: whether
    gradients travel in float16; see `parallel/auto/reductions.py`.
    ValueError if the plan does not fit the net, or the layers each other, or if there is no layer with weights.
    """
    if grid == "auto" or plan == "auto":
        grid, plan = planned(net, grid, plan, batch_size, memory, machine)
    if isinstance(grid, str):
        grid = ProcessGrid(MPI.COMM_WORLD, **parse_grid(grid))
    placed = place(net, grid, "fewest-bytes" if plan is None else plan)
    choice = partial(choose, reduction, sharded, half)
    parallel = ParallelSequential(placed, grid, net.seed, net.dtype, choice)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


class ParallelSequential(Sequential):
    """One rank's part of a network.

    placed: what `place` gave. plan: the placement of the weights of each Linear and Conv2d, see `parallel/placement/plans.py`.
    input, output: the Layouts of what `forward` takes and returns.
    reduction: how gradients are summed, see `parallel/sync/reduction.py`; `choice` makes it of the network. The first use of
    `params` is collective: ranks may share memory.
    """

    def __init__(self, placed, grid, seed, dtype, choice=Plain):
        super().__init__(placed.layers, seed=seed, dtype=dtype)
        self.grid, self.plan, self.input, self.output = grid, placed.plan, placed.input, placed.output
        self.reduction = choice(self)

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

    def allocate(self, size):
        return self.reduction.allocate(size)

    def observe(self, observer):
        """As of Sequential; an observer that wants to is told of the collectives of the grid as well."""
        super().observe(observer)
        if observer.hears_collectives:
            self.grid.tally.observe(observer)

    def forget(self, observer):
        super().forget(observer)
        self.grid.tally.forget(observer)

    def backward(self, dy, context, input_gradient=False):
        """As of Sequential. `synchronise` must follow: it makes the gradients of parameters that several ranks hold final."""
        with self._reducing():
            return super().backward(dy, context, input_gradient)

    def parameter_gradients(self, context):
        """As of Sequential; of the last micro-batch, `synchronise` must follow."""
        with self._reducing():
            super().parameter_gradients(context)

    @contextmanager
    def _reducing(self):
        """Around what writes the last gradients of a step."""
        self.parameters  # noqa: B018 (allocates on first use)
        self.reduction.start()
        try:
            yield
        except BaseException:
            self.reduction.interrupt()
            raise

    def learn(self, x, y, loss, optimizer):
        """As of Sequential: x, y are the whole global minibatch, of which this rank takes its part. Collective."""
        mine, rows = np.ascontiguousarray(x[self.input_block(len(x))]), y[self.output_rows(len(x))]
        return train_step(self, loss, optimizer, mine, rows, len(x))

    def accumulate(self, dy, context):
        """Backward of a micro-batch that is not the last one: its gradients are added to those of the last `backward`."""
        super().backward(dy, context)
        self.reduction.accumulate()

    def accumulate_parameter_gradients(self, context):
        """`parameter_gradients` of a micro-batch that is not the last one: they are added to those of the last one."""
        super().parameter_gradients(context)
        self.reduction.accumulate()

    def synchronise(self):
        """Sum the gradients over the ranks that hold the same parameters: those of a slice are final after `complete`."""
        self.reduction.finish()

    @property
    def owned(self):
        return self.reduction.owned

    def complete(self, where):
        self.reduction.complete(where)

    def changed(self, where):
        if self.observer is not None:
            self.observer.parameters_changed(where)
        self.reduction.changed(where)

    def updated(self):
        self.reduction.updated()

    def load_state_dict(self, state):
        """As of Sequential. Collective: ranks may share the memory of their parameters, and none may still use the old ones."""
        with self.exclusive():
            super().load_state_dict(state)

    @contextmanager
    def exclusive(self):
        """Around what writes `params`: no rank is at work with them. Collective."""
        self.parameters  # noqa: B018 (allocates on first use)
        self.grid.comm.Barrier()
        yield
        self.grid.comm.Barrier()

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
