"""The file of one rank in a checkpoint, in HDF5.

It has one flat dataset for each array of the rank's state, under the path `PARTICIPANT/NAME`, with the elements that this rank
writes, one piece after another. The dataset `table` is a text in JSON, which says what the elements are: see `table_of`.
Datasets `own/PARTICIPANT/NAME` are of use to this rank alone. The file of the first rank of a worker also has its logs, as
datasets `logs/PARTICIPANT/NAME`.
Datasets are contiguous and uncompressed, so that they are written and read without passing through the HDF5 library, which
would hold Python's global lock meanwhile.
"""

import hashlib
import json
import os

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import content_of
from gridgrad.nn.files.hdf5_arrays import DAMAGED, early_and_unfilled, mapped
from gridgrad.nn.files.whole_files import number_of
from gridgrad.parallel.checkpoint.pieces import Piece

AT_ONCE = 1 << 24  # bytes that are written or hashed in one call
TABLE = "table"
DTYPES = np.dtype(np.float32), np.dtype(np.float64)
LONGEST_DIMENSION = 1 << 62


def file_of(rank):
    """The name of a rank's file in a checkpoint."""
    return f"rank-{rank:04d}.h5"


def table_of(pieces, numbers, worker):
    """The table of a file, as JSON in bytes. TypeError or ValueError if `numbers` has what JSON can not hold.

    pieces: {path of a dataset: its pieces, in order}. numbers: {participant: its numbers}. worker: the number of the worker.
    "blocks" has each block once, as [array, shape, part of each dimension], a part as [start, stop] or {"at": indices}.
    "pieces" has for each dataset a list of [number of the block, start, stop].
    """
    blocks, rows = {}, {}
    for path, found in pieces.items():
        rows[path] = []
        for piece in found:
            number, _ = blocks.setdefault(piece.array, (len(blocks), piece))  # a rank has one block of each array
            rows[path].append([number, piece.start, piece.stop])
    outline = [[piece.array, piece.shape, [part_to_json(part) for part in piece.block]] for _, piece in blocks.values()]
    table = {"worker": worker, "blocks": outline, "pieces": rows, "numbers": numbers}
    return json.dumps(table, allow_nan=False).encode()


def part_to_json(part):
    return [int(part.start), int(part.stop)] if isinstance(part, slice) else {"at": np.asarray(part).tolist()}


def pieces_in(table):
    """{path of a dataset: its pieces, in order} of a table. ValueError for one that does not make sense."""
    try:
        blocks = [block_from_json(*block) for block in table["blocks"]]
        found = {}
        for path, rows in table["pieces"].items():
            found[path] = [Piece(*blocks[number], start, stop) for number, start, stop in rows if number >= 0]
            for piece, (_, *ends) in zip(found[path], rows, strict=True):
                if not all(type(end) is int for end in ends) or not 0 <= piece.start < piece.stop <= np.prod(piece.block_shape):
                    raise ValueError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError):
        raise ValueError("its table does not make sense") from None
    return found


def block_from_json(array, shape, parts):
    """(array, shape, block) of one entry. ValueError or TypeError if it does not make sense."""
    if type(array) is not str or not all(type(length) is int and length <= LONGEST_DIMENSION for length in shape):
        raise ValueError
    return array, tuple(shape), tuple(part_from_json(part, length) for part, length in zip(parts, shape, strict=True))


def part_from_json(part, length):
    numbers = part["at"] if isinstance(part, dict) else part
    if not all(type(number) is int and 0 <= number <= length for number in numbers):
        raise ValueError
    if not isinstance(part, dict):
        start, stop = part
        if start > stop:
            raise ValueError
        return slice(start, stop)
    found = np.array(numbers, np.int64)
    if not len(found) or found[-1] >= length or (np.diff(found) <= 0).any():
        raise ValueError
    return found


