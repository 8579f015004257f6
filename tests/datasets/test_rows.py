import errno

import numpy as np
import pytest

from gridgrad.datasets import files
from gridgrad.nn.files.whole_files import NotWritten
from tests.disk import files_end_at


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
    files.write(path, arrays, {"source": "here", "x_mean": np.zeros(2), "x_std": np.ones(2), "y_std": np.array([1.0, 0.0])})
    return path, arrays


def test_a_disk_without_room_is_said_before_any_rows_are_there(file, tmp_path):
    path, arrays = file
    before = path.read_bytes()
    for size in (0, 100, 3000, len(before) - 1):
        full = pytest.raises(NotWritten, match=f"^can not write {path}: File too large")
        with files_end_at(size), full, files.creating(path, {"x": ((1000, 2), np.float32)}):
            raise AssertionError("there was room")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_rows_of_any_shape_and_type_are_mapped(file):
    path, arrays = file
    for name in ("flat", "images", "labels"):
        found = files.map_rows(path, name, arrays[name].shape[1:], arrays[name].dtype)
        assert isinstance(found, np.memmap) and not found.flags.writeable
        assert found.dtype == arrays[name].dtype and np.array_equal(found, arrays[name])


@pytest.mark.parametrize(("number", "is_read"), [(errno.ENODEV, True), (errno.ENOMEM, False)])
def test_rows_are_read_where_files_can_not_be_mapped_and_not_where_memory_is_short(file, monkeypatch, number, is_read):
    def fails(*arguments):
        raise OSError(number, "no map")

    monkeypatch.setattr(np, "memmap", fails)
    path, arrays = file
    if is_read:
        assert np.array_equal(files.map_rows(path, "flat", (2,)), arrays["flat"])
    else:
        with pytest.raises(OSError, match="no map"):
            files.map_rows(path, "flat", (2,))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("flat", (3,), np.float32, r"flat is \(3, 2\) float32, not contiguous rows of 3 float32"),
        ("flat", (2,), np.float64, "not contiguous rows of 2 float64"),
        ("images", (4, 2, 1), np.uint8, "not contiguous rows of 4x2x1 uint8"),
        ("labels", (1,), np.int32, "not contiguous rows of 1 int32"),
        ("labels", (), np.uint8, "not contiguous rows of 1 uint8"),
        ("none", (2,), np.float32, "not contiguous"),
        ("missing", (2,), np.float32, "no data set missing"),
    ],
)
def test_rows_that_are_not_as_expected_are_refused(file, name, shape, dtype, message):
    with pytest.raises(ValueError, match=message):
        files.map_rows(file[0], name, shape, dtype)


def test_as_many_inputs_as_targets(tmp_path):
    path = tmp_path / "a.h5"
    files.write(path, {"train/x": np.zeros((5, 2), np.uint8), "train/y": np.zeros(4, np.int32)}, {})
    with pytest.raises(ValueError, match="5 inputs but 4 targets"):
        files.map_pair(path, "train", ((2,), np.uint8), ((), np.int32))


def test_vectors_are_checked(file):
    path, _ = file
    assert [found.tolist() for found in files.vectors(path, {"x_mean": 2, "x_std": 2})] == [[0, 0], [1, 1]]
    for name, length in (("x_mean", 3), ("y_std", 2), ("source", 1), ("missing", 2)):
        with pytest.raises(ValueError, match=f"{name} is missing or damaged"):
            files.vectors(path, {name: length})


def test_the_source_tells_whether_a_file_is_current(file):
    path, _ = file
    assert files.is_current(path, "here")
    assert not files.is_current(path, "elsewhere") and not files.is_current(path.parent / "none", "here")


def test_a_failed_write_leaves_the_old_file(file):
    path, _ = file
    with pytest.raises(TypeError):
        files.write(path, {"x": np.zeros(2), "y": np.array([object()])}, {})
    with pytest.raises(RuntimeError), files.creating(path, {"x": ((3,), float)}) as half:
        half["x"][0] = 1
        raise RuntimeError
    assert files.is_current(path, "here")
    assert [p.name for p in path.parent.iterdir()] == ["a.h5"]


def test_attributes_may_be_long(tmp_path):
    """As the names of the 21,841 classes of the whole ImageNet."""
    names = [f"n{number:08d}" for number in range(21_841)]
    files.write(tmp_path / "a.h5", {}, {"classes": names})
    assert list(files.attributes(tmp_path / "a.h5")["classes"]) == names
