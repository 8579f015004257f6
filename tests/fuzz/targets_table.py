"""Targets: tables of one's own in every format, their names, and the files that they are converted to."""

import io
import tempfile
from functools import cache, partial
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

from gridgrad import datasets
from gridgrad.datasets import files, table
from tests.fuzz.damage import damaged, damaged_argument, damaged_text
from tests.fuzz.damage_hdf5 import damaged_hdf5
from tests.fuzz.target import Target
from tests.fuzz.targets_data_sets import prepared, used
from tests.fuzz.targets_hdf5 import a_circle, changed, its_own_source

NAMES = (
    "table:mine.csv", "table:mine.csv,target=b:-1,test=0.5,seed=7", "table:mine.csv,target=kind,kind=labels,shape=1x3x1",
    "table:mine.npz,test=x,test_y=y,kind=values", "table:mine.npz,x=x,y=y,test=mine.npz", "table:mine.npz,x=x,target=1",
    "table:mine.csv,names=yes,drop=b:0", "table:mine.csv,inputs=0:b,test=./mine.csv",
)  # fmt: skip


@cache
def numbers():
    """(inputs, labels)"""
    random = np.random.default_rng(0)
    return random.normal(size=(12, 3)).round(3), random.permutation(np.arange(12) % 3)


def lines(mark, header):
    """A text with these marks between the numbers."""
    table = np.column_stack(numbers())
    return "\n".join([*header, *(mark.join(map(repr, row)) for row in table.tolist())]).encode()


def written(save, *arrays, **named):
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)
    return buffer.getvalue()


def texts():
    return lines(",", ["a,b,c,kind"]), lines(";", ['"a";"b";"c, d";kind']), lines("\t", []), lines(" ", ["# a b c kind"])


def npy_files():
    x, y = numbers()
    whole = np.column_stack((x, y))
    return tuple(written(np.save, array) for array in (whole, np.asfortranarray(whole), whole.astype(">f4")))


def pickled():
    """Arrays of objects, of records and of texts, which are no numbers."""
    records = np.zeros(12, [("a", "f4"), ("b", "i4")])
    return tuple(
        written(np.save, array) for array in (np.array([[1, None]] * 12, object), records, np.array([["a", "b"]] * 12))
    )


def npz_files():
    x, y = numbers()
    arrays = {"x": x, "y": y, "names": np.array(["a", "b"])}
    return written(np.savez, **arrays), written(np.savez_compressed, **arrays), written(np.savez, x=np.asfortranarray(x), y=y)


def hdf5_file(**options):
    x, y = numbers()
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver="v110") as file:
        file.create_dataset("x", data=x, **options)
        file["y"] = y
    return buffer.getvalue()


def hdf5_files():
    return hdf5_file(), hdf5_file(chunks=(5, 2), compression="gzip")


def elsewhere():
    return tuple(changed(hdf5_files()[0], partial(change, name=name)) for change in (its_own_source, a_circle) for name in "xy")


def of_name(path):
    """Prepare and load the table of this name, beside two small ones."""
    name = path.read_bytes().decode(errors="surrogateescape")
    around_name(path.parent)
    datasets.prepare(name, path.parent)
    used(datasets.load(name, path.parent))


def around_name(folder):
    (folder / "mine.csv").write_bytes(texts()[0])
    (folder / "mine.npz").write_bytes(npz_files()[0])


def around_converted(folder):
    (folder / "mine.csv").write_bytes(texts()[0])


def converted():
    """The file that the first text is converted to."""
    with tempfile.TemporaryDirectory() as folder:
        around_converted(Path(folder))
        return (table.prepare(Path(folder), NAMES[0])[2].read_bytes(),)


def read_converted(path):
    """A converted file, as ranks read it after another process has prepared it."""
    target = table.prepare(path.parent, NAMES[0])[2]
    target.write_bytes(path.read_bytes())
    with mock.patch.object(files, "is_current", return_value=True):
        used(datasets.load(NAMES[0], path.parent))


TARGETS = (
    Target("table csv", texts, damaged_text, prepared("table:mine.csv"), "mine.csv"),
    Target("table npy", npy_files, damaged, prepared("table:mine.npy"), "mine.npy", examples=pickled),
    Target("table npz", npz_files, damaged, prepared("table:mine.npz"), "mine.npz"),
    Target("table hdf5", hdf5_files, damaged_hdf5, prepared("table:mine.h5"), "mine.h5", examples=elsewhere),
    Target(
        "table name",
        lambda: tuple(name.encode() for name in NAMES),
        damaged_argument,
        of_name,
        says=("table", "data set", "mine."),
    ),
    Target(
        "table converted",
        converted,
        damaged_hdf5,
        read_converted,
        "converted.h5",
        around_converted,
        says=("tables", "mine.csv"),
    ),
)
