"""The cuts that make the longest chunk as short as possible, compared with all cuts that there are."""

from functools import partial
from itertools import combinations_with_replacement, pairwise
from math import inf

import numpy as np
import pytest

from gridgrad.parallel.pipeline.schedule import shortest


def scaled(work, factor, chunk, start, end):
    return int(factor[chunk] * work[start:end].sum())


def every_cut(layers, chunks):
    return combinations_with_replacement(range(layers + 1), chunks - 1)


def longest(cuts, layers, seconds):
    bounds = [0, *cuts, layers]
    return max(seconds(chunk, start, end) for chunk, (start, end) in enumerate(pairwise(bounds)))


@pytest.mark.parametrize("layers", [0, 1, 4, 6])
@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
def test_no_other_cuts_have_a_shorter_longest_chunk(layers, chunks):
    rng = np.random.default_rng(layers + 10 * chunks)
    for _ in range(5):
        work, factor = rng.integers(0, 9, layers), rng.integers(1, 4, chunks)
        seconds = partial(scaled, work, factor)
        found = shortest(layers, chunks, seconds)
        assert list(found) == sorted(found) and len(found) == chunks - 1
        assert longest(found, layers, seconds) == min(longest(cuts, layers, seconds) for cuts in every_cut(layers, chunks))


def test_what_can_not_be_is_avoided_and_where_nothing_can_be_there_are_no_cuts():
    def seconds(chunk, start, end):  # the first chunk has room for one layer
        return inf if not chunk and end - start > 1 else end - start

    assert shortest(6, 2, seconds) == (1,)
    assert shortest(6, 1, seconds) is None
