"""The parallel network: one rank's part of a serial network that is placed on a process grid."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from gridgrad.nn.context import Context
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.minibatch_checks import checked_minibatch, checked_samples
from gridgrad.nn.observer import Observer
from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.grid.process_grid import BATCH, ProcessGrid
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.placement.layout import gather_blocks
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.plans.place_network import Placed
from gridgrad.parallel.sync.reduction import BlockingReduction, Reduction
from gridgrad.parallel.training.steps import WHOLE, Trainer


class ParallelSequential(Sequential):
    """One rank's part of a network on a process grid: a Sequential whose layers hold this rank's blocks of the weights.

    `parallelize` and `distribute` make it. The flat buffers have no memory until `allocate`, which is collective, since ranks
    may share memory. All passes (`forward`, `backward`, ...) are collective over the grid.

    Parameters
    ----------
    placed : Placed
        The layers of this rank: what `place` of `parallel/plans/place_network.py` returns.
    grid : ProcessGrid
        The grid.
    seed, dtype
        As in Sequential.
    make_reduction : function
        A function that returns the Reduction for this network.

    Attributes
    ----------
    plan
        The placement of the weights of each Linear and Conv2d, see `parallel/plans/plans.py`.
    splits
        How each axis splits its dimension.
    input, output
        The Layouts of the minibatch that `forward` takes and of what it returns.
    is_counted
        Whether this rank's outputs count in sums over the grid; otherwise they are copies of another rank's outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Linear, ReLU, Sequential
    >>> from gridgrad.parallel import parallelize
    >>> serial = Sequential([Linear(3, 4), ReLU(), Linear(4, 2)], seed=1, dtype=np.float64)
    >>> net, x = parallelize(serial, f"model={MPI.COMM_WORLD.size}"), np.ones((5, 3))
    >>> outputs = net.predict(x)  # on rank 0, None elsewhere
    >>> outputs is None or np.allclose(outputs, serial.predict(x), rtol=1e-12)
    True
    >>> state = net.state_dict(everywhere=True)  # whole arrays, in PyTorch's names and shapes
    >>> {name: value.shape for name, value in state.items()}
    {'0.weight': (4, 3), '0.bias': (4,), '2.weight': (2, 4), '2.bias': (2,)}
    >>> net.grid.free()
    """

    micro_batches = 1  # into how many parts `learn` cuts a minibatch
    pipeline: str | None = None  # the name of the schedule of a pipeline
    steps_under_way = 1  # how many training steps may be under way at a time
    loss: Any = None  # that of the newest trainer, for which `blocks` checks minibatches

    def __init__(
        self,
        placed: Placed,
        grid: ProcessGrid,
        seed: int,
        dtype: Any,
        make_reduction: Callable[["ParallelSequential"], Reduction] = BlockingReduction,
    ) -> None:
        super().__init__((), seed=seed, dtype=dtype, input_shape=placed.input.sample_shape)
        self.grid = grid
        self._place(placed)
        self.flat: Reduction = make_reduction(self)

    def _place(self, placed):
        self.set_layers(placed.layers)
        self.plan, self.splits, self.input, self.output = placed.plan, placed.splits, placed.input, placed.output
        self.is_counted = self.output.is_counted(self.grid.coordinates)

    def adopt(self, placed: Placed) -> None:
        """Take the layers of another placing of the same network, without memory. Observers and the kind of reduction stay."""
        if isinstance(self.reduction, Observer):
            self.forget(self.reduction)
        self._place(placed)
        self.flat = self.reduction.again()

    @property
    def reduction(self) -> Reduction:
        """The flat buffers, and how gradients are summed."""
        return self.flat

    def input_block(self, batch_size: int) -> tuple[slice | np.ndarray, ...]:
        """The index of this rank's block of a global minibatch x, which `forward` takes: x[net.input_block(len(x))]."""
        return self.input.of(batch_size).block(self.grid.coordinates)

    def output_rows(self, batch_size: int) -> slice | np.ndarray:
        """The slice of a global minibatch whose outputs this rank's `forward` returns."""
        return self.output.rows(batch_size, self.grid.coordinates)

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one output, as in Sequential. ValueError for samples of another shape than those it was placed for,
        where ranks divide more than the samples."""
        if tuple(shape) != self.input.sample_shape:
            if self.grid.size == self.grid.sizes[BATCH]:
                return super().output_shape(tuple(shape))
            raise ValueError(f"the network was placed for samples of shape {self.input.sample_shape}, not {tuple(shape)}")
        return self.output.sample_shape

    def flat_with_memory(self) -> Reduction:
        """`flat`. RuntimeError before `allocate`: that is collective here, and reading a property never communicates."""
        if not self.allocated:
            raise RuntimeError("this network has no memory yet: call allocate(), on all ranks together")
        return self.flat

    def observe(self, observer: Observer) -> None:
        """Register an observer, as in Sequential. If it `hears_collectives`, it is told of those of the grid too."""
        super().observe(observer)
        if observer.hears_collectives:
            self.grid.tally.observe(observer)

    def forget(self, observer: Observer) -> None:
        """Unregister an observer."""
        super().forget(observer)
        self.grid.tally.forget(observer)

    def backward(self, dy: np.ndarray, context: Context, input_gradient: bool = False) -> np.ndarray | None:
        """Write this rank's partial sums of the gradients, as in Sequential; `with net.reduction.backward():` they are summed.
        With `input_gradient` it returns the summed gradient of this rank's input block, otherwise None. Collective."""
        return self._summed(super().backward(dy, context, input_gradient))

    def input_gradients(self, dy: np.ndarray, context: Context, input_gradient: bool = False) -> np.ndarray | None:
        """The half of `backward` that computes input gradients, as in Sequential; returns what `backward` does. Collective."""
        return self._summed(super().input_gradients(dy, context, input_gradient))

    def _summed(self, dx):
        """Add the partial sums of an input gradient, or None, over the ranks that hold the same block. Collective."""
        if dx is None:
            return None
        dx = xp.ascontiguousarray(dx)
        self.grid.group(*self.input.summed).all_reduce(dx, "input gradient")
        return dx

    def learn(self, x: ArrayLike, y: ArrayLike, loss: Any, optimizer: Any) -> float:
        """One training step on the whole global minibatch x, y, the same on all ranks; returns its mean loss. Collective."""
        trainer = self.trainer(loss, optimizer)
        inputs, targets = checked_minibatch(self, x, y, loss)
        parts = (part for part in Partition.even(len(inputs), self.micro_batches).parts if size(part))
        mine = (self._blocks(inputs[part], targets[part]) for part in parts)
        return trainer.complete_step(mine, len(inputs))

    def blocks(self, x: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, int]:
        """(this rank's block of x, its targets, the number of samples) of a global micro-batch, which every rank passes whole.
        ValueError if they do not fit the network, or the loss of its newest trainer."""
        return self._blocks(*checked_minibatch(self, x, y, self.loss))

    def _blocks(self, x, y):
        return np.ascontiguousarray(x[self.input_block(len(x))]), y[self.output_rows(len(x))], len(x)

    def kept_at_most(self) -> tuple[int, int]:
        """(micro-batches whose outputs this rank keeps at a time, versions of its parameters), at most."""
        return 1, 1

    def pipeline_report(self) -> dict[str, Any]:
        """What a report says of a pipeline: a dict, empty where there is none; on rank 0. Collective."""
        return {}

    def trainer(self, loss: Any, optimizer: Any, context: Context | None = None) -> Any:
        """The Trainer of this network, see there for the arguments."""
        return Trainer(self, loss, optimizer, context)

    def load_state_dict(self, state: Mapping[str, ArrayLike] | None, strict: bool = True) -> None:
        """Load global arrays, as in Sequential; every rank copies its blocks. If the state is None on some rank, all take that
        of rank 0; ValueError, on all ranks, if that is None too. Collective."""
        meet(self.grid.comm, "a state, which may be read on rank 0 alone")
        missing = self.grid.comm.allreduce(state is None, MPI.LOR)
        whole: Any = self._of_first_rank(state) if missing else state
        with self.exclusive():
            super().load_state_dict(whole, strict)

    def _of_first_rank(self, state):
        """Broadcast the state of rank 0: a dict of arrays. ValueError, on all ranks, if rank 0 has none. Collective."""
        comm = self.grid.comm
        kinds = comm.bcast(state and {name: (np.shape(value), np.asarray(value).dtype) for name, value in state.items()})
        if not kinds:
            raise ValueError("load_state_dict: rank 0 has no state to load")
        found = {}
        for name, (shape, dtype) in kinds.items():
            found[name] = np.ascontiguousarray(state[name]) if comm.rank == 0 else np.empty(shape, dtype)
            comm.Bcast(found[name])
        return found

    def forward(
        self,
        x: ArrayLike,
        context: Context | None = None,
        batch_size: int | None = None,
        first: int = 0,
        minibatch_size: int | None = None,
    ) -> np.ndarray:
        """The outputs (see `output_rows`) for this rank's block of x (see `input_block`), as in Sequential. Collective.
        batch_size: samples of the global minibatch. ValueError if it is missing on several ranks."""
        if batch_size is None and self.grid.size > 1:
            raise ValueError("forward takes a rank's block of x: say how many samples there are on all ranks, batch_size=.., "
                             "or use predict, which takes x whole")  # fmt: skip
        return super().forward(x, context, batch_size, first, minibatch_size)

    def predict(self, x: ArrayLike) -> np.ndarray | None:
        """The outputs for x, as in Sequential, on rank 0; None elsewhere. x: the same whole array on every rank. Collective.
        ValueError, on all ranks, if the network does not take such samples, or the ranks pass different numbers of them."""
        samples, refused = None, None
        try:
            samples = checked_samples(self, x)
        except ValueError as error:
            refused = error
        count = -1 if samples is None else len(samples)
        least, most = self.grid.min(np.array([count, -count])) * (1, -1)
        if samples is None or least < 0:
            raise refused or ValueError("another rank passes samples that the network does not take")
        if least < most:
            raise ValueError(f"the ranks pass {least} to {most} samples: {WHOLE}")
        placed = samples.shape[1:] == self.input.sample_shape
        mine = samples[self.input_block(count) if placed else self.input.rows(count, self.grid.coordinates)]
        return self.gather_outputs(self.forward(to_device(np.ascontiguousarray(mine)), batch_size=count), count)

    def gather_outputs(self, outputs: np.ndarray, batch_size: int) -> np.ndarray | None:
        """The minibatch's outputs, (batch_size, ...), from those of `forward`, on rank 0; None elsewhere. Collective."""
        layout = replace(self.output, shape=(batch_size, *outputs.shape[1:]))
        whole = gather_blocks(self.grid, xp.ascontiguousarray(outputs), layout, "prediction")
        return None if whole is None else np.array(to_host(whole))  # a copy, since one rank's outputs are in a workspace

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A `with` block in which this rank may write `params`: no other rank that shares them is using them. Collective."""
        self.allocate()
        self.grid.comm.Barrier()
        yield
        self.grid.comm.Barrier()

    @property
    def replicas(self) -> Group:
        """The ranks that hold the same blocks of the parameters of all layers as this one, and share their update: a Group."""
        shared = [set(p.layout.summed) for leaf in self.leaves() for p in leaf.parameters]
        return self.grid.group(*set.intersection(*shared))

    def global_value(self, parameter: Any, everywhere: bool = False) -> np.ndarray | None:
        """The global array of which `parameter` holds this rank's block, on rank 0 or `everywhere`, else None. Collective."""
        return gather_blocks(self.grid, parameter.value, parameter.layout, "state", everywhere)
