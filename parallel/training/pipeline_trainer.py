"""Training steps of a pipeline, synchronous and asynchronous. In neither is there a barrier between two steps: a rank goes on
to the next one as soon as it has done its part, and the loss of a step is known only some steps later."""

import math
from collections import defaultdict
from itertools import takewhile

from gridgrad.nn.device import to_device
from gridgrad.nn.divergence import DATA, RATE, not_finite
from gridgrad.nn.observer import observed
from gridgrad.parallel.pipeline.generators import around, stream
from gridgrad.parallel.training.executor import MicroBatch
from gridgrad.parallel.training.steps import NOT_ALL, Diverged, LossSum, Trainer, first_not_finite


class PipelineTrainer(Trainer):
    """What both kinds have in common. lag: how many steps later the loss of a step is known. staleness: Counter of minibatches
    by the updates of this rank between their forward and their backward pass; empty where training is synchronous."""

    def __init__(self, net, loss, optimizer, lag):
        super().__init__(net, loss, optimizer)
        self.lag, self.executor, self.submitted = lag, net.executor, 0  # the last one: steps begun since the last `flush`
        self._sums = {}  # {number of a step since then: its LossSum}
        self._data = {}  # {number of a step: (inputs, targets of this rank's micro-batches, samples)}, until its loss is known
        self._returned, self._first = 0, net.step  # how many of the losses; the step with number 0

    @property
    def observer(self):
        return self.net.observer

    def step(self, micro_batches, batch_size):
        """Begin a training step, see `accumulated_step`; returns the mean losses that are known now, in the order of the steps.
        Raises Diverged, on all ranks, if one is NaN or infinite. Collective."""
        self._take_over()
        if not self.submitted:
            self.begin()
        micro_batches = list(micro_batches)
        if (samples := sum(samples for *_, samples in micro_batches)) != batch_size:
            raise ValueError(NOT_ALL.format(samples, batch_size))
        self._data[self.submitted] = [x for x, *_ in micro_batches], [y for _, y, _ in micro_batches], batch_size
        self.submit(micro_batches, batch_size)
        self.submitted += 1
        return self._known(self.submitted - self.lag)

    def flush(self):
        """Finish all steps that have begun; returns the losses that were not known yet. Collective."""
        self._take_over()
        self.drain()
        losses = self._known(self.submitted)
        self._end()
        return losses

    def _take_over(self):
        """Let the executor carry out this trainer's steps. ValueError if the network has a newer trainer."""
        self.net.check_free(self)
        self.executor.driver = self

    def begin(self):
        """Called before the first step since the last `flush`."""
        self._first = self.net.step

    def drain(self):
        """Do the rest of all steps: what `submit`, which does this rank's part of a step, has left to later ones."""

    def run(self, instructions):
        """Carry out instructions. If that fails, messages may be left behind, and the network can not be used any more."""
        try:
            for _ in self.executor.run(instructions):
                pass
        except BaseException:
            self.net.interrupted = True
            self.executor.transport.abandon()
            self.net.reduction.interrupt()
            raise

    # ----- what the Executor calls, besides `begins` before the gradients of a chunk are computed, and `computed` afterwards

    def prepare(self, context, micro_batch):
        context.training = True
        context.begin(self.net.seed, micro_batch.step, micro_batch.samples, micro_batch.first, micro_batch.minibatch_size)
        self.net._attach_observer(context)

    def resume(self, context):
        self.net._attach_observer(context)

    def loss_known(self):
        """Called when this rank's part of the loss of a micro-batch is known."""

    def update(self, micro_batch):
        """Update the parameters. micro_batch: the number of the last one whose gradients take part."""
        self.net.reduction.finish()
        observed(self.net.observer, self.optimizer, "step")
        self.net.step += 1

    # ----- losses

    def add_losses(self, number, value):
        """Begin to sum the loss of a step over all ranks. value: this rank's part."""
        self._sums[number] = LossSum(self.net, value, self._data[number][-1])

    def _known(self, end):
        """The losses, not returned yet, of the steps before the one with number `end`."""
        losses = []
        while self._returned < end:
            value, problem = self._sums.pop(self._returned).wait()
            inputs, targets, _ = self._data.pop(self._returned)
            losses.append(value)
            step = self._first + self._returned
            self._returned += 1
            if problem or not math.isfinite(value):
                self.drain()
                self._end()
                self.net.reduction.drain()
                if problem:
                    raise ValueError(f"{problem}; step {step} was updated with them")
                raise Diverged(self._explained(step, value, inputs, targets))
        return losses

    def _end(self):
        """Complete all communication, so that no message is left behind, and forget the steps. Collective."""
        self.executor.transport.complete_sends()
        for loss_sum in self._sums.values():
            loss_sum.wait()
        self._sums.clear()
        self._data.clear()
        self.executor.micro_batches.clear()
        self.submitted = self._returned = 0

    def _explained(self, step, loss, inputs, targets):
        """The message for a loss that is not finite. Collective. inputs, targets: this rank's blocks, lists of equal lengths on
        all ranks. The parameters have been updated since, and activations are gone."""
        suspects = [("first not finite: the input", DATA, to_device(x)) for x in inputs]
        suspects += [("first not finite: the targets", DATA, to_device(y)) for y in targets]
        for layer, p in self.net.parameters:
            suspects.append((f"by now parameter {layer.name}.{p.name} is not finite", RATE, p.value))
        position = first_not_finite(self.net.grid, [array for *_, array in suspects])
        where, advice, _ = [*suspects, ("the data and the parameters are finite", RATE, None)][position]
        return not_finite(step, loss, where, advice)


