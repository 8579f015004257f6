"""Arrays in files that anyone may have made: NPY, NPZ, HDF5, and tables of numbers in text files.

An array that lies in its file as it lies in memory is mapped there, so that each rank reads only its rows. Of every other one
the rows are read once, block by block, to be converted. Nothing is unpickled, and nothing is read that lies in other files.
"""

import csv
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tokenize import TokenError

import h5py
import numpy as np

from gridgrad.datasets import rows, text

BLOCK = 1 << 23  # bytes that are read at a time
LARGEST_CHUNK = 1 << 28  # bytes of an HDF5 chunk, which the library holds in memory
MOST_PACKED = 2000  # bytes that one byte may unpack to: deflate makes 1032 of it
NOT_NPY = (
    EOFError,
    OSError,
    OverflowError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
)  # what NumPy raises where a file is damaged
NOT_ZIP = zipfile.BadZipFile, zlib.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError, ValueError


@dataclass(frozen=True)
class Stored:
    """An array in a file.

    where: the file, and the array in it, for messages. row_shape: of one row. dtype: of its numbers. count: gives the number
    of rows, for which a text must be read. blocks: gives an iterator of all rows, some at a time. map: the array itself,
    mapped, or None. columns: their names or None.
    """

    where: str
    row_shape: tuple[int, ...]
    dtype: np.dtype
    count: Callable[[], int]
    blocks: Callable[[], Iterator[np.ndarray]]
    map: np.ndarray | None = None
    columns: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        return math.prod(self.row_shape)

    @property
    def is_of_numbers(self) -> bool:
        return are_numbers(self.dtype)


