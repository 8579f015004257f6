"""What `learn` asks of a minibatch before anything is computed, in the same words on a serial network and on every grid.

A minibatch that is not right would often train all the same: NumPy broadcasts targets of the wrong shape, an index of -1 is
the last class, and the block that a rank of a grid takes of its samples cuts off what is too much.

What was right is remembered, so that the next minibatch of the same kind costs a comparison, and a pass over its labels.
"""

import numpy as np

from nn.branches import Flatten
from nn.conv import Conv2d
from nn.device import to_device, xp
from nn.linear import Linear
from nn.losses import MSE, SoftmaxCrossEntropy
from nn.pool import Pool2d


def checked_minibatch(net, x, y, loss, optimizer):
    """(x, y) as arrays that fit the network and the loss; ValueError with what was expected and what came.

    x: (n, ...), the whole global minibatch. y: its labels or targets. Lists become arrays, targets get the network's type, and
    targets (n,) for a single output become (n, 1). x keeps its type: `forward` converts the part that it is given.
    """
    check_optimizer(net, optimizer)
    try:
        kind = x.shape, x.dtype, y.shape, y.dtype, type(x), type(y), type(loss)
    except AttributeError:  # a list, say
        kind = None
    if kind is None or net.accepted_kind != kind:
        x, y, unsigned, classes = _checked_kind(net, x, y, loss)
        if kind is not None and (x.shape, x.dtype, y.shape, y.dtype, type(x), type(y), type(loss)) == kind:
            net.accepted_kind, net.accepted_labels = kind, (unsigned, classes)
    else:
        unsigned, classes = net.accepted_labels
    if classes and y.view(unsigned).max() >= classes:  # seen so, negative numbers are large ones
        _refuse_label(y, classes)
    return x, y


def check_optimizer(net, optimizer):
    """Raise ValueError if an optimizer updates the parameters of another network."""
    if getattr(optimizer, "net", net) is not net:
        raise ValueError(
            f"this {type(optimizer).__name__} was made for another network and would leave this one as it is: "
            "make it of the network that learns, after `parallelize`"
        )


def as_input(x, dtype):
    """x as an array of the network's type; ValueError if it holds no real numbers."""
    if isinstance(x, xp.ndarray) and x.dtype == dtype:
        return x
    return to_device(_numbers(x, "x").astype(dtype, copy=False))


def _checked_kind(net, x, y, loss):
    """(x, y, unsigned type of the labels, number of classes or 0): all but the range of the labels is right."""
    if isinstance(loss, type):
        raise ValueError(f"the loss must be an object, not the class: write {loss.__name__}()")
    x, y = _numbers(x, "x"), _numbers(y, "y")
    if x.ndim < 2:
        raise ValueError(f"x must have a row for each sample, (samples, ...), but has the shape {x.shape}")
    if not len(x):
        raise ValueError("the minibatch is empty: x has no samples")
    shape, expected = x.shape[1:], _sample_shape(net)
    if expected is not None and shape != expected:
        raise ValueError(f"the samples of x have the shape {shape} but the network takes {expected}")
    outputs = net.output_shape(shape)
    if isinstance(loss, SoftmaxCrossEntropy | MSE) and len(outputs) != 1:
        raise ValueError(f"the loss takes outputs (samples, features) but a sample's are {outputs}: put a Flatten behind them")
    if isinstance(loss, SoftmaxCrossEntropy):
        y = _labels(y, len(x), outputs[0])
        return x, y, np.dtype(f"u{y.dtype.itemsize}").newbyteorder(y.dtype.byteorder), outputs[0]
    if isinstance(loss, MSE):
        y = _targets(y, len(x), outputs[0]).astype(net.dtype, copy=False)
    elif y.ndim == 0 or len(y) != len(x):
        raise ValueError(f"y must have a row for each of the {len(x)} samples, but has the shape {y.shape}")
    return x, y, None, 0


def _numbers(array, name):
    """A list, or an array of another library, as one of ours; ValueError if it holds no real numbers."""
    if not isinstance(array, np.ndarray | xp.ndarray):
        try:
            array = np.asarray(array)
        except ValueError:  # rows of different lengths
            raise ValueError(f"{name} is no array: its rows must have the same length") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, but is of type {array.dtype}")
    return array


def _sample_shape(net):
    """The shape of a sample that the network takes, or None where its layers may take several: images of any size."""
    if net.input_shape is not None:
        return net.input_shape
    leaves = list(net.leaves())
    first = next((leaf for leaf in leaves if isinstance(leaf, Linear)), None)
    if first is None or any(isinstance(leaf, Conv2d | Pool2d | Flatten) for leaf in leaves):
        return None
    shape = (first.inputs,)
    try:
        net.output_shape(shape)
    except ValueError:  # what comes before the first Linear changes the number of features
        return None
    return shape


def _labels(y, samples, classes):
    if y.dtype.kind == "b":
        y = y.astype(np.intp)
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers, one a sample, but are of type {y.dtype}")
    if y.shape != (samples,):
        hint = f": write y.argmax(axis=1) for one-hot rows of the {classes} classes" if y.shape == (samples, classes) else ""
        raise ValueError(f"labels must have the shape {(samples,)}, one a sample, not {y.shape}{hint}")
    return y


def _targets(y, samples, outputs):
    if outputs == 1 and y.shape == (samples,):
        return y.reshape(samples, 1)
    if y.shape != (samples, outputs):
        raise ValueError(f"targets must have the shape {(samples, outputs)}, one row a sample, not {y.shape}")
    return y


def _refuse_label(y, classes):
    wrong = (y < 0) | (y >= classes)
    place = int(wrong.argmax())
    raise ValueError(
        f"labels must be from 0 to {classes - 1}, as the network has {classes} outputs, "
        f"but that of sample {place} is {y[place]}"
    )
