"""The files of a checkpoint, in HDF5: one of each rank.

A flat dataset `PARTICIPANT/NAME` has the elements of an array that this rank writes, one piece after another; `table` says in
JSON which they are (`table_of`). Datasets `own/PARTICIPANT/NAME` are of use to this rank alone; the first rank of a worker also
writes its logs, `logs/PARTICIPANT/NAME`. Datasets are contiguous and uncompressed, so that they are written and read without
the HDF5 library, which would hold Python's global lock meanwhile.
"""

import hashlib
import json
import os
from math import prod

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import UNFIT, content_of
from gridgrad.nn.files.hdf5_arrays import DAMAGED, early_and_unfilled, mapped, place_of
from gridgrad.nn.files.whole_files import number_of
from gridgrad.parallel.checkpoint.pieces import Piece, sizes
from gridgrad.parallel.placement.partition import Partition

AT_ONCE = 1 << 24  # bytes that are written in one call
TABLE = "table"
DTYPES = np.dtype(np.float32), np.dtype(np.float64)
LONGEST_DIMENSION = 1 << 62


def file_of(rank):
    return f"rank-{rank:04d}.h5"


def table_of(pieces, numbers, worker):
    """The table of a file, as JSON in bytes, of {path of a dataset: its pieces} and {participant: its numbers}.
    TypeError or ValueError if `numbers` has what JSON can not hold."""
    blocks, rows = {}, {}  # the rows of a dataset are [number of the block, start, stop] of each piece
    for path, found in pieces.items():
        rows[path] = []
        for piece in found:
            number, _ = blocks.setdefault(piece.array, (len(blocks), piece))  # a rank has one block of each array
            rows[path].append([number, piece.start, piece.stop])
    outline = []
    for _, piece in blocks.values():
        parts = [[int(part.start), int(part.stop)] if isinstance(part, slice) else {"at": np.asarray(part).tolist()}
                 for part in piece.block]  # fmt: skip
        outline.append([piece.array, piece.shape, parts])
    table = {"worker": worker, "blocks": outline, "pieces": rows, "numbers": numbers}
    return json.dumps(table, allow_nan=False).encode()


def read_table(text):
    """({(path of a dataset, array): [(Piece, elements before it in the dataset)]}, {path of a dataset: elements}, numbers,
    worker) of a result of `table_of`. ValueError for one that does not make sense."""
    table = content_of(text)
    try:
        blocks, parts, elements = [], {}, {}
        for array, shape, block in table["blocks"]:
            lengths_fit = all(type(length) is int and length <= LONGEST_DIMENSION for length in shape)
            if type(array) is not str or not lengths_fit:
                raise ValueError
            blocks.append((array, tuple(shape), tuple(part_in(*each) for each in zip(block, shape, strict=True))))
        for path, rows in table["pieces"].items():
            elements[path] = 0
            for number, start, stop in rows:
                piece = Piece(*blocks[number], start, stop)
                are_whole = type(number) is type(start) is type(stop) is int
                if not are_whole or number < 0 or not 0 <= start < stop <= prod(sizes(piece.block)):
                    raise ValueError
                parts.setdefault((path, piece.array), []).append((piece, elements[path]))
                elements[path] += len(piece)
        numbers, worker = table["numbers"], table["worker"]
        if type(worker) is not int or worker < 0 or any(type(one) is not dict for one in numbers.values()):
            raise ValueError
        return parts, elements, numbers, worker
    except UNFIT:
        raise ValueError("its table does not make sense") from None


def part_in(content, length):
    """A part of a dimension of this length, from a table."""
    indices = isinstance(content, dict)
    numbers = content["at"] if indices else content
    if not all(type(number) is int and 0 <= number <= length for number in numbers):
        raise ValueError
    start, stop = (0, 0) if indices else numbers
    return Partition.of(length, (np.array(numbers, np.int64) if indices else slice(start, stop),)).part(0)


def write_shard(path, arrays, table):
    """Write a new file, and wait until the disk has it. Returns {"name", "size", "sha256"}. OSError if that fails.
    arrays: {path of a dataset: flat host array}. table: a result of `table_of`."""
    offsets = {}
    with h5py.File(path, "x", libver="v110", locking=False) as file:  # nobody else knows the file
        for name, array in (arrays | {TABLE: np.frombuffer(table, np.uint8)}).items():
            dataset = file.create_dataset(name, data=None, dcpl=early_and_unfilled(), shape=array.shape, dtype=array.dtype)
            offsets[dataset.id.get_offset()] = array
    with open(path, "r+b", buffering=0) as file:
        for offset, array in offsets.items():
            content = np.ascontiguousarray(array).view(np.uint8)
            while content.size:  # without elements there is no offset
                written = os.pwrite(file.fileno(), content[:AT_ONCE], offset)  # other threads run meanwhile
                content, offset = content[written:], offset + written
        os.fsync(file.fileno())
    return {"name": path.name, "size": path.stat().st_size, "sha256": sha256(path)}


def sha256(path):
    """The SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb", buffering=0, opener=limits.ordinary) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Shard:
    """What the file of a rank says of its arrays, which are read later. parts, numbers, worker: as for `read_table`.
    ValueError that names the file if it is not as described above, OSError if the system can not read it."""

    def __init__(self, path):
        self.path, file = path, None
        try:
            with h5py.File(path, "r", locking=False) as file:  # what is whole is not written any more
                self._places = places_in(file, os.path.getsize(path))
            self.parts, elements, self.numbers, self.worker = read_table(self.array(TABLE).tobytes())
            for name in elements:
                if name not in self._places or self._places[name][1] != elements[name]:
                    raise ValueError(f"its dataset {name} does not fit its table")
        except DAMAGED as error:
            if number := number_of(error):
                raise OSError(number, os.strerror(number), str(path)) from None
            words = "not an HDF5 file that can be read" if file is None else str(error).removeprefix(f"{path}: ")
            raise ValueError(f"{path}: {words}") from None

    def array(self, name):
        """The elements of a dataset: read when they are used, or now where files can not be mapped. ValueError if none."""
        if name not in self._places:
            raise ValueError(f"{self.path}: no array {name}")
        dtype, elements, offset = self._places[name]
        return mapped(self.path, dtype, offset, (elements,)) if elements else np.empty(0, dtype)

    def sources(self, path, array):
        """[(Piece, function that returns its elements)] of an array, in the dataset of a path."""
        return [(piece, lambda first=first, piece=piece: self.array(path)[first : first + len(piece)])
                for piece, first in self.parts.get((path, array), ())]  # fmt: skip


def places_in(file, length):
    """{name: (type, elements, where they lie in the file)} of the flat datasets of an open file of so many bytes.
    ValueError if there are others: the HDF5 library crashes when it reads a virtual dataset that is its own source."""
    found = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            dtypes = (np.dtype(np.uint8),) if name == TABLE else DTYPES
            if item.ndim != 1 or item.dtype not in dtypes:
                raise ValueError(f"its dataset {name} is of another kind")
            place = place_of(item, length)
            if item.size and place is None:
                raise ValueError(f"its dataset {name} is not contiguous")
            if name == TABLE and item.size > limits.BUDGET:
                raise ValueError("its table is too long")
            found[name] = item.dtype, item.size, place

    file.visititems(note)
    return found