class SynchronousTrainer(PipelineTrainer):
    """The micro-batches of one minibatch pass through the pipeline; then one update, as without a pipeline."""

    def __init__(self, net, loss, optimizer):
        super().__init__(net, loss, optimizer, lag=1)
        self._rows = {}  # by number of micro-batches

    def row(self, micro_batches):
        """This rank's (instructions, the last one with gradients of each chunk, the first of those that end the row)."""
        if micro_batches not in self._rows:
            row = self.net.schedule(micro_batches).rows[self.net.place]
            gradients = [one for one in row if one.op in ("B", "W")]
            last = set({one.chunk: one for one in gradients}.values())
            ending = list(takewhile(last.__contains__, reversed(gradients)))
            self._rows[micro_batches] = row, last, ending[-1] if ending else None
        return self._rows[micro_batches]

    def submit(self, micro_batches, batch_size):
        first, net = 0, self.net
        for number, (x, y, samples) in enumerate(micro_batches):
            self.executor.micro_batches[number] = MicroBatch(x, y, samples, first, batch_size, net.step)
            first += samples
        row, self._last, self._ending = self.row(len(micro_batches))
        self.run(row)
        losses = self.executor.losses
        self.add_losses(self.submitted, sum(losses.pop(number, 0.0) for number in range(len(micro_batches))))

    def begins(self, instruction):
        if instruction == self._ending:
            self.net.reduction.start()

    def computed(self, instruction):
        if instruction not in self._last:
            self.net.reduction.accumulate(self.net.slice_of(instruction.chunk))


class AsynchronousTrainer(PipelineTrainer):
    """A minibatch enters the pipeline while others are under way, and has its own update (Eserol 2019, section 4.2). At most
    `in_flight` are under way on a rank, with at most `bound` updates between forward and backward of one. With stashing, both
    use the same weights."""

    def __init__(self, net, loss, optimizer):
        super().__init__(net, loss, optimizer, lag=net.named.in_flight)
        self._unsummed = 0
        self._apart = defaultdict(dict)  # {minibatch: {chunk: gradients}} until its update, if there are several chunks

    @property
    def staleness(self):
        return self.executor.stale

    def begin(self):
        super().begin()
        named, route = self.net.named, self.net.route
        found = stream(route, named.in_flight, named.bound, self.net.stage_map.times)
        self._own = (instruction for rank, instruction in found if rank == self.net.place)
        self._next, self._unsummed = next(self._own), 0

    def submit(self, micro_batches, batch_size):
        (x, y, samples), *others = micro_batches
        if others:
            raise ValueError("asynchronous pipelines update after each minibatch: leave it in one piece, with micro_batches=1")
        self.executor.micro_batches[self.submitted] = MicroBatch(x, y, samples, 0, batch_size, self._first + self.submitted)
        instructions = []
        while self._next.micro_batch <= self.submitted:
            instructions.append(self._next)
            self._next = next(self._own)
        self.loss_known()  # of a rank without a part of the loss, before it waits for others
        self.run(instructions)

    def drain(self):
        instructions, open_ones = [], set(self.executor.micro_batches)
        while open_ones:
            if self._next.micro_batch < self.submitted:
                instructions.append(self._next)
                if self._next.op == "U":
                    open_ones.discard(self._next.micro_batch)
            self._next = next(self._own)
        self.run(instructions)

    def run(self, instructions):
        super().run([one for instruction in instructions for one in around(self.net.route, self.net.place, instruction)])

    def loss_known(self):
        """Begin the sums of the losses that this rank knows, in the order of the steps. Another rank may wait for them before
        it goes on with what this one waits for next."""
        losses, has_loss = self.executor.losses, self.net.last in self.net.chunks
        while self._unsummed <= self.submitted and (self._unsummed in losses or not has_loss):
            self.add_losses(self._unsummed, losses.pop(self._unsummed, 0.0))
            self._unsummed += 1

    def begins(self, instruction):
        if instruction.chunk == min(self.net.chunks):
            self.net.reduction.start()

    def computed(self, instruction):
        """Other minibatches may overwrite the gradients before the update, unless this chunk is the last one before it."""
        if instruction.chunk > min(self.net.chunks):
            gradients = self.net.grads[self.net.slice_of(instruction.chunk)]
            kept = self._apart[instruction.micro_batch][instruction.chunk] = self.executor.pool.take(gradients.size)
            kept[...] = gradients

    def update(self, micro_batch):
        self.executor.stale[self.executor.staleness.pop(micro_batch)] += 1
        del self.executor.micro_batches[micro_batch]
        for chunk, kept in self._apart.pop(micro_batch, {}).items():
            self.net.grads[self.net.slice_of(chunk)] = kept
            self.executor.pool.give_back(kept)
        super().update(micro_batch)
