"""Evaluation and prediction with a ParallelSequential. The results do not depend on the grid."""

from typing import Any

import numpy as np

from gridgrad.nn.context import Context
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.losses import SoftmaxCrossEntropy
from gridgrad.parallel.training.minibatch_readers import Reader
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.steps import Diverged

MOST_CLASSES = 20  # of a confusion matrix


def evaluate(
    net: ParallelSequential, part: Any, loss_name: str, reader: Reader, batch_size: int, classes: int = 0
) -> dict[str, Any]:
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
    classes : int
        How many classes there are, for a confusion matrix; 0 for none.

    Returns
    -------
    The same dict on every rank: for classes "loss" and "accuracy", otherwise "loss", "mse" and "rmse"; "confusion" if there are
    at most 20 `classes`: for each class how many of its samples were taken for each class. loss: the mean over all
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
    classifies = loss_name == "cross-entropy"
    confusion = np.zeros((classes, classes), np.int64) if classifies and 0 < classes <= MOST_CLASSES else None
    cross_entropy, whole = SoftmaxCrossEntropy(), Context(batch_size=len(part))
    sums = np.zeros(2 if classifies else part.target_width, np.float64)
    finite = True
    for outputs, y, _ in _forward_passes(net, part, reader, batch_size):
        y, finite = to_device(y), finite and bool(xp.isfinite(outputs).all())
        if not net.is_counted or not len(outputs):
            continue
        if classifies:
            taken = outputs.argmax(axis=1)
            sums[0] += int(xp.count_nonzero(taken == y))
            if confusion is not None:
                np.add.at(confusion, (to_host(y), to_host(taken)), 1)
            sums[1] += cross_entropy.forward(outputs, y, whole)
        else:
            sums += to_host(xp.square(outputs - y, dtype=np.float64).sum(axis=0))
    if not net.grid.min(np.array([int(finite)]))[0]:
        raise Diverged(f"step {net.step}: outputs in an evaluation are not finite; try a lower --lr")
    net.grid.world.all_reduce(sums, "evaluation")
    if classifies:
        if confusion is not None:
            net.grid.world.all_reduce(confusion, "evaluation")
        matrix = {} if confusion is None else {"confusion": confusion.tolist()}
        return {"loss": float(sums[1]), "accuracy": 100 * float(sums[0]) / len(part)} | matrix
    squares = sums / len(part)
    mse = float(squares.mean())
    return {"loss": mse, "mse": mse, "rmse": [float(v) for v in np.sqrt(squares) * part.target_scale]}


def predict(net: ParallelSequential, part: Any, reader: Reader, batch_size: int) -> np.ndarray | None:
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