def read(path: Path) -> dict[str, Stored]:
    """{name: array} of what is in a file; the name is "" where a file holds one array without a name.

    ValueError if the file is damaged, or its name has another ending than those of FORMATS.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: of none of the formats {', '.join(FORMATS)}, which the end of its name says")
    return FORMATS[path.suffix.lower()](path)


def are_numbers(dtype):
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def per_block(row_shape, dtype):
    """How many rows a block has."""
    return max(1, BLOCK // max(1, math.prod(row_shape) * dtype.itemsize))


def slices(array):
    """Yields the rows of an array or of an open HDF5 dataset, some at a time."""
    step = per_block(array.shape[1:], array.dtype)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def one_line(error):
    return " ".join(str(error).split())[:120] or type(error).__name__


def npy(path):
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except NOT_NPY as error:
        raise ValueError(f"{path}: damaged or no NPY file of numbers ({one_line(error)}); write it anew") from None
    if not array.ndim:
        return {}
    mapped = array if array.flags.c_contiguous else None
    return {"": Stored(str(path), array.shape[1:], array.dtype, partial(len, array), partial(slices, array), mapped)}


def npz(path):
    found = {}
    try:
        with zipfile.ZipFile(path) as file:
            for info in file.infolist():
                with file.open(info) as member:
                    shape, _, dtype = npy_header(member)
                    missing = member.tell() + math.prod(shape) * dtype.itemsize - info.file_size
                if missing and not dtype.hasobject:
                    raise ValueError(f"{info.filename} has {missing} bytes less than its shape {shape} says")
                if info.file_size > MOST_PACKED * (info.compress_size + BLOCK):
                    raise ValueError(f"{info.filename} says that it is larger than it can be")
                name = info.filename.removesuffix(".npy")
                if shape:
                    blocks = partial(unpacked, path, info.filename)
                    found[name] = Stored(f"{path}: {name}", shape[1:], dtype, partial(int, shape[0]), blocks)
    except (*NOT_ZIP, *NOT_NPY) as error:
        raise ValueError(f"{path}: damaged or no NPZ file of numbers ({one_line(error)}); write it anew") from None
    return found


def npy_header(file):
    """(shape, whether it is in Fortran's order, type) at the beginning of an NPY file, behind which the numbers follow."""
    version = np.lib.format.read_magic(file)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in headers:
        raise ValueError(f"version {version} of NPY")
    return headers[version](file)


def unpacked(path, name):
    """Yields the rows of an array in an NPZ file, some at a time; all of them at once if they are in Fortran's order."""
    try:
        with zipfile.ZipFile(path) as file, file.open(name) as member:
            shape, by_columns, dtype = npy_header(member)
            step = shape[0] if by_columns else per_block(shape[1:], dtype)
            for start in range(0, shape[0], step or 1):
                some = min(step, shape[0] - start), *shape[1:]
                content = member.read(math.prod(some) * dtype.itemsize)
                yield np.frombuffer(content, dtype).reshape(some, order="F" if by_columns else "C")
    except NOT_ZIP as error:
        raise ValueError(f"{path}: {name} can not be unpacked ({one_line(error)}); write it anew") from None


def hdf5(path):
    try:
        with h5py.File(path, "r") as file:
            found = []
            file.visititems(lambda name, thing: found.append((name, thing)) if isinstance(thing, h5py.Dataset) else None)
            arrays = {}
            for name, data in found:
                with suppress(*rows.DAMAGED):  # a type that NumPy does not know
                    if data.shape and not data.is_virtual and not data.external:
                        arrays[name] = of_dataset(path, name, data)
            return arrays
    except rows.DAMAGED as error:
        raise ValueError(f"{path}: damaged or not HDF5 ({one_line(error)}); write it anew") from None


def of_dataset(path, name, data):
    offset, where = data.id.get_offset(), f"{path}: {name}"
    mapped = None
    whole = offset is not None and offset + data.nbytes <= os.path.getsize(path)
    if data.chunks is None and whole and data.size and are_numbers(data.dtype):
        mapped = np.memmap(path, data.dtype, "r", offset, data.shape)
    chunk = math.prod(data.chunks or ()) * data.dtype.itemsize
    problem = f"it has chunks of more than {LARGEST_CHUNK >> 20} MiB" if chunk > LARGEST_CHUNK else ""
    if data.nbytes > MOST_PACKED * (data.id.get_storage_size() + BLOCK):
        problem = "most of it was never written"
    count = partial(checked, where, data.shape[0], problem)
    return Stored(where, data.shape[1:], data.dtype, count, partial(hyperslabs, path, name), mapped)


def checked(where, count, problem):
    """`count`; ValueError if there is a problem with the array."""
    if problem:
        raise ValueError(f"{where}: {problem}; write it anew")
    return count


def hyperslabs(path, name):
    """Yields the rows of a dataset of an HDF5 file, some at a time."""
    try:
        with h5py.File(path, "r") as file:
            yield from slices(file[name])
    except rows.DAMAGED as error:
        raise ValueError(f"{path}: {name} can not be read ({one_line(error)}); write it anew") from None


def text_table(path):
    """A text: one line of names or none, then numbers, with semicolons, tabs, commas or spaces between them."""
    with text.opened(path) as file:
        first = file.readline().lstrip("# ")  # the mark in front of names that NumPy writes
    if not first.strip():
        raise ValueError(f"{path}: the first line is empty; begin with the names of the columns, or with numbers")
    delimiter = next((mark for mark in ";\t," if mark in first), None)
    try:
        words = next(csv.reader([first], delimiter=delimiter)) if delimiter else first.split()
    except csv.Error as error:
        raise ValueError(f"{path}: line 1 holds no names of columns and no numbers ({one_line(error)})") from None
    names = None if all(map(is_number, words)) else tuple(word.strip() for word in words)
    skip, width = int(names is not None), len(words)
    count, blocks = partial(text.count_rows, path, skip), partial(text.read_chunks, path, width, delimiter, skip)
    return {"": Stored(str(path), (width,), np.dtype(np.float64), count, blocks, columns=names)}


def is_number(word):
    try:
        float(word)
    except ValueError:
        return False
    return True


FORMATS = {
    ".csv": text_table,
    ".tsv": text_table,
    ".txt": text_table,
    ".dat": text_table,
    ".npy": npy,
    ".npz": npz,
    ".h5": hdf5,
    ".hdf5": hdf5,
}
