"""Rows of numbers in HDF5: written contiguous and uncompressed, so that each rank maps the file and reads only its rows.

Random rows of a mapped data set come at memory speed, ten times as fast as through h5py.
"""

import h5py
import numpy as np

from datasets.files import written_whole


def write(path, arrays, attributes):
    """Write named 2-D float32 arrays and some attributes; the file appears whole or not at all."""
    with written_whole(path) as beside, h5py.File(beside, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=np.ascontiguousarray(array, np.float32))
        file.attrs.update(attributes)


def attributes(path):
    """The file's attributes as a dict; ValueError if it is not a whole HDF5 file."""
    try:
        with h5py.File(path, "r") as file:
            return dict(file.attrs)
    except OSError as error:
        raise ValueError(f"{path}: damaged or not HDF5 ({error}); delete it, and it is made anew") from None


def map_rows(path, name, columns):
    """A read-only map of the data set `name`: float32, (rows, columns).

    ValueError if the file lacks it, or holds it with another shape, type or layout.
    """
    try:
        with h5py.File(path, "r") as file:
            data = file[name]
            shape, dtype, offset = data.shape, data.dtype, data.id.get_offset()
    except (OSError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: no data set {name} ({error}); delete the file, and it is made anew") from None
    if len(shape) != 2 or shape[0] < 1 or shape[1] != columns or dtype != np.float32 or offset is None:
        raise ValueError(f"{path}: {name} is {shape} {dtype}, not contiguous rows of {columns} float32; delete the file")
    return np.memmap(path, np.float32, "r", offset, shape)
