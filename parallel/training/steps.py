"""Training, evaluation and prediction of a ParallelSequential: the same on every grid."""

import math
from functools import lru_cache, partial

import numpy as np

from nn import divergence
from nn.context import Context
from nn.device import to_device, to_host, xp
from nn.losses import SoftmaxCrossEntropy
from nn.minibatch_checks import check_optimizer
from nn.observer import observed
from nn.random import permutation
from parallel.job.run import UserError
from parallel.placement.partition import size


class Diverged(UserError, divergence.Diverged):
    """Training left the finite numbers. The message names the step and the layer; all ranks raise it together."""


def minibatch_indices(count, batch_size, seed, step):
    """The samples of the global minibatch of step `step`, and its epoch: (indices, epoch).

    Each epoch visits all `count` samples once in an order of its own; its last minibatch may be smaller.
    """
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    return _order(seed, epoch, count)[position * batch_size : (position + 1) * batch_size], epoch


def steps_per_epoch(count, batch_size):
    return -(-count // batch_size)


_order = lru_cache(maxsize=1)(permutation)  # of the current epoch


def train_step(net, loss, optimizer, x, y, batch_size, context=None):
    """One step on this rank's block of a minibatch; returns the mean loss over the global minibatch.

    net: a ParallelSequential. x, y: what a reader of `parallel/training/readers.py` loads, on the host or the device. Collective.
    context: in which to do it, by default the network's own.
    Raises Diverged, on all ranks, if the loss is NaN or infinite.
    """
    return accumulated_step(net, loss, optimizer, [(x, y, batch_size)], batch_size, context)


def accumulated_step(net, loss, optimizer, micro_batches, batch_size, context=None):
    """One step on a minibatch that comes in micro-batches, whose gradients add up; returns as `train_step` does.

    micro_batches: (x, y, samples) of each, one after another: this rank's block of it and its global size; together
    `batch_size`. What statistics there are over a batch, as in BatchNorm, are over each micro-batch. Collective.
    """
    check_optimizer(net, optimizer)
    total, first, context = 0.0, 0, net.context if context is None else context
    context.training = True
    for x, y, samples in micro_batches:
        x, y, last = to_device(x), to_device(y), first + samples == batch_size
        outputs = net.forward(x, context, samples, first, batch_size)
        addend = observed(net.observer, loss, "forward", outputs, y, context, context=context)
        finish = net.grid.world.start_sum(addend if net.is_counted else 0.0, "loss")
        dy = observed(net.observer, loss, "backward", context, context=context)
        (net.backward if last else net.accumulate)(dy, context)
        if last:
            net.synchronise()
        total += finish()
        if not math.isfinite(total):
            net.reduction.drain()
            raise Diverged(divergence.explain_divergence(net, total, x, context, partial(_first_not_finite, net.grid)))
        first += samples
    observed(net.observer, optimizer, "step")
    net.step += 1
    return total


def check_finite(net):
    """Raise Diverged, on all ranks, if an update left a parameter that is not finite. Collective."""
    first = _first_not_finite(net.grid, [p.value for _, p in net.parameters])
    if first < len(net.parameters):
        layer, p = net.parameters[first]
        raise Diverged(f"step {net.step - 1}: its update left {layer.name}.{p.name} not finite; try a lower --lr")


def _first_not_finite(grid, arrays):
    """The position of the first array that is not finite on some rank; their number if all are. Collective."""
    finite = [divergence.all_finite(array) for array in arrays] + [False]
    return int(grid.min(np.array([finite.index(False)]))[0])


def evaluate(net, part, loss_name, reader, batch_size):
    """Test a network over the grid: {"loss", "accuracy"} or {"loss", "mse", "rmse"}; the same on every rank.

    part: the samples. reader: how they reach the ranks. loss is the mean over all samples of what training minimises,
    without penalties; accuracy is in percent. mse is in units of the standardised targets, the mean over outputs;
    rmse, one a output, in the units of the data set. Collective.
    Raises Diverged, on all ranks, if an output is not finite.
    """
    classes = loss_name == "cross-entropy"
    cross_entropy, whole = SoftmaxCrossEntropy(), Context(batch_size=len(part))
    sums = np.zeros(2 if classes else part.target_width, np.float64)
    finite = True
    for start in range(0, len(part), batch_size):
        indices = np.arange(start, min(start + batch_size, len(part)))
        x, y = reader.load(indices)
        outputs, y = net.forward(to_device(x), batch_size=len(indices)), to_device(y)
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
    """The outputs for all samples of `part`, (samples, outputs), on rank 0; None elsewhere. Collective."""
    grid, features = net.grid, net.output.sample_shape[-1]
    places = [grid.coordinates_of(rank) for rank in range(grid.size)]
    pieces = []
    for start in range(0, len(part), batch_size):
        indices = np.arange(start, min(start + batch_size, len(part)))
        x, _ = reader.load(indices)
        outputs = net.forward(to_device(x), batch_size=len(indices))
        rows = [net.output.rows(len(indices), place) for place in places]
        blocks = [size(row) if net.output.is_counted(place) else 0 for row, place in zip(rows, places)]
        sent = np.ascontiguousarray(to_host(outputs if net.is_counted else outputs[:0]))
        received = np.empty((sum(blocks), features), net.dtype) if grid.rank == 0 else None
        grid.world.gather(sent, received, [n * features for n in blocks], "prediction")
        if grid.rank == 0:  # blocks come in rank order; rows say where each belongs
            whole, position = np.empty_like(received), 0
            for block, row in zip(blocks, rows):
                if block:
                    whole[row] = received[position : position + block]
                    position += block
            pieces.append(whole)
    return np.concatenate(pieces) if grid.rank == 0 else None
