"""Arrays in files that anyone may have made: NPY, NPZ, HDF5, and tables of numbers in text files.

An array that lies in its file as it lies in memory is mapped there, so that each rank reads only its rows. Of every other one
the rows are read once, block by block, to be converted. Nothing is unpickled, and nothing is read that lies in other files.
"""

import io
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

from gridgrad.datasets import rows
from gridgrad.datasets.text import Text, table_in
from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import DAMAGED, mapped, one_line, place_of

BLOCK = 1 << 23  # bytes that are read at a time
ROWS = 1 << 12  # texts that are read at a time
HEADER = 1 << 17  # bytes at the beginning of an NPY file, within which its header ends
# what NumPy and zipfile raise for damaged files
NOT_NPY = EOFError, OSError, OverflowError, SyntaxError, TokenError, TypeError, ValueError
NOT_ZIP = zipfile.BadZipFile, zlib.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError, ValueError


@dataclass(frozen=True)
class Stored:
    """An array in a file, `where` for messages: `count()` gives the number of its rows, and `blocks()` some rows at a time.

    map: the array itself, mapped, or None. text: of a text, whose columns may have names and words.
    """

    where: str
    row_shape: tuple[int, ...]
    dtype: np.dtype
    count: Callable[[], int]
    blocks: Callable[..., Iterator[np.ndarray]]
    map: np.ndarray | None = None
    text: Text | None = None

    @property
    def width(self) -> int:
        return math.prod(self.row_shape)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Their names, or None."""
        return self.text.names if self.text else None

    @property
    def is_of_words(self) -> bool:
        return self.dtype.kind in "US"

    @property
    def converted_type(self) -> np.dtype:
        """The type to which the rows are converted: names of classes become labels."""
        return np.dtype(np.int32) if self.is_of_words else self.dtype


def read(path: Path, names: str | None = None) -> dict[str, Stored]:
    """{name: array} of what is in a file; the name is "" where it holds one array without a name. names: of `table_in`."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: of none of the formats {', '.join(FORMATS)}, which the end of its name says")
    return text_table(path, names) if is_text(path) else FORMATS[path.suffix.lower()](path)


def is_text(path: Path) -> bool:
    return FORMATS.get(path.suffix.lower()) is text_table


def are_numbers(dtype):
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def words_in(block):
    """The texts of an array, as a list."""
    return (np.char.decode(block, "utf-8", "backslashreplace") if block.dtype.kind == "S" else block).ravel().tolist()


def per_block(row_shape, dtype, block=BLOCK):
    """How many rows a block of so many bytes has."""
    return max(1, block // max(1, math.prod(row_shape) * dtype.itemsize))


def slices(array):
    """Yields the rows of an array or of an open HDF5 dataset, some at a time."""
    step = per_block(array.shape[1:], array.dtype)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def npy(path):
    try:
        with open(path, "rb") as file:
            shape, by_columns, dtype = npy_header(file)
            if dtype.hasobject or file.tell() + math.prod(shape) * dtype.itemsize > os.path.getsize(path):
                raise ValueError("it holds Python's objects, or less than its shape says")
            array = mapped(path, dtype, file.tell(), shape, "F" if by_columns else "C")
    except NOT_NPY as error:
        raise ValueError(f"{path}: damaged or no NPY file of numbers ({one_line(error)}); write it anew") from None
    if not array.ndim:
        return {}
    by_rows = array if array.flags.c_contiguous else None
    return {"": Stored(str(path), array.shape[1:], array.dtype, partial(len, array), partial(slices, array), by_rows)}


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
                limits.check_unpacked(info.file_size, info.compress_size)
                name = info.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"there are two arrays {name}")
                if shape:
                    blocks = partial(unpacked, path, info.filename)
                    found[name] = Stored(f"{path}: {name}", shape[1:], dtype, partial(int, shape[0]), blocks)
    except (*NOT_ZIP, *NOT_NPY) as error:
        raise ValueError(f"{path}: damaged or no NPZ file of numbers ({one_line(error)}); write it anew") from None
    return found


