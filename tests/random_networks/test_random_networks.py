"""A few hundred random cases with fixed seeds, thousands more in the long tests, and all that ever failed."""

import random
from functools import partial
from unittest import mock

import pytest

from tests.mpi import mpi
from tests.random_networks import case as cases
from tests.random_networks.case import random_case
from tests.random_networks.checks import within_rounding
from tests.random_networks.every import CHECKS, MISSING, ON_ONE_RANK, check, check_seeds
from tests.random_networks.found import FOUND
from tests.random_networks.layers import ACTIVATIONS, MAKE, OF_THE_ZOO, random_layers
from tests.random_networks.shrink import shrunk

RANKS = 2, 3, 4, 5, 6, 7, 8
# How many cases of each check: see `seeds`.
FEW = {
    "serial": 100,
    "training": 30,
    "copies": 12,
    "predictions": 15,
    "resuming": 5,
    "relocating": 9,
    "protocols": 7,
    "stale": 9,
}
MANY = {
    "serial": 2000,
    "training": 200,
    "copies": 200,
    "predictions": 100,
    "resuming": 30,
    "relocating": 60,
    "protocols": 40,
    "stale": 30,
}


def seeds(name, ranks, many=False):
    """The seeds of a check on so many ranks: more where there are few ranks; those of the long tests follow the others."""
    few, all_of = (numbers[name] // (1 if ranks < 5 else 3) for numbers in (FEW, MANY))
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
    return [name for name in FEW if (name in ON_ONE_RANK) == (ranks == 1)]


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
    assert FEW.keys() == MANY.keys() == CHECKS.keys() - {"pytorch"}, "that one is in test_pytorch.py"


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
