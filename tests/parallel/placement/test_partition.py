import pytest

from parallel.placement.partition import size, split


@pytest.mark.parametrize("n", [0, 1, 2, 7, 11, 31])
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
def test_even_parts_cover_and_differ_by_at_most_one(n, parts):
    slices = split(n, parts)
    assert [i for part in slices for i in range(n)[part]] == list(range(n))
    sizes = [size(part) for part in slices]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("n", "weights", "sizes"),
    [
        (10, (1, 1), [5, 5]),
        (10, (3, 1), [8, 2]),
        (7, (1, 0, 2), [2, 0, 5]),
        (1, (1, 1, 1), [1, 0, 0]),
        (0, (2, 1), [0, 0]),
        (100, (0.5, 0.25, 0.25), [50, 25, 25]),
    ],
)
def test_weighted_parts(n, weights, sizes):
    assert [size(part) for part in split(n, len(weights), weights)] == sizes


@pytest.mark.parametrize(
    "arguments",
    [(-1, 2), (3, 0), (3, 2, (1,)), (3, 2, (-1, 2)), (3, 2, (0, 0)), (3, 2, (float("nan"), 1)), (3, 2, (float("inf"), 1))],
)
def test_what_can_not_be_split(arguments):
    with pytest.raises(ValueError):
        split(*arguments)