def npy_header(file):
    """(shape, whether it is in Fortran's order, type) at the beginning of an NPY file, behind which the numbers follow."""
    head = io.BytesIO(file.read(HEADER))  # NumPy reads as many bytes as the file says
    version = np.lib.format.read_magic(head)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    headers[3, 0] = headers[2, 0]  # which has names of fields in any letters besides
    if version not in headers:
        raise ValueError(f"version {version} of NPY")
    found = headers[version](head)
    file.seek(head.tell())
    return found


def unpacked(path, name):
    """Yields the rows of an array in an NPZ file, some at a time: many if it must be unpacked anew for them."""
    try:
        with zipfile.ZipFile(path) as file, file.open(name) as member:
            shape, by_columns, dtype = npy_header(member)
            begin, width = member.tell(), math.prod(shape[1:])
            step = per_block(shape[1:], dtype, limits.BUDGET // 4 if by_columns else BLOCK)
            for start in range(0, shape[0], step):
                some = min(step, shape[0] - start)
                if not by_columns:
                    yield np.frombuffer(member.read(some * width * dtype.itemsize), dtype).reshape(some, *shape[1:])
                    continue
                columns = np.empty((width, some), dtype)
                for number, column in enumerate(columns):
                    member.seek(begin + (number * shape[0] + start) * dtype.itemsize)
                    column[:] = np.frombuffer(member.read(some * dtype.itemsize), dtype)
                yield columns.T.reshape(some, *shape[1:], order="F")
    except NOT_ZIP as error:
        raise ValueError(f"{path}: {name} can not be unpacked ({one_line(error)}); write it anew") from None


def hdf5(path):
    with rows.reading(path, "damaged or not HDF5", "write it anew") as file:
        found, arrays = [], {}
        file.visititems(lambda name, thing: found.append((name, thing)) if isinstance(thing, h5py.Dataset) else None)
        for name, data in found:
            with suppress(*DAMAGED):  # a type that NumPy does not know
                if data.shape and not data.is_virtual and not data.external:
                    arrays[os.fsdecode(name)] = of_dataset(path, os.fsdecode(name), data)
        return arrays


def of_dataset(path, name, data):
    words, place = data.dtype.kind == "O" and bool(h5py.check_string_dtype(data.dtype)), place_of(data, os.path.getsize(path))
    dtype = np.dtype("U") if words else data.dtype
    array = None if place is None or not are_numbers(dtype) else mapped(path, dtype, place, data.shape)
    count = partial(int, data.shape[0]) if array is not None else partial(checked, path, name)
    return Stored(f"{path}: {name}", data.shape[1:], dtype, count, partial(hyperslabs, path, name, words), array)


def checked(path, name):
    """The number of rows of a dataset; ValueError if it is too large to be unpacked."""
    with rows.reading(path, f"{name} can not be read", "write it anew, without compression") as file:
        data = file[os.fsencode(name)]
        limits.check_dataset(data)
        return len(data)


def hyperslabs(path, name, words):
    """Yields the rows of a dataset of an HDF5 file, some at a time; words: with marks in place of bytes that are no UTF-8."""
    with rows.reading(path, f"{name} can not be read", "write it anew") as file:
        data = file[os.fsencode(name)]
        step = ROWS if words else per_block(data.shape[1:], data.dtype)
        for start in range(0, len(data), step):
            some = slice(start, start + step)
            yield data.asstr("utf-8", "replace")[some].astype(str) if words else data[some]


def text_table(path, names=None):
    found = table_in(path, names)
    return {"": Stored(str(path), (found.width,), np.dtype(np.float64), found.rows, found.blocks, text=found)}


FORMATS: dict[str, Callable[..., dict[str, Stored]]] = dict.fromkeys((".csv", ".tsv", ".txt", ".dat"), text_table)
FORMATS |= {".npy": npy, ".npz": npz, ".h5": hdf5, ".hdf5": hdf5}
