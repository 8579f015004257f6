"""Arrays in HDF5: written contiguous and uncompressed, so that each rank maps the file and reads only its rows.

Random rows of a mapped data set are read at the speed of memory, ten times as fast as through h5py. Sets of labelled images are
converted to such arrays once: bytes with the channels last.
"""

import contextlib
import os

import h5py
import numpy as np

from gridgrad.datasets.files import VARIABLE
from gridgrad.datasets.part import Dataset, Part
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
    """An open HDF5 file to fill, with {name: (shape, type)} of arrays; it appears at `path` whole or not at all.

    NotWritten, at once, if the disk has no room for the arrays, which may not fit the memory.
    """
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
    """The maps of HALF/x and HALF/y, as many rows of both. x, y: (shape, dtype) of a row."""
    pair = map_rows(path, f"{half}/x", *x), map_rows(path, f"{half}/y", *y)
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"{path}: {len(pair[0])} inputs but {len(pair[1])} targets; {ANEW}")
    return pair


# ----- labelled images


class ChannelMoments:
    """Mean and deviation of each channel over all pixels, added up in whole numbers: exact, however images are cut."""

    def __init__(self, channels):
        self.count, self.sums, self.squares = 0, np.zeros(channels, np.int64), np.zeros(channels, np.int64)

    def add(self, images):
        """images: (n, height, width, channels) of uint8."""
        self.count += images[..., 0].size
        for channel in range(images.shape[-1]):
            values = np.ascontiguousarray(images[..., channel])
            self.sums[channel] += values.sum(dtype=np.int64)
            self.squares[channel] += np.square(values, dtype=np.uint32).sum(dtype=np.int64)

    def result(self):
        """(mean, deviation), the latter 1 where a channel is constant: float64."""
        spread = [self.count * int(q) - int(s) ** 2 for s, q in zip(self.sums, self.squares)]  # Python's: no overflow
        return self.sums / self.count, np.array([v**0.5 / self.count if v else 1.0 for v in spread])


def write_images(path, source, classes, shape, halves, note=""):
    """Write all images and labels, a chunk at a time, with the moments of the training images.

    shape: of an image. halves: {"train" or "test": (number of images, iterable of (images, labels))}. note: of the Dataset.
    """
    moments = ChannelMoments(shape[-1])
    arrays = {f"{half}/x": ((count, *shape), np.uint8) for half, (count, _) in halves.items()}
    arrays |= {f"{half}/y": ((count,), np.int32) for half, (count, _) in halves.items()}
    with creating(path, arrays) as file:
        for half, (_, chunks) in halves.items():
            start = 0
            for images, labels in chunks:
                stop = start + len(images)
                file[f"{half}/x"][start:stop], file[f"{half}/y"][start:stop] = images, labels
                start = stop
                if half == "train":
                    moments.add(images)
        mean, std = moments.result()
        classes = [os.fsencode(name).decode(errors="backslashreplace") for name in classes]  # of folders, which may be no UTF-8
        file.attrs.update({"source": source, "classes": classes, "x_mean": mean, "x_std": std, "note": note})


def load_images(path, name, shape, dtype):
    """The Dataset that was written; its images are mapped, and standardised by channel. ValueError if the file is damaged."""
    classes, note = texts(path, "classes"), attributes(path).get("note", "")
    if not isinstance(note, str):
        raise ValueError(f"{path}: its note is damaged; {ANEW}")
    mean, std = vectors(path, {"x_mean": shape[-1], "x_std": shape[-1]})
    parts = []
    for half in ("train", "test"):
        x, y = map_pair(path, half, (shape, np.uint8), ((), np.int32))
        if y.min() < 0 or y.max() >= len(classes):
            raise ValueError(f"{path}: {half}/y has labels that are none of {len(classes)} classes; {ANEW}")
        parts.append(Part(x, y, mean, std, dtype=dtype))
    return Dataset(name, *parts, "cross-entropy", len(classes), "", note=note, classes=classes)
