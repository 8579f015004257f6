"""Data sets as a training program sees them: samples that are taken by index and standardised."""

import math
from dataclasses import dataclass, replace

import numpy as np


@dataclass
class Hollow:
    """The shape of an array that another rank holds."""

    shape: tuple

    def __len__(self):
        return self.shape[0]

    def reshape(self, *shape):
        return Hollow(shape)


@dataclass
class Part:
    """The training or the test samples.

    x: (samples, *shape of a sample), an array or a map of a file; images have their channels last.
    y: (samples,) integer labels, or (samples, outputs) values.
    x_mean, x_std: over the *training* samples; inputs become (x - mean) / std. They broadcast with a sample: one number
    for all, one for each channel, or one for each feature.
    y_mean, y_std: of each output over the training samples, for regression; labels are left alone.
    dtype: of the inputs, and of the targets in regression.
    """

    x: np.ndarray
    y: np.ndarray
    x_mean: np.ndarray
    x_std: np.ndarray
    y_mean: np.ndarray | None = None
    y_std: np.ndarray | None = None
    dtype: np.dtype = np.float32

    def __len__(self):
        return len(self.x)

    def inputs(self, indices, block):
        """The inputs of the samples `indices` (an array), and of each sample only its `block`: (n, *sizes of the block).

        block: a tuple of slices, one for each dimension of a sample.
        """
        x = self.x[(indices, *block)].astype(self.dtype, order="C")
        flat = x.reshape(len(x), math.prod(x.shape[1:]))  # a view: numbers for each channel would make loops of 3 steps
        flat -= self._flat(self.x_mean, block)
        flat *= self._flat(1 / self.x_std, block)
        return x

    def _flat(self, moment, block):
        """A mean or deviation for every number of the block in turn, or the one for all."""
        moment = np.asarray(moment, self.dtype)
        return np.broadcast_to(moment, self.sample_shape)[block].ravel() if moment.ndim else moment

    def reshaped(self, sample_shape):
        """The same samples in another shape of equal size, without a copy if they are contiguous; else ValueError."""
        new = tuple(sample_shape)
        if math.prod(new) != self.features:
            raise ValueError(f"samples of the shape {self.sample_shape} can not take the shape {new}: the sizes differ")
        mean, std = (v if np.ndim(v) == 0 else np.broadcast_to(v, self.sample_shape).reshape(new)
                     for v in (self.x_mean, self.x_std))  # fmt: skip
        return replace(self, x=self.x.reshape(len(self), *new), x_mean=mean, x_std=std)

    def targets(self, indices):
        """The targets of the samples `indices`: (n,) labels or (n, outputs) standardised values."""
        y = self.y[indices]
        if self.y_mean is None:
            return np.asarray(y, self.target_type)
        return (np.asarray(y, self.dtype) - self.y_mean.astype(self.dtype)) / self.y_std.astype(self.dtype)

    def unstandardise(self, outputs):
        """A network's outputs in the units of the data set."""
        return outputs if self.y_mean is None else outputs * self.y_std + self.y_mean

    def outline(self):
        """The description of samples that another rank reads: everything but the numbers."""
        hollow = Hollow(self.x.shape), Hollow(self.y.shape)
        return replace(self, x=hollow[0], y=hollow[1])

    @property
    def sample_shape(self):
        return self.x.shape[1:]

    @property
    def features(self):
        return math.prod(self.sample_shape)

    @property
    def input_type(self):
        return np.dtype(self.dtype)

    @property
    def target_type(self):
        return np.dtype(np.int64 if self.y_mean is None else self.dtype)

    @property
    def target_shape(self):
        return self.y.shape[1:]

    @property
    def target_width(self):
        return int(np.prod(self.target_shape))

    @property
    def target_scale(self):
        """The size of one standardised unit of each output."""
        return self.y_std


@dataclass
class Dataset:
    """name: as on the command line. loss: "cross-entropy" or "mse". outputs: classes or values to predict.

    synthetic: whether the samples are made up. units: of the targets.
    """

    name: str
    train: Part
    test: Part
    loss: str
    outputs: int
    units: str
    synthetic: bool = False

    @property
    def sample_shape(self):
        return self.train.sample_shape

    @property
    def features(self):
        return self.train.features

    def reshaped(self, sample_shape):
        """The data set with samples of another shape: see `Part.reshaped`."""
        return replace(self, train=self.train.reshaped(sample_shape), test=self.test.reshaped(sample_shape))

    def outline(self):
        """The data set without its samples: see `Part.outline`."""
        return replace(self, train=self.train.outline(), test=self.test.outline())


def moments(x):
    """Mean and standard deviation of each column, the latter 1 where a column is constant: float64."""
    mean = np.mean(x, axis=0, dtype=np.float64)
    std = np.std(x, axis=0, dtype=np.float64)
    return mean, np.where(std > 0, std, 1.0)


def regression(name, train, test, units, dtype, synthetic=False, fitted=None):
    """A Dataset of (x, y) pairs of arrays, standardised by the training pair.

    fitted: (x_mean, x_std, y_mean, y_std) if they are known already.
    """
    x_mean, x_std, y_mean, y_std = fitted or (*moments(train[0]), *moments(train[1]))
    parts = [Part(x, y, x_mean, x_std, y_mean, y_std, dtype) for x, y in (train, test)]
    return Dataset(name, *parts, "mse", train[1].shape[1], units, synthetic)
