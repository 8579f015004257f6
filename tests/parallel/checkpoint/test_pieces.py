"""Pieces: every element of a global array is written once, and is found again in whatever other blocks."""

from math import prod

import numpy as np
import pytest

from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel.checkpoint.pieces import Piece, boxes, fill, share
from gridgrad.parallel.placement.partition import Partition, size

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


def written(rng, whole):
    """[(Piece, function that returns its elements)] of random pieces that together hold an array."""
    found = []
    for block in random_blocks(rng, whole.shape, 3):
        elements = np.ascontiguousarray(take(whole, block)).reshape(-1)
        for start, stop in cut(rng, elements.size, 3):
            found.append((Piece("w", whole.shape, block, start, stop), lambda part=elements[start:stop]: part))
    return found


def filled(wanted, pieces, dtype=np.float64):
    """The elements of a Piece, from [(Piece, function that returns its elements)]."""
    out = np.zeros(len(wanted), dtype)
    fill(out, wanted, pieces)
    return out


def whole_block(shape, block):
    return Piece("w", shape, block, 0, prod(map(size, block)))


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (3, 1, 4, 2), (2, 0, 3)])
def test_boxes_are_the_elements_of_a_range_in_their_order(shape):
    numbers = np.arange(prod(shape)).reshape(shape)
    for start in range(numbers.size + 1):
        for stop in range(start, numbers.size + 1):
            found = list(boxes(start, stop, shape))
            elements = [numbers[box].reshape(-1) for box in found]
            assert np.concatenate([[], *elements]).tolist() == list(range(start, stop))
            assert len(found) <= max(1, 2 * len(shape) - 1)


def test_random_pieces_cover_an_array_once_and_any_block_is_assembled_from_them():
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        whole = rng.normal(size=rng.integers(1, 8, rng.integers(1, 5)))
        pieces, count = written(rng, whole), np.zeros(whole.shape, int)
        for piece, _ in pieces:
            for block, _ in piece.blocks():
                put(count, block, take(count, block) + 1)
        assert (count == 1).all(), seed
        for block in random_blocks(rng, whole.shape, 2):
            elements = take(whole, block).reshape(-1)
            assert np.array_equal(filled(whole_block(whole.shape, block), pieces), elements), seed
            for start, stop in cut(rng, elements.size, 3):
                assert np.array_equal(filled(Piece("w", whole.shape, block, start, stop), pieces), elements[start:stop]), seed


def test_dimensions_that_are_combined_otherwise_have_the_same_elements():
    whole = np.random.default_rng(0).normal(size=(3, 2, 5))
    rows, columns = np.array([0, 3, 5]), slice(1, 4)
    found = filled(whole_block((6, 5), (rows, columns)), written(np.random.default_rng(1), whole))
    assert np.array_equal(found.reshape(3, 3), whole.reshape(6, 5)[rows, columns])


def test_what_no_piece_has_is_zero():
    whole = np.arange(1.0, 13).reshape(3, 4)
    some = [Piece("w", (3, 4), (slice(0, 2), slice(1, 3)), 1, 4), Piece("w", (3, 4), (slice(2, 3), slice(0, 4)), 0, 1)]
    pieces = [(piece, lambda p=piece: take(whole, p.block).reshape(-1)[p.start : p.stop]) for piece in some]
    found = filled(whole_block((3, 4), (slice(0, 3), slice(0, 4))), pieces, np.float32)
    assert found.dtype == np.float32 and found.tolist() == [0, 0, 3, 0, 0, 6, 7, 0, 9, 0, 0, 0]


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


def test_where_all_have_the_same_they_write_about_equally_much():
    shares = [share([[(2, 9), (11, 12), (20, 30)]] * 4, rank) for rank in range(4)]
    assert shares == [[(2, 4), (11, 12), (20, 23)], [(4, 6), (23, 26)], [(6, 8), (26, 28)], [(8, 9), (28, 30)]]
    assert share([[(3, 8)], [(5, 6)]], 0) == [(3, 5), (5, 6), (6, 8)] and share([[(3, 8)], [(5, 6)]], 1) == []
