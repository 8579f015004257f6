"""What a data set is to a training program: samples that can be taken by index, standardised on the way."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass
class Hollow:
    """The shape of an array that is not here."""

    shape: tuple

    def __len__(self):
        return self.shape[0]


@dataclass
class Part:
    """The training or the test samples.

    x: (samples, features), an array or a map of a file. y: (samples,) integer labels, or (samples, outputs) values.
    x_mean, x_std: of each feature (or one for all) over the *training* samples; inputs become (x - mean) / std.
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

    def inputs(self, indices, columns):
        """The inputs of the samples `indices`, only the slice `columns` of their features: (n, columns)."""
        x = np.asarray(self.x[indices, columns], self.dtype)
        mean, std = (np.asarray(v if v.ndim == 0 else v[columns], self.dtype) for v in (self.x_mean, self.x_std))
        return (x - mean) / std

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
        """What a rank needs to know of samples that another one reads: all but the numbers."""
        hollow = Hollow(self.x.shape), Hollow(self.y.shape)
        return replace(self, x=hollow[0], y=hollow[1])

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
        """Of each output, the size of one standardised unit."""
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
    def features(self):
        return self.train.x.shape[1]

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
