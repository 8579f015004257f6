"""One rank's part of a network through which several micro-batches pass at a time: a pipeline."""

from functools import cached_property

from gridgrad.nn.device import xp
from gridgrad.nn.sequence import Chunk
from gridgrad.parallel.pipeline.simulate import simulate
from gridgrad.parallel.training.executor import Executor, MicroBatch, WeightVersions
from gridgrad.parallel.training.messages import BufferPool, MpiTransport
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.pipeline_trainer import AsynchronousTrainer, SynchronousTrainer


class PipelinedSequential(ParallelSequential):
    """A ParallelSequential cut into chunks, through which micro-batches pass in the order of a schedule. named: what
    `schedule_names.parse` returns. ValueError if it has other stages or micro-batches; Unsound if ranks can not follow it."""

    # With stages, a rank has the layers of all chunks, but empty blocks of the parameters of those of other ranks. Inputs come
    # to the rank of the first chunk, and outputs are on that of the last one.

    def __init__(self, placed, grid, seed, dtype, make_reduction, stage_map, named, micro_batches):
        self.stage_map, self.named, self.pipeline, self.micro_batches = stage_map, named, named.name, micro_batches
        super().__init__(placed, grid, seed, dtype, make_reduction)
        self.route, self.place = stage_map.route, grid.coordinates[stage_map.axis]  # `place`: among the ranks of the pipeline
        self.chunks = {number: Chunk(layers) for number, layers in stage_map.chunks.items()}
        self.last, self._trainer, self._schedules = self.route.chunks - 1, None, {}
        self.steps_under_way = named.in_flight or 1
        self.interrupted = False  # whether a training step ended with an exception
        self.schedule(micro_batches)  # now, so that one that is wrong is found before anything runs

    @cached_property
    def executor(self):
        """The Executor of this rank's instructions."""
        pool = BufferPool(self.dtype)
        transport = MpiTransport(self.grid.group(self.stage_map.axis), self.route.chunks, pool)
        self.observe(transport)
        versions = WeightVersions(self.flat_with_memory()) if self.named.in_flight and self.named.stash else None
        return Executor(self.chunks, self.stage_map.boundaries, self.last, transport, pool, versions)

    def slice_of(self, chunk):
        """The slice of the flat buffers with the parameters of one of this rank's chunks."""
        before = sum(self.chunks[number].size for number in self.chunks if number < chunk)
        return slice(before, before + self.chunks[chunk].size)

    def schedule(self, micro_batches):
        """The complete Schedule of a minibatch in some micro-batches. ValueError if ranks can not follow it."""
        if micro_batches not in self._schedules:
            if self.stage_map.times:
                found = self.named.schedule_on(self.route, micro_batches, self.stage_map.times)
            else:
                found = self.named.schedule(self.route.ranks, micro_batches)
            self._schedules[micro_batches] = self.named.complete(found)
        return self._schedules[micro_batches]

    def kept_at_most(self):
        if self.named.in_flight:
            return self.named.in_flight, self.named.in_flight if self.named.stash else 1
        return -(-simulate(self.schedule(self.micro_batches)).peak_open[self.place] // len(self.chunks)), 1

    def pipeline_report(self):
        """A dict for a report, on rank 0; None elsewhere. Collective. open: the most micro-batches under way in each chunk.
        bytes: the most that these stored, with the versions of the weights."""
        executor = self.executor
        ranks = self.grid.gather({
            "open": executor.open_at_most, "versions": executor.versions_at_most,
            "bytes": executor.peak_bytes(self.params.nbytes), "staleness": dict(executor.stale),
        })  # fmt: skip
        if ranks is None:
            return None
        cuts = {} if self.stage_map.cuts is None else {"cuts": list(self.stage_map.cuts)}
        return {"pipeline": self.pipeline, "micro_batches": self.micro_batches, **cuts, "pipeline_ranks": ranks}

    def trainer(self, loss, optimizer, context=None):
        """The PipelineTrainer for the schedule. ValueError for another loss or optimizer while steps are under way."""
        if context is not None:
            raise ValueError("a pipeline has a context for each micro-batch under way: leave the context out")
        if self._trainer is None or (self._trainer.loss, self._trainer.optimizer) != (loss, optimizer):
            self._check_flushed()
            self._trainer = (AsynchronousTrainer if self.named.in_flight else SynchronousTrainer)(self, loss, optimizer)
        return self._trainer

    def forward(self, x, context=None, batch_size=None, first=0, minibatch_size=None):
        """The outputs for this rank's block of x in an evaluation. Collective. ValueError for a context that is for training,
        and while training steps are under way."""
        self._check_flushed()
        if context is not None and context.training:
            raise ValueError("a pipeline is trained by net.learn(..) or by net.trainer(loss, optimizer), not by single passes")
        self.allocate()
        batch_size, context = len(x) if batch_size is None else batch_size, context or self.context
        context.training = False
        context.begin(self.seed, self.step, batch_size, first, minibatch_size)
        self._attach_observer(context)
        micro_batch = MicroBatch(x, None, batch_size, first, minibatch_size or batch_size, self.step)
        outputs = self.executor.evaluate(micro_batch, context)
        if self.last in self.chunks:
            return outputs
        return xp.empty(self.output.of(batch_size).local_shape(self.grid.coordinates), self.dtype)

    def global_value(self, parameter, everywhere=False):
        self._check_flushed()
        return super().global_value(parameter, everywhere)

    def load_state_dict(self, state, strict=True):
        self._check_flushed()
        super().load_state_dict(state, strict)

    def adopt(self, placed):
        raise ValueError("the shares of a pipeline can not change while it is trained: leave rebalancing out")

    def _check_flushed(self):
        self.check_free(None)
        if self._trainer is not None and self._trainer.submitted:
            raise ValueError("training steps of the pipeline are under way: call flush() of its trainer first")

    def check_free(self, trainer):
        """Raise ValueError if a trainer may not train now: another one has taken its place, or a step was interrupted."""
        if self.interrupted:
            raise ValueError("a training step of the pipeline was interrupted by an exception: make the network anew")
        if trainer is not None and trainer is not self._trainer:
            raise ValueError("this trainer of the pipeline is no longer the newest: use the one that net.trainer(..) returns")

    @property
    def passes(self):
        raise ValueError("no rank of a pipeline has all layers: use net.learn(..), net.trainer(..) or net.predict(..)")

    def __repr__(self):
        lines = []
        for number, chunk in self.chunks.items():
            lines += [f"chunk {number} of {self.last + 1}:"] + [f"{layer.name:>4}  {layer!r}" for layer in chunk.layers]
        return "\n".join(lines)
