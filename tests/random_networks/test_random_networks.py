"""A few hundred random cases with fixed seeds, thousands more in the long tests, and all that ever failed."""

import random
from functools import partial
from itertools import combinations, product
from unittest import mock

import pytest

from tests.mpi import mpi
from tests.random_networks import case as cases
from tests.random_networks.case import DTYPES, RATES, random_case
from tests.random_networks.checks import within_rounding
from tests.random_networks.every import CHECKS, MISSING, ON_ONE_RANK, check, check_seeds
from tests.random_networks.feeding import FEEDS
from tests.random_networks.found import FOUND
from tests.random_networks.layers import ACTIVATIONS, MAKE, OF_THE_ZOO, random_layers
from tests.random_networks.pairs import covering, pairs
from tests.random_networks.shrink import shrunk

FEWER, MORE = (2, 3, 4), (5, 6, 7, 8)  # ranks: all pairs of options are met on some of each
RANKS = *FEWER, *MORE
# How many cases of each check, besides "training": see `seeds`.
FEW = {"serial": 100, "copies": 12, "predictions": 15, "resuming": 5, "relocating": 9, "protocols": 7, "stale": 9}
MANY = {
    "serial": 2000, "training": 200, "copies": 200, "predictions": 100, "resuming": 30, "relocating": 60, "protocols": 40,
    "stale": 30,
}  # fmt: skip


def seeds(name, ranks, many=False):
    """The seeds of a check on so many ranks, those of the long tests and the others: more where there are few ranks."""
    if name == "training" and not many:
        return covering(*next(numbers for numbers in (FEWER, MORE) if ranks in numbers))[ranks]
    few, all_of = (numbers.get(name, 0) // (1 if ranks < 5 else 3) for numbers in (FEW, MANY))
    return range(few, all_of) if many else range(few)


@pytest.mark.quick
@mpi(1, *RANKS, long=(6, 7), timeout=600)
def test_a_few_cases(comm):
    for name in checks_on(comm.size):
        check_seeds(comm, name, seeds(name, comm.size))


@mpi(1, *RANKS, long=(1, *RANKS), timeout=900)
def test_many_cases(comm):
    for name in checks_on(comm.size):
        check_seeds(comm, name, seeds(name, comm.size, many=True))


def checks_on(ranks):
    """The names of the checks on so many ranks."""
    return [name for name in MANY if (name in ON_ONE_RANK) == (ranks == 1)]


@pytest.mark.quick
@mpi(1, 2, 3, 4, timeout=600)
def test_what_failed_once(comm):
    for name, case in FOUND:
        if case.ranks == comm.size and name not in MISSING:
            check(comm, name, [case])


@mpi(1)
def test_rounding_explains_few_differences(comm):
    always = {"rounding": lambda case, comm: within_rounding(1.0, lambda: [1.0], case)}
    with mock.patch.dict(CHECKS, always):
        check_seeds(comm, "rounding", range(1))
        with pytest.raises(AssertionError, match="too many differences are said to be rounding"):
            check_seeds(comm, "rounding", range(2))


def test_every_check_has_its_numbers_of_cases():
    assert {"training", *FEW} == MANY.keys() == CHECKS.keys() - {"pytorch"}, "that one is in test_pytorch.py"


def test_every_two_options_meet():
    """Those that are drawn for all cases do on few ranks, and so do each axis, plan and optimizer with each of them."""
    met = set().union(*(pairs(random_case(seed, ranks)) for ranks, found in covering(*FEWER).items() for seed in found))
    values = {
        "feed": FEEDS, "dtype": DTYPES, "start": ("fresh", "used", "loaded"), "samples": ("normal", "integers"),
        "update": ("whole", "sharded"), "lr": ("constant", "cosine"), "axis": ("batch", "model", "height", "stage"),
        "optimizer": RATES, "plan": ("out", "in", "replicate", "redundant", "laugier", "marques", "hypergraph"),
    }  # fmt: skip
    for one, other in combinations(sorted(values), 2):
        for a, b in product(values[one], values[other]):
            never = {one, other} == {"axis", "plan"}  # an axis is not of every plan
            assert never or ((one, a), (other, b)) in met, (one, a, other, b)


def test_cases_are_expressions_and_follow_from_their_seeds():
    assert {case.ranks for _, case in FOUND} <= {1, 2, 3, 4}
    for seed in range(300):
        case = random_case(seed)
        assert eval(repr(case), vars(cases)) == case == random_case(seed)
        assert case.alike.layers


@pytest.mark.parametrize("seed", range(5))
def test_a_case_that_fails_is_made_small(seed):
    """Whatever has two convolutions in a row, somewhere in it, fails here."""

    def fails(case):
        return any(pair in str(case.layers) for pair in ("), ('Conv2d', 2", "[('Conv2d', 2"))

    case = next(case for case in map(partial(random_case, ranks=4), range(1000 * seed, 1000 * (seed + 1))) if fails(case))
    small = shrunk(case, fails)
    assert fails(small) and len(str(small.layers)) < 40 and small.ranks == 1 and small.plan == "fewest-bytes"
    assert small.shape in ((1,), (1, 1, 1))


def test_every_layer_is_drawn():
    drawn = str([random_layers(random.Random(seed), images) for seed in range(200) for images in (False, True)])
    assert all(f"'{name}'" in drawn for name in (*MAKE.keys() - OF_THE_ZOO, *ACTIVATIONS))
