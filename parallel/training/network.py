"""From the serial network to the one that a rank of a grid runs."""

from contextlib import contextmanager
from math import prod

import numpy as np

from nn.device import empty, xp
from nn.minibatch_checks import checked_minibatch
from nn.sequence import mark_in_place
from nn.sequential import Sequential
from nn.window import put
from parallel.placement.partition import size
from parallel.placement.place_network import place
from parallel.sync.reduction import Plain
from parallel.training.steps import train_step


def distribute(net, grid, plan="fewest-bytes", reduction=Plain, shares=None, owners=None):
    """The network that this rank runs, a ParallelSequential without memory, with values that are taken as they are.

    net: a serial Sequential; one that was never used costs no memory, and one that was passes its weights on.
    grid: a ProcessGrid. plan, shares, owners: see `parallelize`. reduction: a function that makes a Reduction of the network.
    ValueError where they do not fit together.
    """
    parallel = ParallelSequential(place(net, grid, plan, shares, owners), grid, net.seed, net.dtype, reduction)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


class ParallelSequential(Sequential):
    """One rank's part of a network.

    placed: what `place` gave. plan: the placement of the weights of each Linear and Conv2d, see `parallel/placement/plans.py`.
    input, output: the Layouts of what `forward` takes and returns.
    reduction: how gradients are summed, see `parallel/sync/reduction.py`; `choice` makes it of the network.

    It has no memory until `allocate`, which is collective, since ranks may share it.
    """

    def __init__(self, placed, grid, seed, dtype, choice=Plain):
        super().__init__(placed.layers, seed=seed, dtype=dtype, input_shape=placed.input.sample_shape)
        self.grid, self.plan, self.splits = grid, placed.plan, placed.splits
        self.input, self.output = placed.input, placed.output
        self.reduction = choice(self)

    def arrange(self, layers):
        """They are in order, under the names of the serial layers that they belong to."""
        return mark_in_place(list(layers))

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

    @property
    def parameters(self):
        """As of Sequential. RuntimeError before `allocate`: asking communicates never, while ranks may share memory."""
        self._check_allocated()
        return super().parameters

    @property
    def params(self):
        self._check_allocated()
        return super().params

    @property
    def grads(self):
        self._check_allocated()
        return super().grads

    def _check_allocated(self):
        if not self.allocated:
            raise RuntimeError("this network has no memory yet: call allocate(), on all ranks together")

    def flat_buffers(self, size):
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
        """As of Sequential. `synchronise` must follow: it makes the gradients of parameters that several ranks hold final.

        The gradient of the input is that of this rank's block of it, `input_block`, whole on every rank. Collective.
        """
        with self._reducing():
            dx = super().backward(dy, context, input_gradient)
            return self._summed(dx) if input_gradient else None

    def input_gradients(self, dy, context, input_gradient=False):
        """As of Sequential; the gradient of the input is as that of `backward`. Collective."""
        dx = super().input_gradients(dy, context, input_gradient)
        return self._summed(dx) if input_gradient else None

    def parameter_gradients(self, context):
        """As of Sequential; of the last micro-batch, `synchronise` must follow."""
        with self._reducing():
            super().parameter_gradients(context)

    @contextmanager
    def _reducing(self):
        """Around what writes the last gradients of a step."""
        self.reduction.start()
        try:
            yield
        except BaseException:
            self.reduction.interrupt()
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
        self.allocate()
        self.grid.comm.Barrier()
        yield
        self.grid.comm.Barrier()

    @property
    def replicas(self):
        """The ranks that hold the same parameters as this one, of all layers: a Group."""
        shared = [set(p.layout.replicated) for leaf in self.leaves() for p in leaf.parameters]
        return self.grid.group(*set.intersection(*shared))

    def global_value(self, parameter, everywhere=False):
        """The global array of which `parameter` holds a block, on rank 0 or `everywhere`; None on the others. Collective."""
        layout, coordinates = parameter.layout, self.grid.coordinates
        if not everywhere and not layout.is_counted(coordinates):
            return None
        group = self.grid.group(*layout.sharded)
        if group.size == 1:
            return parameter.value
        blocks = [layout.block(coordinates | place) for place in self.grid.places(*layout.sharded)]
        counts = [prod(map(size, block)) for block in blocks]
        flat = empty(sum(counts), self.dtype) if everywhere or group.rank == 0 else None
        gather = group.all_gather if everywhere else group.gather
        gather(parameter.value, flat, counts, "state")
        if flat is None:
            return None
        whole, start = xp.empty(parameter.shape, self.dtype), 0
        for block, count in zip(blocks, counts, strict=True):
            put(whole, block, flat[start : start + count].reshape([size(part) for part in block]))
            start += count
        return whole
