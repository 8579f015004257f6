"""Pieces: every element of a global array is written once, and is found again in whatever other blocks, also in files."""

import h5py
import numpy as np
import pytest

from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel.checkpoint.pieces import Piece, fill, share
from gridgrad.parallel.checkpoint.shard_file import Shard, file_of, sha256, table_of, write_shard
from gridgrad.parallel.placement.partition import Partition

CASES = 60


def random_blocks(rng, shape, ranks):
    """Blocks that cover an array of a shape once: of consecutive parts, empty ones among them, or of any owners."""
    blocks = [()]
    for length in shape:
        owned = Partition.owned(rng.integers(0, ranks, length), ranks)
        weighted = Partition.weighted(length, tuple(rng.integers(0, 3, ranks - 1)) + (1,))
        parts = (owned.parts, weighted.parts, [slice(0, length)])[rng.integers(3)]
        blocks = [(*block, part) for block in blocks for part in parts]
    return blocks


def cut(rng, stop, number):
    """Intervals that cover 0 to `stop`, in a random order."""
    ends = [0, *sorted(rng.integers(0, stop + 1, number - 1).tolist()), stop]
    found = [(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True) if a < b]
    return [found[i] for i in rng.permutation(len(found))]


def pieces_of(rng, whole, blocks):
    """[(Piece, function that returns its elements)] of random pieces of some blocks of an array."""
    found = []
    for block in blocks:
        elements = np.ascontiguousarray(take(whole, block)).reshape(-1)
        for start, stop in cut(rng, elements.size, 3):
            found.append((Piece("w", whole.shape, block, start, stop), lambda part=elements[start:stop]: part))
    return found


def test_random_pieces_cover_an_array_once_and_any_piece_is_assembled_from_them():
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        whole = rng.normal(size=rng.integers(1, 8, rng.integers(1, 5)))
        pieces, count = pieces_of(rng, whole, random_blocks(rng, whole.shape, 3)), np.zeros(whole.shape, int)
        for piece, _ in pieces:
            for block, _ in piece.blocks():
                put(count, block, take(count, block) + 1)
        assert (count == 1).all(), seed
        for piece, read in pieces_of(rng, whole, random_blocks(rng, whole.shape, 2)):
            found = np.zeros(len(piece))
            fill(found, piece, pieces)
            assert found.tolist() == read().tolist(), seed


def test_an_array_may_have_had_another_shape_and_what_no_piece_has_is_zero():
    whole, found = np.arange(1.0, 31).reshape(3, 2, 5), np.zeros(9)
    pieces = pieces_of(np.random.default_rng(1), whole, [(slice(0, 2), slice(0, 2), slice(0, 5))])
    fill(found, Piece("w", (6, 5), (np.array([0, 3, 5]), slice(1, 4)), 0, 9), pieces)
    assert found.tolist() == [2, 3, 4, 17, 18, 19, 0, 0, 0]


def test_of_what_ranks_have_each_element_is_written_once():
    for seed in range(CASES):
        rng = np.random.default_rng([seed, 2])
        ranks, stop = int(rng.integers(1, 6)), int(rng.integers(1, 40))
        everyone = [sorted(cut(rng, stop, 6)[: rng.integers(0, 6)]) for _ in range(ranks)]
        had, count = np.zeros(stop, int), np.zeros(stop, int)
        for rank, mine in enumerate(everyone):
            for start, end in share(everyone, rank):
                assert any(a <= start < end <= b for a, b in mine)  # a rank writes only what it has
                count[start:end] += 1
            for start, end in mine:
                had[start:end] = 1
        assert np.array_equal(count, had), seed


# ----- the file of a rank

BLOCK = np.array([0, 2, 3]), slice(1, 4)
PIECES = {
    "network/parameters": [Piece("0.weight", (4, 5), BLOCK, 2, 7), Piece("0.bias", (5,), (slice(0, 5),), 0, 5)],
    "optimizer/scaled_velocity": [Piece("0.weight", (4, 5), BLOCK, 0, 9)],
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
    assert repr([piece for ((piece, _),) in shard.parts.values()]) == repr(sum(PIECES.values(), []))
    assert [first for ((_, first),) in shard.parts.values()] == [0, 5, 0]  # where their elements begin
    for name, array in arrays(dtype).items():
        assert shard.array(name).dtype == array.dtype and np.array_equal(shard.array(name), array)
    with pytest.raises(ValueError, match="no array logs/progress/others"):
        shard.array("logs/progress/others")
    with h5py.File(path) as plain:  # any reader of HDF5 can read it
        assert np.array_equal(plain["network/parameters"][...], arrays(dtype)["network/parameters"])
    with pytest.raises(OSError):
        write_shard(path, {}, table_of({}, {}, 0))  # never over another one


def test_a_file_that_ends_early_is_refused_in_a_line(tmp_path):
    path, _ = written(tmp_path)
    whole = path.read_bytes()
    for length in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError) as caught:
            Shard(path)
        assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
