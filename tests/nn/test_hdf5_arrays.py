"""Arrays are read from their own file, as large as expected, or not at all."""

import h5py
import numpy as np
import pytest

from gridgrad.nn.files.hdf5_arrays import made_in_memory, own, read_array
from gridgrad.nn.files.whole_files import NotWritten
from tests.disk import files_end_at

ARRAY = np.arange(6.0).reshape(2, 3)


def test_a_file_made_in_memory_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "numbers.h5"
    for size in (0, 100, 5000):
        full = pytest.raises(NotWritten, match=f"^can not write {path}: File too large")
        with files_end_at(size), full, made_in_memory(path) as file:
            file.create_dataset("numbers", data=np.arange(1000))
    assert list(tmp_path.iterdir()) == []
    with made_in_memory(path) as file:
        file.create_dataset("numbers", data=np.arange(1000))
    with h5py.File(path) as file:
        assert np.array_equal(file["numbers"], np.arange(1000))


def virtual(file, name):
    layout = h5py.VirtualLayout((2, 3), "f8")
    layout[...] = h5py.VirtualSource(".", name, (2, 3))  # itself: the library would crash
    file.create_virtual_dataset(name, layout)


PUT = {
    "missing": lambda file, name: None,
    "group": lambda file, name: file.create_group(name),
    "link": lambda file, name: file.__setitem__(name, h5py.SoftLink("/good")),
    "other shape": lambda file, name: file.create_dataset(name, data=ARRAY.T),
    "other type": lambda file, name: file.create_dataset(name, data=ARRAY.astype(int)),
    "complex": lambda file, name: file.create_dataset(name, data=ARRAY + 0j),
    "not finite": lambda file, name: file.create_dataset(name, data=np.where(ARRAY > 4, np.nan, ARRAY)),
    "virtual": virtual,
    "external": lambda file, name: file.create_dataset(name, (2, 3), "f8", external=[("elsewhere", 0, 48)]),
    "blocks larger than itself": lambda file, name: file.create_dataset(
        name, (2, 3), "f8", chunks=(1 << 10, 1 << 16), maxshape=(None, None), compression="gzip"
    ),
}


@pytest.mark.parametrize("what", PUT)
def test_other_arrays_are_refused(tmp_path, what):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = ARRAY
        PUT[what](file, "bad")
        with pytest.raises(
            ValueError, match="no dataset bad of its own|bad must be 2x3 floating|larger than itself|not finite"
        ):
            read_array(file, "bad", (2, 3), "f", "bad")
        assert np.array_equal(read_array(file, "good", (2, 3), "f", "good"), ARRAY)


def test_arrays_in_blocks_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=ARRAY, compression="gzip")
        assert np.array_equal(read_array(file, "a", (2, 3), "f", "a"), ARRAY)
        with pytest.raises(ValueError, match="no group a of its own"):
            own(file, "a", h5py.Group)
