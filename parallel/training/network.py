"""The parallel network: one rank's part of a serial network that is placed on a process grid."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from gridgrad.nn.context import Context
from gridgrad.nn.device import as_input, to_device, to_host, xp
from gridgrad.nn.minibatch_checks import checked_minibatch, checked_samples
from gridgrad.nn.observer import Observer
from gridgrad.nn.sequence import Chunk
from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.grid.process_grid import BATCH, ProcessGrid
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.pipeline.schedule import Route, Schedule
from gridgrad.parallel.pipeline.schedule_names import ScheduleSpec
from gridgrad.parallel.pipeline.simulate import TableTimes, simulate
from gridgrad.parallel.placement.layout import gather_blocks
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.plans.place_network import Placed
from gridgrad.parallel.sync.reduction import BlockingReduction, Reduction
from gridgrad.parallel.training.executor import Executor, MicroBatch, WeightVersions
from gridgrad.parallel.training.messages import Messages
from gridgrad.parallel.training.steps import UNDER_WAY, WHOLE, Trainer


@dataclass(frozen=True)
class StageMap:
    """A pipeline: its schedule, how its ranks share a network, and what travels between the chunks of the network."""

    named: ScheduleSpec
    axis: str  # along which the ranks of a pipeline are
    chunks: dict  # {number: layers} of this rank
    boundaries: dict  # {number of a chunk: the boundary before it}
    route: Route
    times: TableTimes | None = None  # by which the order of a schedule is chosen
    cuts: tuple | None = None  # the positions of the layers with which the second and later chunks begin
    _schedules: dict = field(default_factory=dict)  # {number of micro-batches: Schedule}

    def schedule(self, micro_batches: int) -> Schedule:
        """The complete Schedule for a minibatch in some micro-batches. ValueError if ranks can not follow it."""
        if micro_batches not in self._schedules:
            if self.times:
                found = self.named.schedule_on(self.route, micro_batches, self.times)
            else:
                found = self.named.schedule(self.route.ranks, micro_batches)
            self._schedules[micro_batches] = self.named.complete(found)
        return self._schedules[micro_batches]


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
    micro_batches : int
        Into how many parts `learn` cuts a minibatch.
    stage_map : StageMap, optional
        A pipeline. ValueError if its schedule has other stages or micro-batches; Unsound if ranks can not follow it.

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

    # In a pipeline of stages, a rank has the layers of all chunks, but empty blocks of the parameters of those of other ranks.
    # Inputs come to the rank of the first chunk, and outputs are on that of the last one.

    pipeline: str | None = None  # the name of the schedule of a pipeline
    named: ScheduleSpec | None = None  # that schedule
    steps_under_way = 1  # how many training steps may be under way at a time
    interrupted = False  # whether a step of a pipeline ended with an exception
    loss: Any = None  # that of the newest trainer, for which `blocks` checks minibatches

    def __init__(
        self,
        placed: Placed,
        grid: ProcessGrid,
        seed: int,
        dtype: Any,
        make_reduction: Callable[["ParallelSequential"], Reduction] = BlockingReduction,
        micro_batches: int = 1,
        stage_map: StageMap | None = None,
    ) -> None:
        super().__init__((), seed=seed, dtype=dtype, input_shape=placed.input.sample_shape)
        self.grid, self.micro_batches, self.stage_map = grid, micro_batches, stage_map
        self._place(placed)
        self.flat: Reduction = make_reduction(self)
        self._trainer: Trainer | None = None
        if stage_map:
            self.named, self.pipeline = stage_map.named, stage_map.named.name
            self.steps_under_way = self.named.in_flight or 1
            self.route, self.place = stage_map.route, grid.coordinates[stage_map.axis]  # the latter: among its ranks
            self.chunks, self.last = {n: Chunk(layers) for n, layers in stage_map.chunks.items()}, self.route.chunks - 1
            stage_map.schedule(micro_batches)  # now, so that one that is wrong is found before anything runs

    def _place(self, placed):
        self.set_layers(placed.layers)
        vars(self).pop("executor", None)
        self.plan, self.splits, self.input, self.output = placed.plan, placed.splits, placed.input, placed.output
        self.is_counted = self.output.is_counted(self.grid.coordinates)

    def adopt(self, placed: Placed) -> None:
        """Take the layers of another placing of the same network, without memory. Observers and the kind of reduction stay."""
        if self.stage_map:
            raise ValueError("the shares of a pipeline can not change while it is trained: leave rebalancing out")
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
        """Write this rank's partial sums of the gradients, as in Sequential; `start` and `finish` of `net.reduction` sum them.
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
        if not self.stage_map:
            return 1, 1
        named = self.stage_map.named
        if named.in_flight:
            return named.in_flight, named.in_flight if named.stash else 1
        return -(-simulate(self.stage_map.schedule(self.micro_batches)).peak_open[self.place] // len(self.chunks)), 1

    def pipeline_report(self) -> dict[str, Any] | None:
        """What a report says of a pipeline: a dict, empty where there is none, on rank 0; else None. Collective.
        open: the most micro-batches under way in each chunk. bytes: the most that these and versions of the weights took."""
        if not self.stage_map:
            return {}
        executor = self.executor
        ranks = self.grid.gather({
            "open": executor.open_at_most, "versions": executor.versions_at_most,
            "bytes": executor.peak_bytes(self.params.nbytes), "staleness": dict(executor.stale),
        })  # fmt: skip
        if ranks is None:
            return None
        cuts = {} if self.stage_map.cuts is None else {"cuts": list(self.stage_map.cuts)}
        return {"pipeline": self.pipeline, "micro_batches": self.micro_batches, **cuts, "pipeline_ranks": ranks}

    def slice_of(self, chunk: int) -> slice:
        """The slice of the flat buffers with the parameters of one of this rank's chunks."""
        before = sum(self.chunks[number].size for number in self.chunks if number < chunk)
        return slice(before, before + self.chunks[chunk].size)

    @cached_property
    def executor(self) -> Executor:
        """What carries out the instructions of this rank in training steps."""
        flat, stage_map = self.flat_with_memory(), self.stage_map
        if not stage_map:
            return Executor(self, {0: self.passes}, 0)
        messages = Messages(self.grid.group(stage_map.axis), self.route, self.place, stage_map.boundaries, self.dtype)
        self.observe(messages)
        versions = WeightVersions(flat) if stage_map.named.in_flight and stage_map.named.stash else None
        return Executor(self, self.chunks, self.last, messages, versions)

    def trainer(self, loss: Any, optimizer: Any, context: Context | None = None) -> Trainer:
        """The Trainer of this network, see there for the arguments. ValueError for another loss or optimizer while steps of a
        pipeline are under way."""
        if context is not None and self.stage_map:
            raise ValueError("a pipeline has a context for each micro-batch under way: leave the context out")
        made = self._trainer
        if made is None or made.loss is not loss or made.optimizer is not optimizer or made.context is not context:
            self._check_flushed()
            self._trainer = made = Trainer(self, loss, optimizer, context)
        return made

    def _check_flushed(self):
        self.check_free(None)
        if self._trainer is not None and self._trainer.submitted:
            raise ValueError(UNDER_WAY)

    def check_free(self, trainer: Trainer | None) -> None:
        """ValueError if a trainer of a pipeline may not train now: another one took its place, or a step was interrupted."""
        if self.interrupted:
            raise ValueError("a training step of the pipeline was interrupted by an exception: make the network anew")
        if trainer is not None and trainer is not self._trainer:
            raise ValueError("this trainer of the pipeline is no longer the newest: use the one that net.trainer(..) returns")

    @cached_property
    def passes(self) -> Chunk:
        """The passes through all layers. ValueError in a pipeline."""
        if self.stage_map:
            raise ValueError("no rank of a pipeline has all layers: use net.learn(..), net.trainer(..) or net.predict(..)")
        return super().passes

    def load_state_dict(self, state: Mapping[str, ArrayLike] | None, strict: bool = True) -> None:
        """Load global arrays, as in Sequential; every rank copies its blocks. If the state is None on some rank, all take that
        of rank 0; ValueError, on all ranks, if that is None too. Collective."""
        self._check_flushed()
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
        batch_size: samples of the global minibatch. ValueError if it is missing on several ranks; of a pipeline, for a context
        that is for training, and while training steps are under way."""
        if batch_size is None and self.grid.size > 1:
            raise ValueError("forward takes a rank's block of x: say how many samples there are on all ranks, batch_size=.., "
                             "or use predict, which takes x whole")  # fmt: skip
        if not self.stage_map:
            return super().forward(x, context, batch_size, first, minibatch_size)
        self._check_flushed()
        if context is None:
            context = self.context
        elif context.training:
            raise ValueError("a pipeline is trained by net.learn(..) or by net.trainer(loss, optimizer), not by single passes")
        self.allocate()
        inputs, context.training = as_input(x, self.dtype), False
        samples = len(inputs) if batch_size is None else batch_size
        context.begin(self.seed, self.step, samples, first, minibatch_size)
        self._attach_observer(context)
        part = MicroBatch(inputs, None, samples, first, minibatch_size or samples, self.step)
        outputs = self.executor.evaluate(part, context)
        if self.last in self.chunks:
            return outputs
        return xp.empty(self.output.of(samples).local_shape(self.grid.coordinates), self.dtype)

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
        self._check_flushed()
        return gather_blocks(self.grid, parameter.value, parameter.layout, "state", everywhere)

    def __repr__(self):
        if not self.stage_map:
            return super().__repr__()
        lines = []
        for number, chunk in self.chunks.items():
            lines += [f"chunk {number} of {self.last + 1}:"] + [f"{layer.name:>4}  {layer!r}" for layer in chunk.layers]
        return "\n".join(lines)
