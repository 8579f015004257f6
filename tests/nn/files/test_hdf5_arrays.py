"""Arrays are read from their own file, as large as expected, or not at all; and no array fills the memory."""

import errno

import h5py
import numpy as np
import pytest

from gridgrad.nn.files.hdf5_arrays import mapped, own, read_array, reading

ARRAY = np.arange(6.0).reshape(2, 3)


PUT = [  # (what is put in place of the array, words)
    (lambda file: file.__setitem__("bad", h5py.SoftLink("/good")), "no dataset bad of its own"),
    (lambda file: file.create_dataset("bad", data=ARRAY.astype(int)), "must be 2x3 floating"),
    (lambda file: file.create_dataset("bad", data=np.where(ARRAY > 4, np.nan, ARRAY)), "not finite"),
]


@pytest.mark.parametrize(("put", "words"), PUT)
def test_other_arrays_are_refused(tmp_path, put, words):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"] = ARRAY
        put(file)
        with pytest.raises(ValueError, match=words):
            read_array(file, "bad", (2, 3), "f", "bad")
        assert np.array_equal(read_array(file, "good", (2, 3), "f", "good"), ARRAY)
        with pytest.raises(ValueError, match="no group good of its own"):
            own(file, "good", h5py.Group)


def test_files_that_can_not_be_locked_or_mapped_are_read_and_what_the_system_says_is_no_damage(tmp_path, monkeypatch):
    path, opened = tmp_path / "a.h5", h5py.File
    with h5py.File(path, "w", libver="v110") as file:
        place = file.create_dataset("a", data=ARRAY).id.get_offset()

    def fails(number):
        def call(*arguments, locking=None, **options):
            if locking is None:
                raise OSError(number, "not here")
            return opened(*arguments, locking=locking, **options)

        return call

    for number, words in ((errno.EAGAIN, "another program is writing it; wait"), (errno.EIO, "Input/output error")):
        monkeypatch.setattr(h5py, "File", fails(number))
        with pytest.raises(OSError, match=words), reading(path, "damaged", "write it anew"):
            pass
    monkeypatch.setattr(h5py, "File", fails(errno.ENOLCK))
    monkeypatch.setattr(np, "memmap", fails(errno.ENODEV))
    with reading(path, "damaged", "write it anew") as file:
        assert np.array_equal(file["a"], ARRAY)
    found = mapped(path, np.float64, place, (2, 3))
    assert np.array_equal(found, ARRAY) and not found.flags.writeable
