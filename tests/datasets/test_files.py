"""Finding and downloading published files, and HDF5 files of rows that are mapped."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import files
from gridgrad.datasets.files import download
from gridgrad.nn.files.whole_files import NotWritten
from tests.disk import files_end_at

CONTENT = b"some published bytes"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()


def test_downloads_and_checks(server, tmp_path):
    target = tmp_path / "data" / "file"
    for url, checksum in ((server, "0" * 32), (f"{server}-missing", hashlib.md5(CONTENT).hexdigest())):
        with pytest.raises(OSError, match="^[^\n]*no file .*/data/file, and the download from .* failed .*put it there[^\n]*$"):
            download(url, f"md5:{checksum}", target, "it")
        assert not target.exists()
    download(server, f"md5:{hashlib.md5(CONTENT).hexdigest()}", target, "it")
    assert target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]


def test_an_unknown_name_says_what_was_meant_and_what_nobody_has_prepared_is_named(tmp_path):
    for name, words in (("mnits", "did you mean mnist?"), ("houses.csv", "did you mean table:houses.csv?")):
        (tmp_path / "houses.csv").touch()
        with pytest.raises(ValueError, match=words):
            datasets.load(name, tmp_path)
    for name in ("images:pictures", "ethylene", "cifar10", "denoise"):
        with pytest.raises(OSError, match="no file .*: call gridgrad.datasets.prepare first"):
            datasets.load(name, tmp_path)


# ----- converted files


@pytest.fixture
def file(tmp_path):
    """Rows of several shapes and types, one array without rows, and attributes."""
    arrays = {
        "flat": np.arange(6, dtype=np.float32).reshape(3, 2),
        "images": np.arange(120, dtype=np.uint8).reshape(5, 4, 2, 3),
        "labels": np.arange(5, dtype=np.int32),
        "none": np.empty((0, 2), np.float32),
    }
    path = tmp_path / "a.h5"
    classes = [f"n{number:08d}" for number in range(21_841)]  # as many as the whole ImageNet has
    moments = {"x_mean": np.zeros(2), "x_std": np.ones(2), "y_std": np.array([1.0, 0.0])}
    files.write(path, arrays, {"source": "here", "classes": classes} | moments)
    return path, arrays, classes


def test_rows_of_any_shape_and_type_are_mapped(file):
    path, arrays, classes = file
    for name in ("flat", "images", "labels"):
        found = files.map_rows(path, name, arrays[name].shape[1:], arrays[name].dtype)
        assert isinstance(found, np.memmap) and not found.flags.writeable
        assert found.dtype == arrays[name].dtype and np.array_equal(found, arrays[name])
    assert [found.tolist() for found in files.vectors(path, {"x_mean": 2, "x_std": 2})] == [[0, 0], [1, 1]]
    assert list(files.attributes(path)["classes"]) == classes


def test_rows_and_attributes_that_are_not_as_expected_are_refused(file):
    path, *_ = file
    for name, shape in (("flat", (3,)), ("none", (2,)), ("missing", (2,))):
        with pytest.raises(ValueError, match=name):
            files.map_rows(path, name, shape, np.float32)
    for name, length in (("x_mean", 3), ("y_std", 2), ("missing", 2)):
        with pytest.raises(ValueError, match=f"{name} is missing or damaged"):
            files.vectors(path, {name: length})
    pair = path.with_name("pair.h5")
    files.write(pair, {"train/x": np.zeros((5, 2), np.uint8), "train/y": np.zeros(4, np.int32)}, {})
    with pytest.raises(ValueError, match="5 inputs but 4 targets"):
        files.map_pair(pair, "train", ((2,), np.uint8), ((), np.int32))


def test_a_failed_write_leaves_the_old_file(file):
    path, *_ = file
    before = path.read_bytes()
    with pytest.raises(RuntimeError), files.creating(path, {"x": ((3,), float)}) as half:
        half["x"][0] = 1
        raise RuntimeError
    for size in (0, 3000):  # which is said before any rows are there
        full = pytest.raises(NotWritten, match=f"^can not write {path}: File too large")
        with files_end_at(size), full, files.creating(path, {"x": ((1000, 2), np.float32)}):
            raise AssertionError("there was room")
    assert files.is_current(path, "here") and not files.is_current(path, "elsewhere")
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["a.h5"]