def write_shard(path, arrays, table):
    """Write a file, and wait until the disk has it. Returns {"name", "size", "sha256"}. OSError if that fails.

    path: of a file that does not exist yet. arrays: {path of a dataset: flat host array}. table: see `table_of`.
    """
    offsets = {}
    with h5py.File(path, "x", libver="v110", locking=False) as file:  # nobody else knows the file
        for name, array in (arrays | {TABLE: np.frombuffer(table, np.uint8)}).items():
            dataset = file.create_dataset(name, data=None, dcpl=early_and_unfilled(), shape=array.shape, dtype=array.dtype)
            offsets[dataset.id.get_offset()] = array
    with open(path, "r+b", buffering=0) as file:
        for offset, array in offsets.items():
            if offset is not None:  # else there are no elements
                write_at(file.fileno(), offset, memoryview(np.ascontiguousarray(array)).cast("B"))
        os.fsync(file.fileno())
    return {"name": path.name, "size": path.stat().st_size, "sha256": sha256(path)}


def write_at(descriptor, offset, content):
    """Write all of a content at a place in a file; other threads run meanwhile."""
    while content:
        written = os.pwrite(descriptor, content[:AT_ONCE], offset)
        content, offset = content[written:], offset + written


def sha256(path):
    """The SHA-256 of a file, in hexadecimal digits."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=limits.ordinary) as file:
        while part := file.read(AT_ONCE):
            found.update(part)
    return found.hexdigest()


class ShardFile:
    """A file of one rank, open for reading: a context manager.

    pieces: {path of a dataset: its pieces}. numbers: {participant: its numbers}. worker: the number of the rank's worker.
    ValueError that names the file if it is not as described above, OSError if the system can not read it.
    """

    def __init__(self, path):
        self.path = path
        try:
            self._file = h5py.File(path, "r", locking=False)  # what is whole is not written any more
        except OSError as error:
            if number := number_of(error):
                raise OSError(number, os.strerror(number), str(path)) from None
            raise ValueError(f"{path}: not an HDF5 file that can be read") from None
        try:
            table = self._table()
            self.pieces, self.numbers, self.worker = pieces_in(table), table.get("numbers"), table.get("worker")
            known = isinstance(self.numbers, dict) and all(isinstance(found, dict) for found in self.numbers.values())
            if type(self.worker) is not int or self.worker < 0 or not known:
                raise ValueError("its table does not make sense")
            self._places = {name: self._place(name, pieces) for name, pieces in self.pieces.items()}
        except DAMAGED as error:
            self._file.close()
            if number := number_of(error):
                raise OSError(number, os.strerror(number), str(path)) from None
            raise ValueError(f"{path}: {error}") from None

    def _table(self):
        dataset = self._file[TABLE]
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype != np.uint8 or dataset.ndim != 1:
            raise ValueError("its table is of another kind")
        if dataset.size > limits.BUDGET:
            raise ValueError("its table is too long")
        self._offset(dataset)
        table = content_of(dataset[...].tobytes())
        if not isinstance(table, dict):
            raise ValueError("its table is no object")
        return table

    def _place(self, name, pieces):
        """(dtype, elements, offset in the file) of a dataset, which has the elements of the pieces."""
        dataset = self._file[name]
        elements = sum(piece.stop - piece.start for piece in pieces)
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype not in DTYPES or dataset.shape != (elements,):
            raise ValueError(f"its dataset {name} does not fit its table")
        return dataset.dtype, elements, self._offset(dataset)

    def _offset(self, dataset):
        """Where the elements of a dataset are in the file. ValueError if they are elsewhere, or not one after another.

        A virtual dataset can be its own source, at which the HDF5 library crashes when it reads it.
        """
        offset = dataset.id.get_offset() if dataset.size else 0
        if offset is None or offset + dataset.nbytes > os.path.getsize(self.path):
            raise ValueError(f"its dataset {dataset.name} is not contiguous")
        return offset

    def array(self, name):
        """The elements of a dataset, as they lie in the file: read when they are used, or now where files can not be mapped."""
        dtype, elements, offset = self._places[name]
        return mapped(self.path, dtype, offset, (elements,)) if elements else np.empty(0, dtype)

    def own(self, path):
        """An array that is no piece of a global one: a log of the worker, or what this rank has for itself."""
        try:
            dataset = self._file[path]
            if not isinstance(dataset, h5py.Dataset) or dataset.dtype not in DTYPES or dataset.ndim != 1:
                raise ValueError("it is of another kind")
            self._offset(dataset)
            return dataset[...]
        except DAMAGED as error:
            raise ValueError(f"{self.path}: no array {path} ({error})") from None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()
