"""From the serial network to the one that a rank of a grid runs."""

from contextlib import contextmanager
from math import prod
from functools import partial

import numpy as np
from mpi4py import MPI

from nn.sequence import sharing
from nn.device import empty, xp
from nn.minibatch_checks import checked_minibatch
from nn.pauses import pause
from nn.sequential import Sequential
from nn.window import put
from parallel.auto.reductions import choose
from parallel.grid.process_grid import ProcessGrid, parse_grid
from parallel.placement.partition import size
from parallel.placement.place_network import place
from parallel.job.uncaught import end_job_when_uncaught
from parallel.performance.planner import BATCH_SIZE, planned
from parallel.sync.reduction import Plain
from parallel.training.steps import train_step


def parallelize(
    net, grid="auto", plan=None, reduction="plain", sharded=None, half=False, batch_size=BATCH_SIZE, memory=None, machine=None,
    shares=None, owners=None,
):  # fmt: skip
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
    shares: {axis: weights}, one number for each rank of an axis, in proportion to which they take samples, rows, channels or
    neurons along it, such as {"model": (3, 2), "batch": (2, 1)}; a share may be 0. By default they are even.
    owners: {name of a layer: Partition} of the outputs of layers that a plan splits by "out", where they are not to be
    consecutive: a `Partition.owned` says for each output which rank of the axis model has it.
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
    placed = place(net, grid, "fewest-bytes" if plan is None else plan, shares, owners)
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
        super().__init__(placed.layers, seed=seed, dtype=dtype, input_shape=placed.input.sample_shape)
        self.grid, self.plan, self.splits = grid, placed.plan, placed.splits
        self.input, self.output = placed.input, placed.output
        self.reduction = choice(self)

    def arrange(self, layers):
        """They are in order, under the names of the serial layers that they belong to."""
        return sharing(list(layers))

    def input_block(self, batch_size):
        """The index of the part of a global minibatch x that this rank's `forward` takes: x[net.input_block(len(x))]."""
        return self.input.of(batch_size).block(self.grid.coordinates)

    def output_rows(self, batch_size):
        """The slice of the global minibatch whose outputs this rank's `forward` returns."""
        return self.output.rows(batch_size, self.grid.coordinates)

    @property
    def is_counted(self):
        """Whether this rank's outputs count in sums over the grid (otherwise they are copies of another rank's)."""
        return self.output.is_counted(self.grid.coordinates)

    def output_shape(self, shape):
        """As of Sequential: of the samples that this network was placed for."""
        if tuple(shape) != self.input.sample_shape:
            raise ValueError(f"the network was made parallel for samples of shape {self.input.sample_shape}, not {tuple(shape)}")
        return self.output.sample_shape

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
        """The gradient of the input block, whose partial sums are on the ranks that hold the same block.

        The algorithm "laugier" alone has added them up at each layer, and so here too.
        """
        if "laugier" not in self.plan:
            dx = xp.ascontiguousarray(dx)
            self.grid.group(*self.input.replicated).all_reduce(dx, "input gradient")
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

    @property
    def replicas(self):
        """The ranks that hold the same parameters as this one, of all layers: a Group."""
        shared = [set(p.layout.replicated) for leaf in self.leaves() for p in leaf.parameters]
        return self.grid.group(*set.intersection(*shared))

    def whole(self, parameter):
        """The global array of which `parameter` holds a block, on every rank. Collective, as is `state_dict`."""
        layout = parameter.layout
        group = self.grid.group(*layout.sharded)
        if group.size == 1:
            return parameter.value
        blocks = [layout.block(self.grid.coordinates | place) for place in self.grid.places(*layout.sharded)]
        counts = [prod(map(size, block)) for block in blocks]
        flat = empty(sum(counts), self.dtype)
        group.all_gather(parameter.value, flat, counts, "state")
        whole = xp.empty(parameter.shape, self.dtype)
        start = 0
        for block, count in zip(blocks, counts, strict=True):
            put(whole, block, flat[start : start + count].reshape([size(part) for part in block]))
            start += count
        return whole
