"""Data sets as a training program sees them: samples that are taken by index and standardised."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

MOMENTS = "x_mean", "x_std", "y_mean", "y_std"  # of a Part


@dataclass
class Part:
    """The training or the test samples: what a reader of minibatches takes inputs and targets from.

    Parameters
    ----------
    x : array
        (samples, *shape of a sample): an array, a map of a file, or what is indexed like one. Images have their channels last.
    y : array
        (samples,) integer labels, or (samples, outputs) values.
    x_mean, x_std : array
        Of the *training* samples; inputs become (x - x_mean) / x_std. A number for all, or one for each channel or feature.
    y_mean, y_std : array, optional
        Of each output over the training samples, for regression; labels are left alone.
    dtype : dtype
        Of the inputs, and of the targets in regression.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.datasets import Part
    >>> x, y = np.array([[1.0, 10.0], [3.0, 30.0]]), np.array([0, 1])
    >>> part = Part(x, y, x_mean=np.array([2, 20]), x_std=np.array([1, 10]))
    >>> part.inputs(np.array([1]), (slice(0, 2),)).tolist(), part.targets(np.array([1])).tolist()
    ([[1.0, 1.0]], [1])
    """

    x: np.ndarray
    y: np.ndarray
    x_mean: np.ndarray
    x_std: np.ndarray
    y_mean: np.ndarray | None = None
    y_std: np.ndarray | None = None
    dtype: DTypeLike = np.float32

    def __len__(self) -> int:
        return len(self.x)

    def inputs(self, indices: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
        """The inputs of the samples `indices`, and of each only a block, slices of its dimensions: (n, *sizes of the block)."""
        index: tuple[Any, ...] = indices, *block
        x = self.x[index].astype(self.dtype, order="C")
        flat = x.reshape(len(x), math.prod(x.shape[1:]))  # a view: numbers for each channel would make loops of 3 steps
        flat -= self._flat(self.x_mean, block)
        flat *= self._flat(1 / self.x_std, block)
        return x

    def _flat(self, moment, block):
        """A mean or deviation for every number of the block in turn, or the one for all."""
        moment = np.asarray(moment, self.dtype)
        return np.broadcast_to(moment, self.sample_shape)[block].ravel() if moment.ndim else moment

    def reshaped(self, sample_shape: Sequence[int]) -> "Part":
        """The same samples in another shape of equal size, without a copy if they are contiguous; else ValueError."""
        new = tuple(sample_shape)
        if math.prod(new) != self.features:
            raise ValueError(f"samples of the shape {self.sample_shape} can not take the shape {new}: the sizes differ")
        mean, std = (v if np.ndim(v) == 0 else np.broadcast_to(v, self.sample_shape).reshape(new)
                     for v in (self.x_mean, self.x_std))  # fmt: skip
        return replace(self, x=self.x.reshape(len(self), *new), x_mean=mean, x_std=std)

    def targets(self, indices: np.ndarray) -> np.ndarray:
        """The targets of the samples `indices`: (n,) labels or (n, outputs) standardised values."""
        y = self.y[indices]
        if self.y_mean is None or self.y_std is None:
            return np.asarray(y, self.target_type)
        return (np.asarray(y, self.dtype) - self.y_mean.astype(self.dtype)) / self.y_std.astype(self.dtype)

    def unstandardise(self, outputs: np.ndarray) -> np.ndarray:
        """A network's outputs in the units of the data set."""
        return outputs if self.y_mean is None or self.y_std is None else outputs * self.y_std + self.y_mean

    def outline(self) -> "Part":
        """The description of samples that another rank reads: everything except the numbers."""
        x, y = (cast(np.ndarray, Made(array.shape, array.dtype, None)) for array in (self.x, self.y))
        return replace(self, x=x, y=y)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of the inputs of one sample."""
        return self.x.shape[1:]

    @property
    def features(self) -> int:
        """How many inputs a sample has."""
        return math.prod(self.sample_shape)

    @property
    def input_type(self) -> np.dtype:
        """The type of the inputs."""
        return np.dtype(self.dtype)

    @property
    def target_type(self) -> np.dtype:
        """The type of the targets."""
        return np.dtype(np.int64 if self.y_mean is None else self.dtype)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of the targets of one sample; () for labels."""
        return self.y.shape[1:]

    @property
    def target_width(self) -> int:
        """How many targets a sample has."""
        return math.prod(self.target_shape)

    @property
    def target_scale(self) -> np.ndarray | None:
        """The size of one standardised unit of each output; None for labels."""
        return self.y_std


