"""Samples that are some rows and columns of an array which is mapped."""

import numpy as np


class Samples:
    """Some rows and columns of a mapped array, as an array of samples: indexing reads what is asked for, and little more.

    array: (rows, ..). columns: the numbers, in a row, of those that a sample has; they increase. shape: of a sample.
    chosen: the numbers of the rows, or None for all.
    """

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
        return read[..., wanted - first] if wanted.size != last - first else read.reshape(*read.shape[:-1], *wanted.shape)

    def __array__(self, dtype=None, copy=None):
        """All samples, as NumPy asks for them."""
        found = self[:]
        if copy is False and not np.may_share_memory(found, self.array):
            raise ValueError("these samples are some of a larger array: they can not be had without a copy")
        return np.array(found, dtype, copy=copy)

    def reshape(self, _, *shape):
        """The same samples in another shape; the first argument is their number, as in NumPy."""
        return Samples(self.array, self.columns, shape, self.chosen)
