"""From the serial network to the one that a rank of a grid runs."""

from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np
from mpi4py import MPI

from nn.sequence import sharing
from nn.device import empty, xp
from nn.minibatch_checks import checked_minibatch
from nn.pauses import pause
from nn.sequential import Sequential
from parallel.auto.reductions import choose
from parallel.grid.process_grid import ProcessGrid, parse_grid
from parallel.placement.place_network import place
from parallel.job.uncaught import end_job_when_uncaught
from parallel.performance.planner import BATCH_SIZE, planned
from parallel.sync.reduction import Plain
from parallel.placement.partition import size
from parallel.placement.placements import Replicate
from parallel.training.steps import train_step


def parallelize(
    net, grid="auto", plan=None, reduction="plain", sharded=None, half=False, batch_size=BATCH_SIZE, memory=None, machine=None
):
    """The network that this rank runs, equal to the serial `net` taken over all ranks. Collective.

        net = parallelize(net)                     # the planner chooses
        net = parallelize(net, "batch=4")          # data parallelism
        net = parallelize(net, "batch=2,model=4")  # 2-D

    net: a serial Sequential; one that was never used costs no memory here, one that was hands its weights on.
    Images need its `input_shape`.
    grid: a ProcessGrid; or a text such as "batch=4,model=2", or the same as a dict, of all ranks;
    or "auto": `parallel/performance/planner.py` chooses for
    global minibatches of `batch_size` samples, no more than `memory` bytes a rank (by default what the machine has), and the
    machine that this is, or another Machine.
    plan: see `parallel/placement/plans.py`; or "auto", the planner's for this grid, as where the grid is; by default "fewest-bytes".
    reduction: how gradients are summed, sharded: whether each rank updates only its part of the parameters, half: whether
    gradients travel in float16; see `parallel/auto/reductions.py`.
    ValueError if the plan does not fit the net, or the layers each other, or if there is no layer with weights.
    From then on an exception that nobody catches on one rank ends the job: see `parallel/job/uncaught.py`.
    """
    end_job_when_uncaught()
    _check_serial(net)
    grid, plan = _grid_or_text(grid), _plan_text(plan)
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


def _check_serial(net):
    if isinstance(net, ParallelSequential):
        raise ValueError("the network is parallel already: parallelize the serial one, and only once")
    if not isinstance(net, Sequential):
        raise ValueError(f"parallelize takes a Sequential, not a {type(net).__name__}: put the layers into Sequential([..])")


def _grid_or_text(grid):
    if isinstance(grid, dict):
        return ",".join(f"{axis}={ranks}" for axis, ranks in grid.items())
    if not isinstance(grid, str | ProcessGrid):
        raise ValueError(f"the grid must be a ProcessGrid, a text such as batch=4,model=2, or auto, not {grid!r}")
    return grid


def _plan_text(plan):
    if isinstance(plan, list | tuple) and plan and all(isinstance(word, str) for word in plan):
        return ",".join(plan)
    if plan is not None and not isinstance(plan, str):
        raise ValueError(f"the plan must be a text such as out,in, or a list of such words, not {plan!r}")
    return plan


class ParallelSequential(Sequential):
    """One rank's part of a network.

    placed: what `place` gave. plan: the placement of the weights of each Linear and Conv2d, see `parallel/placement/plans.py`.
    input, output: the Layouts of what `forward` takes and returns.
    reduction: how gradients are summed, see `parallel/sync/reduction.py`; `choice` makes it of the network. The first use of
    `params` is collective: ranks may share memory.
    """

    def __init__(self, placed, grid, seed, dtype, choice=Plain):
        super().__init__(placed.layers, seed=seed, dtype=dtype, input_shape=placed.input.shape)
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

    def output_shape(self, shape):
        """As of Sequential: of the samples that this network was placed for."""
        if tuple(shape) != self.input.shape:
            raise ValueError(f"the network was made parallel for samples of shape {self.input.shape}, not {tuple(shape)}")
        return self.output.shape

    def allocate(self, size):
        return self.reduction.allocate(size)

    def backward(self, dy, input_gradient=False):
        """As of Sequential. `synchronise` must follow: it makes the gradients of parameters that several ranks hold final.

        The gradient of the input is that of this rank's block of it, `input_block`, whole on every rank. Collective.
        """
        self.parameters  # noqa: B018 (allocates on first use)
        self.reduction.begin()
        try:
            dx = super().backward(dy, input_gradient)
            return self._summed(dx) if input_gradient else None
        except BaseException:
            pause.action = None  # the other ranks may never come: nobody waits for them
            raise

    def _summed(self, dx):
        """The gradient of the input block, of which ranks that hold the same block computed the terms of a sum.

        Only the algorithm "laugier" has summed them at each layer, and so here too.
        """
        axes = [axis for axis, placement in self.input.placements.items() if placement == Replicate()]
        if axes and "laugier" not in self.plan:
            dx = xp.ascontiguousarray(dx)
            self.grid.group(*axes).all_reduce(dx, "input gradient")
        return dx

    def learn(self, x, y, loss, optimizer):
        """As of Sequential: x, y are the whole global minibatch, of which this rank takes its part. Collective."""
        x, y = checked_minibatch(self, x, y, loss, optimizer)
        mine, rows = np.ascontiguousarray(x[self.input_block(len(x))]), y[self.output_rows(len(x))]
        return train_step(self, loss, optimizer, mine, rows, len(x))

    def accumulate(self, dy):
        """Backward of a micro-batch that is not the last one: its gradients are added to those of the next `backward`."""
        super().backward(dy)
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
