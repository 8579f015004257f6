"""Arrays in HDF5 files. Anyone may have written or damaged them: nothing is read that is elsewhere, or larger than expected.

The library does not survive a disk that becomes full while it writes numbers: errors are lost, and the process may crash. So a
file is made in memory, or numbers are written to places that were reserved.
"""

import contextlib
import errno
import io
import math
import os

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.whole_files import written_whole

DAMAGED = AttributeError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError  # raised for damaged files
NO_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524  # said by file systems without locks; the last is Linux's ENOTSUPP
NO_MAPS = errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP  # said where files can not be mapped
NAMES = {"f": "floating-point numbers", "iu": "whole numbers"}


@contextlib.contextmanager
def reading(path, damage, remedy):
    """An open HDF5 file to read, which is locked where the file system has locks. OSError if the system can not read it;
    ValueError, "PATH: DAMAGE (reason); REMEDY", for what else h5py or the block raises."""
    try:
        try:
            file = h5py.File(path, "r")
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            file = h5py.File(path, "r", locking=False)
        with file:
            yield file
    except DAMAGED as error:
        number = getattr(error, "errno", None)
        if number == errno.EAGAIN:
            raise OSError(f"can not read {path}: another program is writing it; wait until that has ended") from None
        if number:
            raise OSError(number, os.strerror(number), str(path)) from None
        raise ValueError(f"{path}: {damage} ({one_line(error)}); {remedy}") from None


def one_line(error):
    return " ".join(str(error).split())[:200] or type(error).__name__


def place_of(data, size):
    """Where in a file of `size` bytes the numbers of a dataset lie one after another, as NumPy has them in memory; else None.
    A type of HDF5 says more than one of NumPy: which of its bits are the number, and how many its exponent has."""
    alike = h5py.h5t.py_create(data.dtype, logical=True) == data.id.get_type()
    offset = data.id.get_offset() if alike and data.chunks is None and data.size else None
    return None if offset is None or offset + data.nbytes > size else offset


def mapped(path, dtype, offset, shape, order="C"):
    """A read-only map of an array in a file; the array itself where the file system can not map files."""
    try:
        return np.memmap(path, dtype, "r", offset, shape, order)
    except OSError as error:
        if error.errno not in NO_MAPS:
            raise
    found = np.fromfile(path, dtype, math.prod(shape), offset=offset).reshape(shape, order=order)
    found.flags.writeable = False
    return found


@contextlib.contextmanager
def made_in_memory(path):
    """An open HDF5 file to fill, in memory; it appears at `path` whole or not at all. NotWritten as in `written_whole`."""
    content = io.BytesIO()
    with h5py.File(content, "w", libver="v110") as file:
        yield file
    with written_whole(path) as beside:
        beside.write_bytes(content.getbuffer())


def early_and_unfilled():
    """Properties of a dataset whose place in the file is known as soon as it is created."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return properties


def own(folder, name, kind):
    """The Group or Dataset (`kind`, a class of h5py) of this name in a group; ValueError if none or only a link is there."""
    if not isinstance(folder.get(name, getlink=True), h5py.HardLink) or not isinstance(folder[name], kind):
        raise ValueError(f"it has no {kind.__name__.lower()} {name} of its own")
    return folder[name]


def read_array(folder, name, shape, kinds, what):
    """The array of this name, which messages call `what`. kinds: the letters of its types in NumPy, such as "f".
    ValueError for another shape or type, for numbers that are not finite, and for an array whose numbers are not in this file
    or come from blocks larger than itself."""
    data = own(folder, name, h5py.Dataset)
    elsewhere = data.is_virtual or data.external  # a virtual one can be its own source, at which the library crashes
    if data.shape != shape or data.dtype.kind not in kinds or elsewhere:
        raise ValueError(f"{what} must be {'x'.join(map(str, shape))} {NAMES[kinds]}")
    if any(block > length for block, length in zip(data.chunks or (), shape, strict=False)):
        raise ValueError(f"{what} is in blocks of {'x'.join(map(str, data.chunks))}, larger than itself")
    try:
        limits.check_dataset(data)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    found = data[...]
    if not np.isfinite(found).all():
        raise ValueError(f"{what} has numbers that are not finite")
    return found
