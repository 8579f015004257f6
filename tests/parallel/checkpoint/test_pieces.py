"""Pieces: every element of a global array is written once, and is found again in whatever other blocks."""

from math import prod

import numpy as np
import pytest

from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel.checkpoint.pieces import Piece, boxes, fill, share
from gridgrad.parallel.placement.partition import Partition, size

CASES = 60


def random_partition(rng, length, ranks):
    """Consecutive parts, empty ones among them, or any owners."""
    if rng.random() < 0.5:
        return Partition.owned(rng.integers(0, ranks, length), ranks)
    return Partition.weighted(length, tuple(rng.integers(0, 3, ranks - 1)) + (1,))


def random_blocks(rng, shape, ranks):
    """Blocks that cover an array of a shape once: lists with a part for each dimension."""
    blocks = [()]
    for length in shape:
        parts = random_partition(rng, length, ranks).parts if rng.random() < 0.7 else [slice(0, length)]
        blocks = [(*block, part) for block in blocks for part in parts]
    return blocks


def filled(shape, block, pieces, dtype=np.float64):
    """A block of an array of a shape, from [(Piece, function that returns its elements)]."""
    wanted = Piece("w", shape, block, 0, prod(map(size, block)))
    out = np.zeros(len(wanted), dtype)
    fill(out, wanted, pieces)
    return out.reshape(tuple(map(size, block)))


def cut(rng, stop, number):
    """Intervals that cover 0 to `stop`, in a random order."""
    ends = [0, *sorted(rng.integers(0, stop + 1, number - 1).tolist()), stop]
    found = [(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True) if a < b]
    return [found[i] for i in rng.permutation(len(found))]


def written(rng, whole, name="w", number=3):
    """[(Piece, function that returns its elements)] of random pieces that together hold an array."""
    found = []
    for block in random_blocks(rng, whole.shape, number):
        elements = np.ascontiguousarray(take(whole, block)).reshape(-1)
        for start, stop in cut(rng, elements.size, number):
            piece = Piece(name, whole.shape, block, start, stop)
            found.append((piece, lambda part=elements[start:stop]: part))
    return found


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (1, 5, 1), (3, 1, 4, 2), (2, 0, 3)])
def test_boxes_are_the_elements_of_a_range_in_their_order(shape):
    numbers = np.arange(prod(shape)).reshape(shape)
    for start in range(numbers.size + 1):
        for stop in range(start, numbers.size + 1):
            found = list(boxes(start, stop, shape))
            elements = [numbers[box].reshape(-1) for box in found]
            assert np.concatenate([[], *elements]).tolist() == list(range(start, stop))
            assert len(found) <= max(1, 2 * len(shape) - 1)


def test_random_pieces_cover_a_random_array_once():
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        whole = rng.normal(size=rng.integers(1, 8, rng.integers(1, 5)))
        count, again = np.zeros(whole.shape, int), np.zeros(whole.shape)
        for piece, read in written(rng, whole):
            assert sum(prod(map(size, block)) for block, _ in piece.blocks()) == piece.stop - piece.start
            for block, first in piece.blocks():
                put(count, block, take(count, block) + 1)
                put(again, block, read()[first : first + prod(map(size, block))].reshape(tuple(map(size, block))))
        assert (count == 1).all() and np.array_equal(again, whole), seed


def test_any_block_is_assembled_from_any_pieces():
    for seed in range(CASES):
        rng = np.random.default_rng([seed, 1])
        whole = rng.normal(size=rng.integers(1, 8, rng.integers(1, 5)))
        pieces = written(rng, whole)
        for block in random_blocks(rng, whole.shape, 2):
            assert np.array_equal(filled(whole.shape, block, pieces), take(whole, block)), seed
            elements = take(whole, block).reshape(-1)
            for start, stop in cut(rng, elements.size, 3):
                some = np.zeros(stop - start)
                fill(some, Piece("w", whole.shape, block, start, stop), pieces)
                assert np.array_equal(some, elements[start:stop]), seed


def test_dimensions_that_are_combined_otherwise_have_the_same_elements():
    whole = np.random.default_rng(0).normal(size=(3, 2, 5))
    pieces = written(np.random.default_rng(1), whole)
    rows, columns = np.array([0, 3, 5]), slice(1, 4)
    assert np.array_equal(filled((6, 5), (rows, columns), pieces), whole.reshape(6, 5)[rows, columns])
    assert np.array_equal(filled((30,), (slice(0, 30),), pieces), whole.reshape(-1))


def test_what_no_piece_has_is_zero():
    whole = np.arange(1.0, 13).reshape(3, 4)
    some = [Piece("w", (3, 4), (slice(0, 2), slice(1, 3)), 1, 4), Piece("w", (3, 4), (slice(2, 3), slice(0, 4)), 0, 1)]
    pieces = [(piece, lambda p=piece: take(whole, p.block).reshape(-1)[p.start : p.stop]) for piece in some]
    found = filled((3, 4), (slice(0, 3), slice(0, 4)), pieces, np.float32)
    assert found.dtype == np.float32 and found.tolist() == [[0, 0, 3, 0], [0, 6, 7, 0], [9, 0, 0, 0]]


def random_intervals(rng, stop):
    """Increasing intervals that do not touch."""
    found = cut(rng, stop, 6)
    return sorted(found[: rng.integers(0, len(found) + 1)])


def test_of_what_ranks_have_each_element_is_written_once():
    for seed in range(CASES):
        rng = np.random.default_rng([seed, 2])
        ranks, stop = int(rng.integers(1, 6)), int(rng.integers(1, 40))
        everyone = [random_intervals(rng, stop) for _ in range(ranks)]
        if rng.random() < 0.4:
            everyone = [everyone[0]] * ranks
        had, count = np.zeros(stop, int), np.zeros(stop, int)
        for rank, mine in enumerate(everyone):
            for start, end in share(everyone, rank):
                assert any(a <= start < end <= b for a, b in mine)  # a rank writes only what it has
                count[start:end] += 1
            for start, end in mine:
                had[start:end] = 1
        assert np.array_equal(count, had), seed


def test_where_all_have_the_same_they_write_about_equally_much():
    shares = [share([[(2, 9), (11, 12), (20, 30)]] * 4, rank) for rank in range(4)]
    assert shares == [[(2, 4), (11, 12), (20, 23)], [(4, 6), (23, 26)], [(6, 8), (26, 28)], [(8, 9), (28, 30)]]
    assert share([[(3, 8)], [(5, 6)]], 0) == [(3, 5), (5, 6), (6, 8)] and share([[(3, 8)], [(5, 6)]], 1) == []
