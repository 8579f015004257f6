"""Pieces: every element of a global array is written once, and is found again in whatever other blocks."""

from math import prod

import numpy as np
import pytest

from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel.checkpoint.pieces import Piece, boxes, fill, share
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


def filled(wanted, pieces):
    """The elements of a Piece, from [(Piece, function that returns its elements)]."""
    out = np.zeros(len(wanted))
    fill(out, wanted, pieces)
    return out.tolist()


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (3, 1, 4, 2), (2, 0, 3)])
def test_boxes_are_the_elements_of_a_range_in_their_order(shape):
    numbers = np.arange(prod(shape)).reshape(shape)
    for start in range(numbers.size + 1):
        for stop in range(start, numbers.size + 1):
            found = list(boxes(start, stop, shape))
            elements = [numbers[box].reshape(-1) for box in found]
            assert np.concatenate([[], *elements]).tolist() == list(range(start, stop))
            assert len(found) <= max(1, 2 * len(shape) - 1)


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
            assert filled(piece, pieces) == read().tolist(), seed


def test_dimensions_may_be_combined_otherwise_and_what_no_piece_has_is_zero():
    whole = np.arange(1.0, 31).reshape(3, 2, 5)
    pieces = pieces_of(np.random.default_rng(1), whole, [(slice(0, 2), slice(0, 2), slice(0, 5))])
    wanted = Piece("w", (6, 5), (np.array([0, 3, 5]), slice(1, 4)), 0, 9)
    assert filled(wanted, pieces) == [2, 3, 4, 17, 18, 19, 0, 0, 0]


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
    shares = [share([[(2, 9), (20, 30)]] * 4, rank) for rank in range(4)]  # where all have the same, about equally much
    assert shares == [[(2, 4), (20, 23)], [(4, 6), (23, 26)], [(6, 8), (26, 28)], [(8, 9), (28, 30)]]
