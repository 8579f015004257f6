"""The folder of the data: finding files in it, downloading, and the HDF5 files that data are converted to.

Those are contiguous and uncompressed, so that each rank maps them and reads only its rows: random rows of a mapped data set are
read at the speed of memory, ten times as fast as through h5py.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import h5py
import numpy as np
from platformdirs import user_cache_path

from gridgrad.nn.files.hdf5_arrays import early_and_unfilled, mapped, place_of, reading
from gridgrad.nn.files.whole_files import NotWritten, written_whole

VARIABLE = "GRIDGRAD_DATA"
ANEW = "delete it, and it is made anew"


def data_directory(option: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the data sets, which need not exist.

    Parameters
    ----------
    option : path, optional
        The folder, if somebody has named one; by default that of the variable GRIDGRAD_DATA, else the user's cache.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> from gridgrad.datasets import data_directory
    >>> data_directory("my/data").as_posix()
    'my/data'
    """
    return Path(os.path.expanduser(option or os.environ.get(VARIABLE) or user_cache_path("gridgrad")))


def find(folders, names):
    """The first existing file of these names in these folders, or None."""
    return next((folder / name for name in names for folder in folders if (folder / name).is_file()), None)


def listed(names, most):
    """Names in a message, at most so many."""
    return ", ".join(names[:most]) + ", .." * (len(names) > most)


def fingerprint(folder, names):
    """A text that changes when one of these files in `folder` does: of their names, sizes and times. OSError if one lacks."""
    digest = hashlib.sha256()
    for name in names:
        found = os.stat(os.path.join(folder, name))
        digest.update(os.fsencode(f"{name} {found.st_size} {found.st_mtime_ns}\n"))
    return digest.hexdigest()


def download(url, checksum, target, what):
    """Fetch `url` to `target`; OSError that says where to put the file if that fails. checksum: "md5:.." or "sha1:.."."""
    import pooch  # here, because it takes a while and few runs download anything

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=os.isatty(2), timeout=30)
    try:
        with written_whole(target) as beside:  # pooch alone makes files that nobody else may read
            pooch.retrieve(url, checksum, fname=beside.name, path=beside.parent, downloader=downloader)
    except Exception as error:  # of requests, urllib3, the file system, or pooch for a wrong checksum
        reason = " ".join(str(error).split())[:120]
        raise OSError(
            f"{what}: no file {target}, and the download from {url} failed ({type(error).__name__}: {reason}); "
            f"fetch it elsewhere and put it there, or point --data-dir or {VARIABLE} at the folder that has it"
        ) from None


class DataNotWritten(NotWritten):
    """No file can be written to the folder of the data."""

    def __str__(self):
        folder = f"make room there, or name another folder with --data-dir or {VARIABLE}"
        return f"can not write {self.filename}: {self.strerror}; {folder}"


@contextlib.contextmanager
def creating(path, arrays):
    """An open HDF5 file to fill, with {name: (shape, type)} of arrays; it appears at `path` whole or not at all. NotWritten, at
    once, if the disk has no room for the arrays, which may not fit the memory."""
    # earlier formats take no attributes above 64 KB, such as the names of many classes; nobody else knows the file that is made
    options = {"libver": "v110", "locking": False}
    try:
        with written_whole(path) as beside:
            with h5py.File(beside, "w", **options) as file:
                for name, (shape, dtype) in arrays.items():
                    file.create_dataset(name, shape, dtype, dcpl=early_and_unfilled())
            if hasattr(os, "posix_fallocate"):  # OSError if the disk has no room
                with open(beside, "r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            with h5py.File(beside, "r+", **options) as file:
                yield file
    except NotWritten as error:
        raise DataNotWritten(error.filename, error.errno) from error


def write(path, arrays, attributes):
    """Write named arrays of numbers, each in its own type, and some attributes."""
    with creating(path, {name: (array.shape, array.dtype) for name, array in arrays.items()}) as file:
        for name, array in arrays.items():
            file[name][...] = array
        file.attrs.update(attributes)


@contextlib.contextmanager
def opened(path, damage="damaged or not HDF5"):
    """The open file. OSError if nobody has prepared it; ValueError, with the damage, for what is wrong in the block."""
    if not path.is_file():
        raise OSError(f"no file {path}: call gridgrad.datasets.prepare first, in one process")
    with reading(path, damage, ANEW) as file:
        yield file


def attributes(path):
    """The file's attributes as a dict."""
    with opened(path) as file:
        return dict(file.attrs)


def is_current(path, source):
    """Whether the file is there and was made from `source`, which its attribute of that name tells."""
    return path.is_file() and attributes(path).get("source") == source


def vectors(path, lengths):
    """Attributes that are finite vectors of float64, as a list; lengths: {name: length}. Those named _std are above 0."""
    known, found = attributes(path), []
    for name, length in lengths.items():
        value = np.asarray(known.get(name, np.nan))
        good = value.shape == (length,) and value.dtype == np.float64 and np.isfinite(value).all()
        if not good or (name.endswith("_std") and value.min() <= 0):
            raise ValueError(f"{path}: {name} is missing or damaged; {ANEW}")
        found.append(value)
    return found


def texts(path, name, count=None):
    """An attribute that is a list of texts, of so many if that is said."""
    found = np.asarray(attributes(path).get(name))
    if found.shape != (count or found.size,) or not found.size or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{path}: {name} is missing or damaged; {ANEW}")
    return found.tolist()


def map_rows(path, name, shape, dtype=np.float32):
    """A read-only map of the data set `name`, (rows, *shape); ValueError if it has another shape, type or layout."""
    with opened(path, f"no data set {name}") as file:
        data = file[name]
        found, kind, contiguous, place = data.shape, data.dtype, data.id.get_offset(), place_of(data, os.path.getsize(path))
    wanted = f"{'x'.join(map(str, shape)) or 1} {np.dtype(dtype)}"
    if len(found) < 1 or found[0] < 1 or found[1:] != shape or kind != dtype or contiguous is None:
        raise ValueError(f"{path}: {name} is {found} {kind}, not contiguous rows of {wanted}; {ANEW}")
    if place is None:
        raise ValueError(f"{path}: {name} holds no rows of {wanted}: truncated, or numbers of other bits; {ANEW}")
    return mapped(path, dtype, place, found)


def map_pair(path, half, x, y):
    """The maps of HALF/x and HALF/y, with equally many rows. x, y: (shape, dtype) of a row."""
    pair = map_rows(path, f"{half}/x", *x), map_rows(path, f"{half}/y", *y)
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"{path}: {len(pair[0])} inputs but {len(pair[1])} targets; {ANEW}")
    return pair
