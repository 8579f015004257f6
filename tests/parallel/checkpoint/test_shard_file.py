"""The file of a rank: what is written is read, and a damaged one is refused in one line."""

import errno

import h5py
import numpy as np
import pytest

from gridgrad.parallel.checkpoint.pieces import Piece
from gridgrad.parallel.checkpoint.shard_file import Shard, file_of, sha256, table_of, write_shard

PIECES = {
    "network/parameters": [
        Piece("0.weight", (4, 5), (np.array([0, 2, 3]), slice(1, 4)), 2, 7),
        Piece("0.bias", (5,), (slice(0, 5),), 0, 5),
    ],
    "optimizer/scaled_velocity": [Piece("0.weight", (4, 5), (np.array([0, 2, 3]), slice(1, 4)), 0, 9)],
    "network/buffers": [],
}
NUMBERS = {"network": {"step": 12}, "progress": {"epochs": 1, "best": None}}


def arrays(dtype=np.float64):
    rng = np.random.default_rng(3)
    count = {path: sum(piece.stop - piece.start for piece in found) for path, found in PIECES.items()}
    return {path: rng.normal(size=n).astype(dtype) for path, n in count.items()} | {"logs/progress/losses": np.arange(3.0)}


def written(folder, dtype=np.float64):
    path = folder / file_of(7)
    return path, write_shard(path, arrays(dtype), table_of(PIECES, NUMBERS, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read(tmp_path, dtype):
    path, entry = written(tmp_path, dtype)
    assert entry == {"name": "rank-0007.h5", "size": path.stat().st_size, "sha256": sha256(path)}
    shard = Shard(path)
    assert shard.worker == 2 and shard.numbers == NUMBERS
    found = [parts for parts in shard.parts.values()]
    assert repr([piece for ((piece, _),) in found]) == repr(sum(PIECES.values(), []))
    assert [first for ((_, first),) in found] == [0, 5, 0]  # where their elements begin
    for name, array in arrays(dtype).items():
        assert shard.array(name).dtype == array.dtype and np.array_equal(shard.array(name), array)
    with pytest.raises(ValueError, match="no array logs/progress/others"):
        shard.array("logs/progress/others")
    with h5py.File(path) as plain:  # any reader of HDF5 can read it
        assert np.array_equal(plain["network/parameters"][...], arrays(dtype)["network/parameters"])
    with pytest.raises(OSError):
        write_shard(path, {}, table_of({}, {}, 0))  # never over another one


def test_errors_of_the_system_are_no_damage_and_no_locks_or_maps_are_needed(tmp_path, monkeypatch):
    def fails(number, words):
        def fail(*arguments, **options):
            assert not options.get("locking")
            raise OSError(number, words)

        return fail

    path, _ = written(tmp_path)
    shard = Shard(path)
    monkeypatch.setattr(np, "memmap", fails(errno.ENODEV, "No such device"))
    for name in PIECES:
        assert np.array_equal(shard.array(name), arrays()[name])
    monkeypatch.setattr(h5py, "File", fails(None, "Unable to open file (file read failed, errno = 5, error message = 'I/O')"))
    with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
        Shard(path)
    monkeypatch.setattr(h5py, "File", fails(None, "Unable to open file (truncated file: eof = 96)"))
    assert_refused(path)


def assert_refused(path):
    with pytest.raises(ValueError) as caught:
        Shard(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path):
    path, _ = written(tmp_path)
    whole = path.read_bytes()
    for length in sorted({*range(0, len(whole), 997), *range(len(whole) - 8, len(whole))}):
        path.write_bytes(whole[:length])
        assert_refused(path)
