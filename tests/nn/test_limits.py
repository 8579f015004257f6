"""No file can fill the memory or keep a program waiting."""

import os
import zlib

import h5py
import numpy as np
import pytest

from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import read_array


def pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize("put", [pipe, lambda path: path.symlink_to("/dev/zero"), os.mkdir], ids=["FIFO", "device", "folder"])
def test_only_ordinary_files_are_read(tmp_path, put):
    put(tmp_path / "a")
    with pytest.raises(OSError, match="no ordinary file: .*a'$|Is a directory: .*a'$"):
        limits.read_limited(tmp_path / "a")


def test_no_more_is_read_than_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert limits.read_limited(path) == b"12345" == limits.read_limited(path, 5)
    monkeypatch.setattr(limits, "BUDGET", 4)
    for most in (None, 4):
        with pytest.raises(ValueError, match="a: it has more than 4 bytes, which is the most"):
            limits.read_limited(path, most)
    os.truncate(path, 1 << 40)  # takes no room on the disk
    with pytest.raises(ValueError, match="a: it has more than 1 MiB"):
        limits.read_limited(path, 1 << 20)


def test_a_line_that_is_too_long_is_named(tmp_path):
    path = tmp_path / "a"
    path.write_text("1\n1234\n12345\n1")
    with open(path) as file:
        assert list(limits.lines_of(file, path, 6)) == ["1\n", "1234\n", "12345\n", "1"]
    with open(path) as file, pytest.raises(ValueError, match="a: line 3 has more than 5 bytes"):
        list(limits.lines_of(file, path, 5))


def stored(file, content, chunks=(100, 3), **options):
    """A dataset whose first chunk is that content, packed. Returns it."""
    data = file.create_dataset("x", (100, 3), "f4", chunks=chunks, **options)
    data.id.write_direct_chunk((0, 0), zlib.compress(content))
    return data


PACKED = {
    "never written": lambda file: file.create_dataset("x", (400, 3), "f4", chunks=(1, 3)),
    "packed too tightly": lambda file: file.create_dataset("x", data=np.ones((400, 3)), chunks=(50, 3), compression=9),
    "chunks of more than": lambda file: file.create_dataset("x", data=np.ones((200, 3), "f4"), chunks=(200, 3)),
    "several times over": lambda file: stored(file, b"", (10, 3), scaleoffset=2, compression="gzip"),
    "more numbers than it should": lambda file: stored(file, bytes(10_000), compression="gzip"),
    "more room than its numbers": lambda file: stored(file, os.urandom(20_000), compression="gzip"),
    "can not be unpacked": lambda file: stored(file, bytes(9), compression="gzip").id.write_direct_chunk((0, 0), b"none"),
}


@pytest.mark.parametrize("words", PACKED)
def test_a_dataset_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch, words):
    monkeypatch.setattr(limits, "BUDGET", 1300)
    monkeypatch.setattr(limits, "MOST_PACKED", 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        PACKED[words](file)
        for read in (limits.check_dataset, lambda data: read_array(file, "x", data.shape, "f", "x")):
            with pytest.raises(ValueError, match=words):
                read(file["x"])


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf"}])
def test_other_datasets_are_read(tmp_path, monkeypatch, options):
    monkeypatch.setattr(limits, "BUDGET", 900)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        array = np.random.default_rng(0).normal(size=(100, 3))
        file.create_dataset("x", data=array, chunks=(33, 3) if options else None, **options)
        limits.check_dataset(file["x"])
        assert np.array_equal(read_array(file, "x", array.shape, "f", "x"), array)
