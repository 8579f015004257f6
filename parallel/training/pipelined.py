"""One rank's part of a network whose layers are divided among the ranks of the axis `stage`: a pipeline."""

from functools import cached_property

from nn.chunk import Chunk
from nn.device import xp
from parallel.grid.process_grid import STAGE
from parallel.training.boundaries import StageBoundary
from parallel.training.executor import Executor, MicroBatch
from parallel.training.network import ParallelSequential
from parallel.training.pipeline_trainer import AsynchronousTrainer, SynchronousTrainer
from parallel.training.transports import BufferPool, MpiTransport
from parallel.training.weight_versions import WeightVersions


class PipelinedSequential(ParallelSequential):
    """A ParallelSequential whose layers are cut into chunks, each on one rank of the axis `stage`.

    named: the schedule, a result of `parallel.pipeline.names.parse`. micro_batches: into how many parts `learn` cuts a
    minibatch. The other arguments are those of ParallelSequential.

    A rank has the layers of all chunks, but empty blocks of the parameters of those of other ranks. chunks: {number: Chunk} of
    this rank. route: the Route. Inputs come to the rank of the first chunk, and outputs are on that of the last one; elsewhere
    `input_block` and `output_rows` are empty. It is trained by a trainer (see there) or by `learn`, not by passes that the
    caller makes.
    """

    def __init__(self, placed, grid, seed, dtype, make_reduction, named, micro_batches):
        self.named, self.pipeline, self.micro_batches = named, named.name, micro_batches
        self.route = named.route(grid.sizes[STAGE])
        super().__init__(placed, grid, seed, dtype, make_reduction)
        stage = grid.coordinates[STAGE]
        held = self.route.held(stage)
        self.chunks = {number: Chunk(placed.chunks[number], number == 0) for number in held}
        self.last, self._trainer = len(placed.chunks) - 1, None
        self.boundaries = {
            number: StageBoundary(placed.between[number], grid.coordinates, *self.route.places[number - 1],
                                  *self.route.places[number], stage)
            for number in range(1, self.last + 1)
        }  # fmt: skip

    @cached_property
    def executor(self):
        """The Executor of this rank's instructions."""
        pool = BufferPool(self.dtype)
        transport = MpiTransport(self.grid.group(STAGE), self.last + 1, pool)
        self.observe(transport)
        versions = None
        if self.named.in_flight and self.named.stash:
            versions = WeightVersions(self.params, [p for _, p in self.parameters])
        return Executor(self.chunks, self.boundaries, self.last, transport, pool, versions)

    def slice_of(self, chunk):
        """The slice of the flat buffers with the parameters of one of this rank's chunks."""
        before = sum(self.chunks[number].size for number in self.chunks if number < chunk)
        return slice(before, before + self.chunks[chunk].size)

    def trainer(self, loss, optimizer, context=None):
        """The trainer for the schedule of this network; see `parallel/training/pipeline_trainer.py`."""
        if self._trainer is None or (self._trainer.loss, self._trainer.optimizer) != (loss, optimizer):
            self._trainer = (AsynchronousTrainer if self.named.in_flight else SynchronousTrainer)(self, loss, optimizer)
        return self._trainer

    def forward(self, x, context=None, batch_size=None, first=0, minibatch_size=None):
        """The outputs for this rank's block of x in an evaluation, as in ParallelSequential. Collective.

        ValueError for a context that is for training: that is done by a trainer.
        """
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

    @property
    def executed_layers(self):
        raise ValueError("no rank of a pipeline has all layers: use net.learn(..), net.trainer(..) or net.predict(..)")

    def __repr__(self):
        lines = []
        for number, chunk in self.chunks.items():
            lines += [f"chunk {number} of {self.last + 1}:"] + [f"{layer.name:>4}  {layer!r}" for layer in chunk.layers]
        return "\n".join(lines)
