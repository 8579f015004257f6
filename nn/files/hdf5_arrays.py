"""Arrays in HDF5 files. Anyone may have written or damaged them: nothing is read that is elsewhere, or larger than expected.

The library does not survive a disk that becomes full while it writes numbers: errors are lost, and the process may crash. So a
file is made in memory, or numbers are written to places that were reserved.
"""

import contextlib
import io

import h5py

from gridgrad.nn.files.whole_files import written_whole

DAMAGED = KeyError, OSError, RuntimeError, TypeError, ValueError  # what h5py raises where a file is damaged
NAMES = {"f": "floating-point numbers", "iu": "whole numbers"}


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
    """The Group or Dataset of this name in a group. ValueError if there is none, or only a link to one elsewhere.

    kind: h5py.Group or h5py.Dataset.
    """
    if not isinstance(folder.get(name, getlink=True), h5py.HardLink) or not isinstance(folder[name], kind):
        raise ValueError(f"it has no {kind.__name__.lower()} {name} of its own")
    return folder[name]


def read_array(folder, name, shape, kinds, what):
    """The array of this name in a group.

    shape: its shape. kinds: the letters of its types in NumPy, such as "f". what: what it is, for messages.
    ValueError for any other array, and for one whose numbers are not in this file or come from blocks larger than itself.
    """
    data = own(folder, name, h5py.Dataset)
    elsewhere = data.is_virtual or data.external  # a virtual one can be its own source, at which the library crashes
    if data.shape != shape or data.dtype.kind not in kinds or elsewhere:
        raise ValueError(f"{what} must be {'x'.join(map(str, shape))} {NAMES[kinds]}")
    if any(block > length for block, length in zip(data.chunks or (), shape, strict=False)):
        raise ValueError(f"{what} is in blocks of {'x'.join(map(str, data.chunks))}, larger than itself")
    return data[...]
