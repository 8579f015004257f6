"""Training steps of a ParallelSequential, with or without a pipeline. The results do not depend on the grid."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from gridgrad.nn import divergence
from gridgrad.nn.context import Context
from gridgrad.nn.device import to_device
from gridgrad.nn.divergence import DATA, RATE, explain_divergence, first_of, not_finite
from gridgrad.nn.observer import observed
from gridgrad.nn.random import permutation
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.pipeline.generators import around, stream
from gridgrad.parallel.pipeline.schedule import Instruction, update
from gridgrad.parallel.training.executor import MicroBatch

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential


WHOLE = "give every rank the same whole minibatch, of which it takes its part"  # advice where ranks pass different ones
UNDER_WAY = "training steps of the pipeline are under way: call flush() of its trainer first"
NOT_ALL = "the micro-batches have {} samples together, but the minibatch is said to have {}"
DIGITS = 1 << 16  # of a number of samples only the remainder by this is squared, so that sums of squares are exact


class Diverged(UserError, divergence.Diverged):
    """A loss, a parameter or an output became NaN or infinite. The message names the step; all ranks raise it together."""


def minibatch_indices(count: int, batch_size: int, seed: int, step: int) -> tuple[np.ndarray, int]:
    """The samples of the global minibatch of a training step.

    Each epoch visits all samples once, in a random order that depends on the seed and the epoch alone; its last minibatch may
    be smaller than the others.

    Parameters
    ----------
    count, batch_size : int
        How many samples there are, and how many in a global minibatch.
    seed : int
        Of the order.
    step : int
        The training step, counted from 0 at the start of training.

    Returns
    -------
    The indices of the samples, and the epoch to which the minibatch belongs.

    Examples
    --------
    >>> from gridgrad.parallel import minibatch_indices
    >>> [(len(indices), epoch) for indices, epoch in (minibatch_indices(10, 4, seed=0, step=step) for step in range(4))]
    [(4, 0), (4, 0), (2, 0), (4, 1)]
    """
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    return _order(seed, epoch, count)[position * batch_size : (position + 1) * batch_size], epoch


def steps_per_epoch(count: int, batch_size: int) -> int:
    return -(-count // batch_size)


_order = lru_cache(maxsize=1)(permutation)  # (seed, epoch, count): the order of samples, kept for the current epoch


def train_step(
    net: "ParallelSequential",
    loss: Any,
    optimizer: Any,
    x: np.ndarray,
    y: np.ndarray,
    batch_size: int,
    context: Context | None = None,
) -> float:
    """One training step, on this rank's part of a global minibatch. Collective.

    `ParallelSequential.learn` does the same for whoever has the whole minibatch on every rank. All ranks raise ValueError,
    before the update, if not all of them say the same `batch_size`, and Diverged if the loss is NaN or infinite.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.
    loss, optimizer
        Such as SoftmaxCrossEntropy() and SGD(net, lr=0.1).
    x, y : array
        This rank's part of the minibatch, as a reader of READERS loads it, on the host or the device.
    batch_size : int
        The samples in the global minibatch.
    context : Context, optional
        Holds what backward needs; by default the network's own.

    Returns
    -------
    The mean loss over the global minibatch, before the update.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> from gridgrad.parallel import parallelize, train_step
    >>> net = parallelize(Sequential([Linear(3, 2)], dtype=np.float64), {"batch": MPI.COMM_WORLD.size})
    >>> optimizer = SGD(net, lr=0.1)
    >>> x, y, samples = net.blocks(np.ones((5, 3)), np.zeros((5, 2)))
    >>> first, second = (train_step(net, MSE(), optimizer, x, y, samples) for step in range(2))
    >>> second < first
    True
    >>> net.grid.free()
    """
    return net.trainer(loss, optimizer, context).complete_step([(x, y, batch_size)], batch_size)


class Trainer:
    """Trains a network with one loss and one optimizer: by the schedule of its pipeline or, without one, a micro-batch after
    the other. `lag` is the number of steps after which the loss of a step is known. Without a pipeline it is 0: the loss is
    awaited before the update, and nothing is updated if it is not finite."""

    # In a pipeline there is no barrier between two steps: a rank goes on to the next one as soon as it has done its part. In an
    # asynchronous one a minibatch enters while others are under way, and has its own update (Eserol 2019, section 4.2).

    def __init__(self, net: "ParallelSequential", loss: Any, optimizer: Any, context: Context | None = None) -> None:
        net.check_own(optimizer)
        if net.named and net.named.in_flight and getattr(optimizer, "clip_norm", None):
            raise ValueError("the ranks of an asynchronous pipeline update at different times: leave clip_norm out")
        self.net, self.loss, self.optimizer, self.context = net, loss, optimizer, context
        net.loss = loss
        self.in_flight = net.named and net.named.in_flight  # minibatches at a time, of an asynchronous pipeline
        self.lag = 0 if net.named is None else self.in_flight or 1
        self.executor: Any = None  # the Executor: the network has another one after it was given other layers
        self.submitted = self._returned = 0  # steps begun since the last `flush`, and losses returned
        self._parts: dict[int, list[MicroBatch]] = {}  # {step: this rank's micro-batches}, until its loss is known
        self._sums: dict[int, LossSum] = {}  # {step: the sum of its loss}
        self._apart: dict[int, dict[int, Any]] = defaultdict(dict)  # {step: {chunk: gradients}} until its update

    @property
    def staleness(self) -> Counter[int]:
        """{updates of this rank between forward and backward: minibatches}, empty unless a pipeline is asynchronous."""
        return self.net.executor.stale

    def complete_step(self, micro_batches: Iterable[tuple[np.ndarray, np.ndarray, int]], batch_size: int) -> float:
        """`step`, and waits for its loss. ValueError if earlier steps are under way. Collective."""
        if self.submitted:
            raise ValueError(UNDER_WAY)
        losses = self.step(micro_batches, batch_size) or self.flush()
        return losses[0]

    def step(self, micro_batches: Iterable[tuple[np.ndarray, np.ndarray, int]], batch_size: int) -> list[float]:
        """A training step on micro-batches, whose gradients are added: (x, y, samples) of each, samples on all ranks, which are
        `batch_size` together. BatchNorm takes its statistics over each micro-batch. Returns the mean losses that are known now,
        in the order of the steps. Diverged, on all ranks, if one is NaN or infinite. Collective."""
        self._take_over()
        parts, samples, number = [], 0, self.submitted
        for x, y, count in micro_batches:
            parts.append(MicroBatch(x, y, count, samples, batch_size, self._first + number))
            samples += count
            if not self.lag:  # at once: the next one is loaded after that
                self.executor.micro_batches[0] = parts.pop()
                self._run(self._rows[samples == batch_size])
        if samples != batch_size:
            self.reduction.drain()
            raise ValueError(NOT_ALL.format(samples, batch_size))
        if not self.lag:
            self.executor.micro_batches.clear()  # nothing of the data is kept
            return [self._total]
        if self.in_flight and len(parts) > 1:
            raise ValueError("asynchronous pipelines update after each minibatch: leave it in one piece, with micro_batches=1")
        self._parts[number] = parts
        if self.in_flight:
            self._enter(number)
        else:
            self._pass(number)
        self.submitted += 1
        return self._known(self.submitted - self.lag)

    def flush(self) -> list[float]:
        """Finish all steps that are under way; returns the losses that were not known yet. Collective."""
        if not self.lag:
            return []
        self._take_over()
        self._drain()
        losses = self._known(self.submitted)
        self._end()
        return losses

    def _take_over(self):
        """Have this trainer's steps carried out by the network's executor. ValueError if a pipeline has a newer trainer."""
        net, executor = self.net, self.net.executor
        if self.lag:
            net.check_free(self)
        if executor is not self.executor:
            self.executor, self.reduction = executor, net.reduction
            self._rows = {} if self.lag else self._rows_alone()  # {number of micro-batches: row}
        executor.trainer = self
        if not self.lag:
            self._first, self._total = net.step, 0.0
            executor.free[0] = [net.context if self.context is None else self.context]
        elif not self.submitted:
            self._first, self._unsummed = net.step, 0
            if self.in_flight:
                found = stream(net.route, self.in_flight, net.named.bound, net.stage_map.times)
                self._own = (instruction for rank, instruction in found if rank == net.place)
                self._next = next(self._own)

    def _run(self, row):
        """Have a row carried out. If that fails, messages of a pipeline may be left behind: it can not be used any more."""
        try:
            for _ in self.executor.run(row):
                pass
        except BaseException:
            self.reduction.interrupt()
            if self.lag:
                self.net.interrupted = True
                self.executor.messages.abandon()
            raise

    def _bound(self, row):
        """A row with one update, for the executor: the reduction begins with the gradients that nothing is added to."""
        gradients = [one for one in row if one.op in ("B", "W")]
        last = set({one.chunk: one for one in gradients}.values())
        ending = list(takewhile(last.__contains__, reversed(gradients)))
        earlier = [one for one in gradients if one not in last]
        after = {one: partial(self.reduction.accumulate, self.net.slice_of(one.chunk)) for one in earlier}
        return self.executor.bound(row, dict.fromkeys(ending[-1:], self.reduction.start), after)

    # ----- without a pipeline

    def _rows_alone(self):
        """{whether a micro-batch is the last one: its row}."""
        forward, backward = Instruction("F", 0, 0), Instruction("B", 0, 0)
        earlier = self.executor.bound([forward, backward], {}, {backward: self._add_up})
        return {False: earlier, True: self._bound([forward, backward, update(0)])}

    def _add_up(self):
        self.reduction.accumulate()
        self._check_loss()

    def _check_loss(self):
        """Wait for the loss of the micro-batch. ValueError or Diverged, on all ranks, before anything is updated."""
        value, problem = self._sums.pop(0).wait()
        self._total += value
        if problem or not math.isfinite(self._total):
            self.reduction.drain()
            if problem:
                raise ValueError(f"{problem}; nothing was updated")
            net, part, (context,) = self.net, self.executor.micro_batches[0], self.executor.free[0]
            raise Diverged(explain_divergence(net, self._total, part.x, context, partial(first_not_finite, net.grid)))

    # ----- synchronous pipelines: all micro-batches of a minibatch pass before its update

    def _pass(self, number):
        """Do all of this rank's part of a step."""
        executor, net, parts = self.executor, self.net, self._parts[number]
        if len(parts) not in self._rows:
            self._rows[len(parts)] = self._bound(net.stage_map.schedule(len(parts)).rows[net.place])
        executor.micro_batches.update(enumerate(parts))
        self._run(self._rows[len(parts)])
        self._sum_loss(number, sum(executor.losses.pop(part, 0.0) for part in range(len(parts))))

    # ----- asynchronous pipelines

    def _enter(self, number):
        """Let a minibatch enter the pipeline, and do what the schedule says before the next one does."""
        self.executor.micro_batches[number], instructions = self._parts[number][0], []
        while self._next.micro_batch <= number:
            instructions.append(self._next)
            self._next = next(self._own)
        self.loss_known()  # of a rank without a part of the loss, before it waits for others
        self._follow(instructions)

    def _drain(self):
        """Do the rest of all steps: what an asynchronous schedule leaves to later ones."""
        if self.in_flight and self.executor.micro_batches:
            instructions, last = [], update(self.submitted - 1)
            while not instructions or instructions[-1] != last:
                if self._next.micro_batch < self.submitted:
                    instructions.append(self._next)
                self._next = next(self._own)
            self._follow(instructions)

    def _follow(self, instructions):
        """Do a part of the stream. Other minibatches may overwrite the gradients of a chunk before the update, unless it is
        the last chunk before that: then the reduction begins."""
        net, first = self.net, min(self.net.chunks)
        row = [one for instruction in instructions for one in around(net.route, net.place, instruction)]
        gradients = [one for one in instructions if one.op == "B"]
        before = {one: self.reduction.start for one in gradients if one.chunk == first}
        after = {one: partial(self._keep_apart, one) for one in gradients if one.chunk > first}
        self._run(self.executor.bound(row, before, after))

    def _keep_apart(self, instruction):
        gradients = self.net.grads[self.net.slice_of(instruction.chunk)]
        kept = self._apart[instruction.micro_batch][instruction.chunk] = self.executor.messages.take(gradients.size)
        kept[...] = gradients

    # ----- what the executor calls

    def loss_known(self):
        """Begin the sums of the losses that this rank knows, in the order of the steps. Another rank may wait for them before
        it goes on with what this one waits for next."""
        losses, net = self.executor.losses, self.net
        if not self.lag:
            self._sums[0] = LossSum(net, losses.pop(0), self.executor.micro_batches[0].samples)
        while self.in_flight and self._unsummed in self._parts and (self._unsummed in losses or net.last not in net.chunks):
            self._sum_loss(self._unsummed, losses.pop(self._unsummed, 0.0))
            self._unsummed += 1

    def update(self, number):
        """Update the parameters. number: of the last micro-batch whose gradients take part."""
        net, executor = self.net, self.executor
        if self.in_flight:
            executor.stale[executor.staleness.pop(number)] += 1
            del executor.micro_batches[number]
            for chunk, kept in self._apart.pop(number, {}).items():
                net.grads[net.slice_of(chunk)] = kept
                executor.messages.give_back(kept)
        self.reduction.finish()
        if not self.lag:
            self._check_loss()
        if net.observer is None:
            self.optimizer.step()
        else:
            observed(net.observer, self.optimizer, "step")
        net.step += 1

    # ----- losses of pipelines

    def _sum_loss(self, number, value):
        """Begin to sum the loss of a step over all ranks. value: this rank's part."""
        self._sums[number] = LossSum(self.net, value, self._parts[number][0].minibatch_size)

    def _known(self, end):
        """The losses, not returned yet, of the steps before the one with number `end`."""
        losses = []
        while self._returned < end:
            value, problem = self._sums.pop(self._returned).wait()
            parts, step = self._parts.pop(self._returned), self._first + self._returned
            losses.append(value)
            self._returned += 1
            if problem or not math.isfinite(value):
                self._drain()
                self._end()
                self.reduction.drain()
                if problem:
                    raise ValueError(f"{problem}; step {step} was updated with them")
                raise Diverged(self._explained(step, value, parts))
        return losses

    def _end(self):
        """Complete all communication, so that no message is left behind, and forget the steps. Collective."""
        self.executor.messages.complete_sends()
        for loss_sum in self._sums.values():
            loss_sum.wait()
        self._sums.clear()
        self._parts.clear()
        self.executor.micro_batches.clear()
        self.submitted = self._returned = 0

    def _explained(self, step, loss, parts):
        """The message for a loss that is not finite. Collective; all ranks have as many micro-batches. The parameters have been
        updated since, and activations are gone."""
        suspects = [("first not finite: the input", DATA, to_device(part.x)) for part in parts]
        suspects += [("first not finite: the targets", DATA, to_device(part.y)) for part in parts]
        for layer, p in self.net.parameters:
            suspects.append((f"by now parameter {layer.name}.{p.name} is not finite", RATE, p.value))
        position = first_not_finite(self.net.grid, [array for *_, array in suspects])
        where, advice, _ = [*suspects, ("the data and the parameters are finite", RATE, None)][position]
        return not_finite(step, loss, where, advice)