@dataclass
class Dataset:
    """Samples to train on and samples for testing, and what is to be learnt from them.

    Parameters
    ----------
    name : str
        As on the command line.
    train, test : Part
        The samples.
    loss : str
        "cross-entropy" or "mse", a key of `gridgrad.nn.LOSSES`.
    outputs : int
        How many classes there are, or values to predict.
    units : str
        Of the targets.
    synthetic : bool
        Whether the samples are made up.
    note : str
        A line for the user that says what was taken for what; "" where that is clear.
    classes : list of str, optional
        The names of the classes in the order of their labels, such as ["cat", "dog"]; None in a regression.
    input_names, target_names : list of str, optional
        The columns of a table, by name or by number from 0; None for images and arrays of other shapes.

    Examples
    --------
    >>> from gridgrad.datasets import load
    >>> data = load("airfoil5")
    >>> data.loss, data.features, data.outputs, data.units
    ('mse', 5, 1, 'dB')
    """

    name: str
    train: Part
    test: Part
    loss: str
    outputs: int
    units: str
    synthetic: bool = False
    note: str = ""
    classes: list[str] | None = None
    input_names: list[str] | None = None
    target_names: list[str] | None = None

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of the inputs of one sample."""
        return self.train.sample_shape

    @property
    def features(self) -> int:
        """How many inputs a sample has."""
        return self.train.features

    def reshaped(self, sample_shape: Sequence[int]) -> "Dataset":
        """The data set with samples of another shape: see `Part.reshaped`."""
        return replace(self, train=self.train.reshaped(sample_shape), test=self.test.reshaped(sample_shape))

    def outline(self) -> "Dataset":
        """The data set without its samples: see `Part.outline`."""
        return replace(self, train=self.train.outline(), test=self.test.outline())

    def description(self) -> dict[str, Any]:
        """What is kept with a trained network for `read_inputs`: text, numbers and lists. Take it before reshaping."""
        names = "name", "loss", "outputs", "units", "classes", "input_names", "target_names"
        moments = {name: getattr(self.train, name) for name in MOMENTS}
        found = {name: value if value is None else np.asarray(value, np.float64).tolist() for name, value in moments.items()}
        return {name: getattr(self, name) for name in names} | {"sample_shape": list(self.sample_shape)} | found


class Samples:
    """Some rows and columns of a mapped array, as an array of samples: indexing reads what is asked for, and little more.
    columns: the numbers, in a row, of those of a sample, which has this shape. chosen: of the rows, or None for all."""

    def __init__(self, array, columns, shape, chosen=None):
        self.array, self.columns, self.chosen = array.reshape(len(array), -1), columns, chosen
        self.shape, self.dtype = (len(array if chosen is None else chosen), *shape), array.dtype

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        """index: of samples, as in NumPy, or a tuple of one and a slice of each of the dimensions of a sample."""
        samples, *block = index if isinstance(index, tuple) else (index,)
        wanted = self.columns.reshape(self.shape[1:])[tuple(block)]
        first, last = (wanted.min(), wanted.max() + 1) if wanted.size else (0, 0)
        read = self.array[samples if self.chosen is None else self.chosen[samples], first:last]
        in_a_row = wanted.size == last - first and (np.diff(wanted.ravel()) == 1).all()
        return read.reshape(*read.shape[:-1], *wanted.shape) if in_a_row else read[..., wanted - first]

    def __array__(self, dtype=None, copy=None):
        found = self[:]
        if copy is False and not np.may_share_memory(found, self.array):
            raise ValueError("these samples are some of a larger array: they can not be had without a copy")
        return np.array(found, dtype, copy=copy)

    def reshape(self, _, *shape):
        """The same samples in another shape; the first argument is their number, as in NumPy."""
        return Samples(self.array, self.columns, shape, self.chosen)


class Made:
    """An array whose samples are made when it is indexed: `make` gives those of some numbers, in any shape; it is None where
    another rank holds the samples."""

    def __init__(self, shape, dtype, make):
        self.shape, self.dtype, self.make = shape, np.dtype(dtype), make

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        """index: as for Samples."""
        samples, *block = index if isinstance(index, tuple) else (index,)
        numbers = np.arange(len(self))[samples]
        return self.make(numbers.ravel()).reshape(*numbers.shape, *self.shape[1:])[(..., *block)]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self[:], dtype)

    def reshape(self, _, *shape):
        return Made((len(self), *shape), self.dtype, self.make)


def moments(x):
    """Mean and standard deviation of each column, the latter 1 where a column is constant: float64."""
    mean = np.mean(x, axis=0, dtype=np.float64)
    std = np.std(x, axis=0, dtype=np.float64)
    return mean, np.where(std > 0, std, 1.0)


def regression(name, train, test, units, dtype, synthetic=False, fitted=None):
    """A Dataset of (x, y) pairs of arrays. fitted: (x_mean, x_std, y_mean, y_std), by default those of the training pair."""
    fitted = fitted or (*moments(train[0]), *moments(train[1]))
    parts = [Part(x, y, *fitted, dtype) for x, y in (train, test)]
    return Dataset(name, *parts, "mse", train[1].shape[1], units, synthetic)
