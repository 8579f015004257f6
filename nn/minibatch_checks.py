"""The checks of a minibatch before anything is computed, the same for serial and parallel networks.

Without them a wrong minibatch would often train without an error: NumPy broadcasts targets of the wrong shape, a label of
-1 means the last class, and a rank that takes its block of the samples drops the superfluous ones.
"""

import numpy as np

from gridgrad.nn.device import array_of_numbers
from gridgrad.nn.layers.linear import Linear
from gridgrad.nn.losses import MSE, SoftmaxCrossEntropy


def checked_minibatch(net, x, y, loss):
    """The whole global minibatch (x, y) as arrays that fit the network and the loss (None: not known yet); else ValueError.
    Targets get the network's dtype, and the shape (n, 1) for a single output. x keeps its dtype, since `forward` converts it.
    """
    kind = _kind(x, y, loss)  # the network remembers the one that it has accepted, so that the next such minibatch costs little
    accepted, unsigned, classes = net.accepted_minibatch
    if kind is None or kind != accepted:
        x, y, unsigned, classes = _checked_kind(net, x, y, loss)
        if kind == _kind(x, y, loss):  # nothing had to be converted
            net.accepted_minibatch = kind, unsigned, classes
    if classes and y.view(unsigned).max() >= classes:  # viewed as unsigned, negative labels are large numbers
        place = int(((y < 0) | (y >= classes)).argmax())
        wrong = f"the network has {classes} outputs, but that of sample {place} is {y[place]}"
        raise ValueError(f"labels must be from 0 to {classes - 1}, as {wrong}")
    return x, y


def checked_samples(net, x):
    """x as an array (n, ...) of samples that the network takes, for `predict`; ValueError as in `checked_minibatch`."""
    x = _samples(x)
    shape, expected = x.shape[1:], _sample_shape(net)
    if shape != expected:
        try:
            net.output_shape(shape)
        except ValueError:
            if expected is None:
                raise
            raise _other_shape(shape, expected) from None
    return x


def _kind(x, y, loss):
    """What the checks depend on, apart from the values of the labels; None if x or y is no array."""
    try:
        return x.shape, x.dtype, y.shape, y.dtype, type(x), type(y), type(loss)
    except AttributeError:
        return None


def _checked_kind(net, x, y, loss):
    """(x, y, unsigned dtype of labels, number of classes), the last ones None and 0 for targets. Labels may be out of range."""
    if isinstance(loss, type):
        raise ValueError(f"the loss must be an object, not the class: write {loss.__name__}()")
    x, y = _samples(x), array_of_numbers(y, "y")
    if not len(x):
        raise ValueError("the minibatch is empty: x has no samples")
    shape, expected = x.shape[1:], _sample_shape(net)
    if expected is not None and shape != expected:
        raise _other_shape(shape, expected)
    outputs = net.output_shape(shape)
    if isinstance(loss, SoftmaxCrossEntropy | MSE) and len(outputs) != 1:
        raise ValueError(f"the loss takes outputs (samples, features) but a sample's are {outputs}: put a Flatten behind them")
    looks_like_labels = loss is None and y.ndim == 1 and y.dtype.kind in "iub" and outputs > (1,)
    if isinstance(loss, SoftmaxCrossEntropy) or looks_like_labels:
        y = _labels(y, len(x), outputs[0])
        return x, y, np.dtype(f"u{y.dtype.itemsize}").newbyteorder(y.dtype.byteorder), outputs[0]
    if isinstance(loss, MSE):
        if y.shape != (len(x), *outputs) and (y.shape, outputs) != ((len(x),), (1,)):
            raise ValueError(f"targets must have the shape {(len(x), *outputs)}, one row a sample, not {y.shape}")
        y = y.reshape(len(x), *outputs).astype(net.dtype, copy=False)
    elif y.ndim == 0 or len(y) != len(x):
        raise ValueError(f"y must have a row for each of the {len(x)} samples, but has the shape {y.shape}")
    return x, y, None, 0


def _samples(x):
    x = array_of_numbers(x, "x")
    if x.ndim < 2:
        raise ValueError(f"x must have a row for each sample, (samples, ...), but has the shape {x.shape}")
    return x


def _other_shape(shape, expected):
    return ValueError(f"the samples of x have the shape {shape} but the network takes {expected}")


def _sample_shape(net):
    """The shape of a sample that the network takes, or None if it may take several shapes, such as images of any size."""
    if net.input_shape is not None:
        return net.input_shape
    leaves = list(net.leaves())
    first = next((leaf for leaf in leaves if isinstance(leaf, Linear)), None)
    if first is None or any(leaf.takes_images for leaf in leaves):
        return None
    try:
        net.output_shape((first.inputs,))
    except ValueError:  # a layer before the first Linear changes the number of features
        return None
    return (first.inputs,)


def _labels(y, samples, classes):
    if y.dtype.kind == "b":
        y = y.astype(np.intp)
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers, one a sample, but are of type {y.dtype}")
    if y.shape != (samples,):
        hint = f": write y.argmax(axis=1) for one-hot rows of the {classes} classes" if y.shape == (samples, classes) else ""
        raise ValueError(f"labels must have the shape {(samples,)}, one a sample, not {y.shape}{hint}")
    return y
