"""Training steps, evaluation and prediction with a ParallelSequential. The results do not depend on the grid."""

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gridgrad.nn import divergence
from gridgrad.nn.context import Context
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.losses import SoftmaxCrossEntropy
from gridgrad.nn.observer import observed
from gridgrad.nn.random import permutation
from gridgrad.parallel.job.run import UserError

if TYPE_CHECKING:
    from gridgrad.parallel.training.minibatch_readers import Reader
    from gridgrad.parallel.training.network import ParallelSequential


WHOLE = "give every rank the same whole minibatch, of which it takes its part"  # advice where ranks pass different ones
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


def accumulated_step(
    net: "ParallelSequential",
    loss: Any,
    optimizer: Any,
    micro_batches: Iterable[tuple[np.ndarray, np.ndarray, int]],
    batch_size: int,
    context: Context | None = None,
) -> float:
    """A `train_step` on micro-batches, whose gradients are added: (x, y, samples) of each, samples on all ranks. Collective.
    They add up to `batch_size`. BatchNorm takes its statistics over each micro-batch separately."""
    return net.trainer(loss, optimizer, context).complete_step(micro_batches, batch_size)


class Trainer:
    """Trains a network; each step is complete when it returns. Pipelines have other trainers. context: the net's by default."""

    submitted = 0  # steps that are under way
    staleness: Counter[int] = Counter()  # see PipelineTrainer: empty, because here no update comes between forward and backward

    def __init__(self, net: "ParallelSequential", loss: Any, optimizer: Any, context: Context | None = None) -> None:
        net.check_own(optimizer)
        self.net, self.loss, self.optimizer, self.context = net, loss, optimizer, context
        net.loss = loss

    def complete_step(self, micro_batches: Iterable[tuple[np.ndarray, np.ndarray, int]], batch_size: int) -> float:
        """`step`, and waits for its loss. ValueError if earlier steps are under way. Collective."""
        if self.submitted:
            raise ValueError("training steps of the pipeline are under way: call flush() of its trainer first")
        *_, value = self.step(micro_batches, batch_size) + self.flush()
        return value

    def step(self, micro_batches: Iterable[tuple[np.ndarray, np.ndarray, int]], batch_size: int) -> list[float]:
        """A training step: see `accumulated_step`; returns a list of its loss. Collective."""
        net, loss = self.net, self.loss
        context = net.context if self.context is None else self.context
        total, first = 0.0, 0
        context.training = True
        for x, y, samples in micro_batches:
            y, last = to_device(y), first + samples == batch_size
            outputs = net.forward(x, context, samples, first, batch_size)
            partial_loss = observed(net.observer, loss, "forward", outputs, y, context, context=context)
            loss_sum = LossSum(net, partial_loss, samples)
            dy = observed(net.observer, loss, "backward", context, context=context)
            with net.reduction.backward(last):
                net.backward(dy, context)
            value, problem = loss_sum.wait()
            if problem:
                net.reduction.drain()
                raise ValueError(f"{problem}; nothing was updated")
            total += value
            if not math.isfinite(total):
                net.reduction.drain()
                raise Diverged(divergence.explain_divergence(net, total, x, context, partial(first_not_finite, net.grid)))
            first += samples
        if first != batch_size:
            net.reduction.drain()
            raise ValueError(NOT_ALL.format(first, batch_size))
        observed(net.observer, self.optimizer, "step")
        net.step += 1
        return [total]

    def flush(self) -> list[float]:
        """Finish steps that are under way; returns the losses that were not known yet: here there are none."""
        return []


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
    finite = [divergence.all_finite(array) for array in arrays] + [False]
    return int(grid.min(np.array([finite.index(False)]))[0])


def evaluate(net: "ParallelSequential", part: Any, loss_name: str, reader: "Reader", batch_size: int) -> dict[str, Any]:
    """Evaluate a network on all samples of a part of a data set. Collective.

    All ranks raise Diverged if an output is not finite.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.
    part : gridgrad.datasets.Part
        The samples.
    loss_name : str
        "cross-entropy" for classes, otherwise "mse".
    reader : Reader
        A reader of these samples for the network, see READERS.
    batch_size : int
        The samples in one global forward pass.

    Returns
    -------
    The same dict on every rank: for classes "loss" and "accuracy", otherwise "loss", "mse" and "rmse". loss: the mean over all
    samples of the loss that training minimises, without weight penalties. accuracy: in percent. mse: the mean over samples and
    outputs, in units of the standardised targets. rmse: a list with one number for each output, in the units of the data set.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.datasets import load
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import READERS, evaluate, parallelize
    >>> test = load("airfoil").test
    >>> net = parallelize(Sequential([Linear(4, 1)]), {"batch": MPI.COMM_WORLD.size})
    >>> found = evaluate(net, test, "mse", READERS["each"](net, test), batch_size=100)
    >>> sorted(found), len(found["rmse"])
    (['loss', 'mse', 'rmse'], 1)
    >>> net.grid.free()
    """
    classes = loss_name == "cross-entropy"
    cross_entropy, whole = SoftmaxCrossEntropy(), Context(batch_size=len(part))
    sums = np.zeros(2 if classes else part.target_width, np.float64)
    finite = True
    for outputs, y, _ in _forward_passes(net, part, reader, batch_size):
        y, finite = to_device(y), finite and bool(xp.isfinite(outputs).all())
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


def predict(net: "ParallelSequential", part: Any, reader: "Reader", batch_size: int) -> np.ndarray | None:
    """The outputs of a network for all samples of a part of a data set, (samples, outputs). Collective.

    Parameters
    ----------
    net, part, reader, batch_size
        As in `evaluate`.

    Returns
    -------
    An array on rank 0, None elsewhere.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.datasets import load
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import READERS, parallelize, predict
    >>> test = load("airfoil").test
    >>> net = parallelize(Sequential([Linear(4, 1)]), {"batch": MPI.COMM_WORLD.size})
    >>> outputs = predict(net, test, READERS["each"](net, test), batch_size=100)
    >>> outputs is None or outputs.shape == (len(test), 1)
    True
    >>> net.grid.free()
    """
    passes = _forward_passes(net, part, reader, batch_size)
    pieces = [net.gather_outputs(outputs, samples) for outputs, _, samples in passes]
    return np.concatenate([piece for piece in pieces if piece is not None]) if net.grid.rank == 0 else None


def _forward_passes(net, part, reader, batch_size):
    """Yield (this rank's outputs, their targets, samples on all ranks) of passes over all samples, in order. Collective."""
    for start in range(0, len(part), batch_size):
        indices = np.arange(start, min(start + batch_size, len(part)))
        x, y = reader.load(indices)
        yield net.forward(to_device(x), batch_size=len(indices)), y, len(indices)
