"""Arrays in HDF5: written contiguous and uncompressed, so that each rank maps the file and reads only its rows.

Random rows of a mapped data set are read at the speed of memory, ten times as fast as through h5py.
"""

import contextlib
import os

import h5py
import numpy as np

from gridgrad.datasets.files import VARIABLE
from gridgrad.nn.files.hdf5_arrays import early_and_unfilled, mapped, place_of, reading
from gridgrad.nn.files.whole_files import NotWritten, written_whole

ANEW = "delete it, and it is made anew"


class DataNotWritten(NotWritten):
    """No file can be written to the folder of the data."""

    def __str__(self):
        folder = f"make room there, or name another folder with --data-dir or {VARIABLE}"
        return f"can not write {self.filename}: {self.strerror}; {folder}"


@contextlib.contextmanager
def creating(path, arrays):
    """An open HDF5 file to fill, for arrays that do not fit the memory; it appears at `path` whole or not at all.

    arrays: {name: (shape, type)} of those that it has. NotWritten, at once, if the disk has no room for them.
    """
    # earlier formats take no attributes above 64 KB, such as the names of many classes; nobody else knows the file that is made
    options = {"libver": "v110", "locking": False}
    try:
        with written_whole(path) as beside:
            with h5py.File(beside, "w", **options) as file:
                for name, (shape, dtype) in arrays.items():
                    file.create_dataset(name, shape, dtype, dcpl=early_and_unfilled())
            reserve(beside)
            with h5py.File(beside, "r+", **options) as file:
                yield file
    except NotWritten as error:
        raise DataNotWritten(error.filename, error.errno) from error


def reserve(path):
    """Have the disk reserve room for all bytes of a file, where the system can do so. OSError if there is none."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def write(path, arrays, attributes):
    """Write named arrays of numbers, each in its own type, and some attributes."""
    with creating(path, {name: (array.shape, array.dtype) for name, array in arrays.items()}) as file:
        for name, array in arrays.items():
            file[name][...] = array
        file.attrs.update(attributes)


def is_current(path, source):
    """Whether the file is there and was made from `source`, which its attribute of that name tells."""
    return path.is_file() and attributes(path).get("source") == source


def attributes(path):
    """The file's attributes as a dict; OSError if there is none, ValueError if it is not a whole HDF5 file."""
    check_there(path)
    with reading(path, "damaged or not HDF5", ANEW) as file:
        return dict(file.attrs)


def check_there(path):
    """OSError if nobody has prepared the file."""
    if not path.is_file():
        raise OSError(f"no file {path}: call gridgrad.datasets.prepare first, in one process")


def vectors(path, lengths):
    """Attributes that are vectors of float64, as a list; lengths: {name: length}, names of deviations end in _std.

    ValueError if one is missing, is anything else, holds a number that is not finite, or a deviation that is not above 0.
    """
    known, found = attributes(path), []
    for name, length in lengths.items():
        value = np.asarray(known.get(name, np.nan))
        good = value.shape == (length,) and value.dtype == np.float64 and np.isfinite(value).all()
        if not good or (name.endswith("_std") and value.min() <= 0):
            raise ValueError(f"{path}: {name} is missing or damaged; delete the file, and it is made anew")
        found.append(value)
    return found


def texts(path, name, count):
    """An attribute that is a list of so many texts; ValueError if it is anything else."""
    found = np.asarray(attributes(path).get(name))
    if found.shape != (count,) or not count or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{path}: {name} is missing or damaged; delete the file, and it is made anew")
    return found.tolist()


def map_rows(path, name, shape, dtype=np.float32):
    """A read-only map of the data set `name`: rows of the given shape, (rows, *shape).

    OSError if there is no file; ValueError if it lacks them, or holds them with another shape, type or layout.
    """
    check_there(path)
    with reading(path, f"no data set {name}", ANEW) as file:
        data = file[name]
        found, kind, contiguous, place = data.shape, data.dtype, data.id.get_offset(), place_of(data, os.path.getsize(path))
    wanted = f"{'x'.join(map(str, shape)) or 1} {np.dtype(dtype)}"
    if len(found) < 1 or found[0] < 1 or found[1:] != shape or kind != dtype or contiguous is None:
        raise ValueError(f"{path}: {name} is {found} {kind}, not contiguous rows of {wanted}; {ANEW}")
    if place is None:
        raise ValueError(f"{path}: {name} holds no rows of {wanted}: truncated, or numbers of other bits; {ANEW}")
    return mapped(path, dtype, place, found)


def map_pair(path, half, x, y):
    """The maps of HALF/x and HALF/y, as `map_rows` takes and refuses them; x, y: (shape, dtype) of a row.

    ValueError also if there are not as many of both.
    """
    pair = map_rows(path, f"{half}/x", *x), map_rows(path, f"{half}/y", *y)
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"{path}: {len(pair[0])} inputs but {len(pair[1])} targets; delete the file, and it is made anew")
    return pair
