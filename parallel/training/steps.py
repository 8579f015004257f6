"""Training steps, evaluation and prediction with a ParallelSequential. The results do not depend on the grid."""

import math
from collections import Counter
from functools import lru_cache, partial

import numpy as np

from gridgrad.nn import divergence
from gridgrad.nn.context import Context
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.losses import SoftmaxCrossEntropy
from gridgrad.nn.minibatch_checks import check_optimizer
from gridgrad.nn.observer import observed
from gridgrad.nn.random import permutation
from gridgrad.parallel.job.run import UserError


class Diverged(UserError, divergence.Diverged):
    """A loss, a parameter or an output became NaN or infinite. The message names the step; all ranks raise it together."""


def minibatch_indices(count, batch_size, seed, step):
    """(indices, epoch): the samples of the global minibatch of a training step, and the epoch to which it belongs.

    Each epoch visits all `count` samples once, in a random order that depends on `seed` and the epoch alone; its last minibatch
    may be smaller than `batch_size`. step: counted from 0 at the start of training.
    """
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    return _order(seed, epoch, count)[position * batch_size : (position + 1) * batch_size], epoch


def steps_per_epoch(count, batch_size):
    """The number of minibatches in an epoch of `count` samples; the last one may be smaller."""
    return -(-count // batch_size)


_order = lru_cache(maxsize=1)(permutation)  # (seed, epoch, count): the order of samples, kept for the current epoch


def train_step(net, loss, optimizer, x, y, batch_size, context=None):
    """One training step; returns the mean loss over the global minibatch, before the update. Collective.

    net: a ParallelSequential. x, y: this rank's part of the minibatch, as a reader of `parallel/training/minibatch_readers.py`
    loads it, on the host or the device. batch_size: the number of samples in the global minibatch.
    context: the Context that holds what backward needs; by default the network's own.
    Raises Diverged, on all ranks, if the loss is NaN or infinite.
    """
    return accumulated_step(net, loss, optimizer, [(x, y, batch_size)], batch_size, context)


def accumulated_step(net, loss, optimizer, micro_batches, batch_size, context=None):
    """One training step on a minibatch that is computed in micro-batches, whose gradients are added. Collective.

    micro_batches: an iterable of (x, y, samples): this rank's part of each micro-batch, as in `train_step`, and its global
    number of samples; these numbers add up to `batch_size`. The statistics of BatchNorm are taken over each micro-batch
    separately.
    Returns and raises what `train_step` does.
    """
    trainer = net.trainer(loss, optimizer, context)
    if trainer.submitted:
        raise ValueError("training steps of the pipeline are under way: call flush() of its trainer first")
    *_, value = trainer.step(micro_batches, batch_size) + trainer.flush()
    return value


class Trainer:
    """Trains a network step by step; each step is complete when it returns. Pipelines have other trainers with these methods.

    net: a ParallelSequential. loss: such as SoftmaxCrossEntropy(). optimizer: that of the network. context: the Context that
    holds what backward needs; by default the network's own.
    """

    submitted = 0  # steps that are under way
    staleness = Counter()  # see PipelineTrainer: empty, because here no update comes between forward and backward

    def __init__(self, net, loss, optimizer, context=None):
        check_optimizer(net, optimizer)
        self.net, self.loss, self.optimizer, self.context = net, loss, optimizer, context

    def step(self, micro_batches, batch_size):
        """A training step: see `accumulated_step`; returns a list of its loss. Collective."""
        net, loss = self.net, self.loss
        context = net.context if self.context is None else self.context
        total, first = 0.0, 0
        context.training = True
        for x, y, samples in micro_batches:
            x, y, last = to_device(x), to_device(y), first + samples == batch_size
            outputs = net.forward(x, context, samples, first, batch_size)
            partial_loss = observed(net.observer, loss, "forward", outputs, y, context, context=context)
            finish = net.grid.world.start_sum(partial_loss if net.is_counted else 0.0, "loss")
            dy = observed(net.observer, loss, "backward", context, context=context)
            (net.backward if last else net.accumulate)(dy, context)
            if last:
                net.synchronise()
            total += finish()
            if not math.isfinite(total):
                net.reduction.drain()
                raise Diverged(divergence.explain_divergence(net, total, x, context, partial(first_not_finite, net.grid)))
            first += samples
        observed(net.observer, self.optimizer, "step")
        net.step += 1
        return [total]

    def flush(self):
        """Finish steps that are under way; returns the list of the losses that were not known yet: here there are none."""
        return []


def check_finite(net):
    """Raise Diverged, on all ranks, if a parameter is NaN or infinite after an update. Collective."""
    first = first_not_finite(net.grid, [p.value for _, p in net.parameters])
    if first < len(net.parameters):
        layer, p = net.parameters[first]
        raise Diverged(f"step {net.step - 1}: {layer.name}.{p.name} is not finite after the update; try a lower --lr")


def first_not_finite(grid, arrays):
    """The position of the first of `arrays` that is not finite on some rank; len(arrays) if all are finite. Collective."""
    finite = [divergence.all_finite(array) for array in arrays] + [False]
    return int(grid.min(np.array([finite.index(False)]))[0])


def evaluate(net, part, loss_name, reader, batch_size):
    """Evaluate a network on all samples of `part`; returns the same dict on every rank. Collective.

    For classes (loss_name "cross-entropy") it has "loss" and "accuracy", otherwise "loss", "mse" and "rmse". loss: the mean
    over all samples of the loss that training minimises, without weight penalties. accuracy: in percent. mse: the mean over
    samples and outputs, in units of the standardised targets. rmse: a list with one number for each output, in the units of
    the data set.
    part: a `gridgrad.datasets.Part`. reader: a reader of `part` for `net`. batch_size: the samples in one global forward pass.
    Raises Diverged, on all ranks, if an output is not finite.
    """
    classes = loss_name == "cross-entropy"
    cross_entropy, whole = SoftmaxCrossEntropy(), Context(batch_size=len(part))
    sums = np.zeros(2 if classes else part.target_width, np.float64)
    finite = True
    for outputs, y, _ in _forward_passes(net, part, reader, batch_size):
        y = to_device(y)
        finite = finite and bool(xp.isfinite(outputs).all())
        if not net.is_counted or not len(outputs):
            continue
        if classes:
            sums[0] += int(xp.count_nonzero(outputs.argmax(axis=1) == y))
            sums[1] += cross_entropy.forward(outputs, y, whole)
        else:
            sums += to_host(xp.square(outputs - y, dtype=np.float64).sum(axis=0))
    if not net.grid.min(np.array([int(finite)]))[0]:
        raise Diverged(f"step {net.step}: outputs in an evaluation are not finite; try a lower --lr")
    net.grid.world.all_reduce(sums, "evaluation")
    if classes:
        return {"loss": float(sums[1]), "accuracy": 100 * float(sums[0]) / len(part)}
    squares = sums / len(part)
    mse = float(squares.mean())
    return {"loss": mse, "mse": mse, "rmse": [float(v) for v in np.sqrt(squares) * part.target_scale]}


def predict(net, part, reader, batch_size):
    """The outputs for all samples of `part`: an array (samples, outputs) on rank 0, None elsewhere. Collective.

    part, reader, batch_size: as in `evaluate`.
    """
    passes = _forward_passes(net, part, reader, batch_size)
    pieces = [net.gather_outputs(outputs, samples) for outputs, _, samples in passes]
    return np.concatenate(pieces) if net.grid.rank == 0 else None


def _forward_passes(net, part, reader, batch_size):
    """Yield (this rank's outputs, their targets, samples on all ranks) of forward passes over all samples of `part`, in order.

    The arguments are those of `evaluate`. Collective: every rank must take all results.
    """
    for start in range(0, len(part), batch_size):
        indices = np.arange(start, min(start + batch_size, len(part)))
        x, y = reader.load(indices)
        yield net.forward(to_device(x), batch_size=len(indices)), y, len(indices)
