"""The files of a checkpoint, in HDF5: one of each rank, and one in which every array is whole.

The file of a rank has one flat dataset for each array of the rank's state, under the path `PARTICIPANT/NAME`, with the elements
that this rank writes, one piece after another. The dataset `table` is a text in JSON, which says what the elements are: see
`table_of`. Datasets `own/PARTICIPANT/NAME` are of use to this rank alone. The file of the first rank of a worker also has its
logs, `logs/PARTICIPANT/NAME`. Datasets are contiguous and uncompressed, so that they are written and read without the HDF5
library, which would hold Python's global lock meanwhile.

The datasets of `whole.h5` are virtual: HDF5 finds their elements in the files of the ranks, which must stay beside it. An array
is `PARTICIPANT/NAME/ARRAY`, such as `network/parameters/0.weight`; with several workers a group `worker-N` is in front. They
have the layout of this library, channels last: (inputs, outputs) for a Linear. Resuming does not read this file.
"""

import hashlib
import io
import json
import os
from itertools import product
from math import prod

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import content_of
from gridgrad.nn.files.hdf5_arrays import DAMAGED, early_and_unfilled, mapped
from gridgrad.nn.files.whole_files import number_of
from gridgrad.parallel.checkpoint.pieces import Piece
from gridgrad.parallel.placement.partition import indices, size

WHOLE = "whole.h5"
AT_ONCE = 1 << 24  # bytes that are written or hashed in one call
TABLE = "table"
DTYPES = np.dtype(np.float32), np.dtype(np.float64)
LONGEST_DIMENSION = 1 << 62


def file_of(rank):
    """The name of a rank's file in a checkpoint."""
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


def pieces_in(table):
    """{path of a dataset: its pieces, in order} of a table. ValueError for one that does not make sense."""
    try:
        blocks, found = [], {}
        for array, shape, parts in table["blocks"]:
            if type(array) is not str or not all(type(length) is int and length <= LONGEST_DIMENSION for length in shape):
                raise ValueError
            block = tuple(part_from_json(part, length) for part, length in zip(parts, shape, strict=True))
            blocks.append((array, tuple(shape), block))
        for path, rows in table["pieces"].items():
            found[path] = [Piece(*blocks[number], start, stop) for number, start, stop in rows if number >= 0]
            for piece, (_, *ends) in zip(found[path], rows, strict=True):
                if not all(type(end) is int for end in ends) or not 0 <= piece.start < piece.stop <= np.prod(piece.block_shape):
                    raise ValueError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError):
        raise ValueError("its table does not make sense") from None
    return found


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
    found = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=limits.ordinary) as file:
        while part := file.read(AT_ONCE):
            found.update(part)
    return found.hexdigest()


class ShardFile:
    """A file of one rank, open for reading: a context manager. pieces, numbers, worker: as for `table_of`.
    ValueError that names the file if it is not as described above, OSError if the system can not read it."""

    def __init__(self, path):
        self.path, self._file, self._places = path, None, {}
        try:
            self._file = h5py.File(path, "r", locking=False)  # what is whole is not written any more
            table = self._table()
            self.pieces, self.numbers, self.worker = pieces_in(table), table.get("numbers"), table.get("worker")
            known = isinstance(self.numbers, dict) and all(isinstance(found, dict) for found in self.numbers.values())
            if type(self.worker) is not int or self.worker < 0 or not known:
                raise ValueError("its table does not make sense")
            for name, pieces in self.pieces.items():
                dataset, offset = self._dataset(name)
                if dataset.size != sum(map(len, pieces)):
                    raise ValueError(f"its dataset {name} does not fit its table")
                self._places[name] = dataset.dtype, dataset.size, offset
        except DAMAGED as error:
            if number := number_of(error):
                problem = OSError(number, os.strerror(number), str(path))
            else:
                problem = ValueError(f"{path}: {error if self._file else 'not an HDF5 file that can be read'}")
            if self._file:
                self._file.close()
            raise problem from None

    def _table(self):
        dataset, _ = self._dataset(TABLE, (np.dtype(np.uint8),))
        if dataset.size > limits.BUDGET:
            raise ValueError("its table is too long")
        table = content_of(dataset[...].tobytes())
        if not isinstance(table, dict):
            raise ValueError("its table is no object")
        return table

    def _dataset(self, name, dtypes=DTYPES):
        """(a flat dataset, where in the file its elements lie one after another). ValueError if it is another one.
        The HDF5 library crashes when it reads a virtual dataset that is its own source."""
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype not in dtypes or dataset.ndim != 1:
            raise ValueError(f"its dataset {name} is of another kind")
        offset = dataset.id.get_offset() if dataset.size else 0
        if offset is None or offset + dataset.nbytes > os.path.getsize(self.path):
            raise ValueError(f"its dataset {name} is not contiguous")
        return dataset, offset

    def array(self, name):
        """The elements of a dataset: read when they are used, or now where files can not be mapped."""
        dtype, elements, offset = self._places[name]
        return mapped(self.path, dtype, offset, (elements,)) if elements else np.empty(0, dtype)

    def own(self, path):
        """An array that is no piece of a global one: a log of the worker, or what this rank has for itself."""
        try:
            dataset, _ = self._dataset(path)
            return dataset[...]
        except DAMAGED as error:
            raise ValueError(f"{self.path}: no array {path} ({error})") from None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()


def view_of(ranks, dtype, divided=()):
    """The content of `whole.h5`, as bytes, from [(worker, {path: pieces}) of each rank]; None of None.
    divided: the paths of arrays of which each worker has a part, so that they belong to none."""
    if ranks is None:
        return None
    several, layouts = len({worker for worker, _ in ranks}) > 1, {}
    for rank, (worker, pieces) in enumerate(ranks):
        for path, found in pieces.items():
            elements = sum(map(len, found))
            source = h5py.VirtualSource(file_of(rank), path, (elements,), dtype)
            first = 0
            for piece in found:
                name = f"worker-{worker}/" * (several and path not in divided) + f"{path}/{piece.array}"
                layout = layouts.setdefault(name, h5py.VirtualLayout(piece.shape, dtype))
                for whole, before in piece.blocks():
                    for block, inside in selectable(whole):
                        start = first + before + inside
                        layout[block] = source[start : start + prod(map(size, block))]
                first += len(piece)
    file = io.BytesIO()
    with h5py.File(file, "w", libver="v110") as whole:
        for name, layout in layouts.items():
            whole.create_virtual_dataset(name, layout, fillvalue=np.dtype(dtype).type(0))
    return file.getvalue()


def selectable(block):
    """Yields (block, elements before it) that make a block together, in C order, with one index array each at most.
    HDF5 selects no others."""
    arrays = [dim for dim, part in enumerate(block) if not isinstance(part, slice)]
    if len(arrays) < 2:
        yield block, 0
        return
    one_by_one, rest = block[: arrays[-2] + 1], block[arrays[-2] + 1 :]
    for number, place in enumerate(product(*(indices(part).tolist() for part in one_by_one))):
        yield (*(slice(i, i + 1) for i in place), *rest), number * prod(map(size, rest))