class LossSum:
    """The sum of a loss over all ranks, from now on. value: this rank's part. samples: of the minibatch, alike on all ranks."""

    def __init__(self, net, value, samples):
        self.world, self.samples, digits = net.grid.world, samples, samples % DIGITS
        self.numbers = np.array([value if net.is_counted else 0.0, samples, digits * digits])
        self.transfer = self.world.start_all_reduce(self.numbers, "loss")

    def wait(self):
        """(the loss, problem): None or, on all ranks, what is wrong if not all have the same number of samples."""
        # each sees that the sum of the numbers, or that of their squares, is not what it would be if all had its own
        self.transfer.wait()
        (total, count, squares), ranks, digits = self.numbers.tolist(), self.world.size, self.samples % DIGITS
        if count == ranks * self.samples and squares == ranks * digits * digits:
            return total, None
        mean = f"{count / ranks:g} samples on average and {self.samples} on rank {self.world.rank}"
        return total, f"the ranks pass minibatches of different lengths, {mean}: {WHOLE}"


def check_finite(net):
    """Raise Diverged, on all ranks, if a parameter is NaN or infinite after an update. Collective."""
    first = first_not_finite(net.grid, [p.value for _, p in net.parameters])
    if first < len(net.parameters):
        layer, p = net.parameters[first]
        raise Diverged(f"step {net.step - 1}: {layer.name}.{p.name} is not finite after the update; try a lower --lr")


def first_not_finite(grid, arrays):
    """The position of the first of `arrays` that is not finite on some rank; len(arrays) if all are finite. Collective."""
    return int(grid.min(np.array([first_of(arrays)]))[0])
