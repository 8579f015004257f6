"""Serial networks beside PyTorch's: a few hundred random cases with fixed seeds, and thousands in the long tests."""

import pytest

from tests.mpi import mpi
from tests.random_networks import case as cases
from tests.random_networks.every import MISSING, check_seeds
from tests.random_networks.layers import ACTIVATIONS, MAKE
from tests.random_networks.wider import wider_case

FEW, MANY = 150, 3000  # cases; those of the long tests follow the others
NEEDS_PYTORCH = pytest.mark.skipif("pytorch" in MISSING, reason=MISSING.get("pytorch", ""))


@NEEDS_PYTORCH
@mpi(1, timeout=300)
def test_networks_compute_and_learn_as_pytorchs(comm):
    check_seeds(comm, "pytorch", range(FEW))


@NEEDS_PYTORCH
@mpi(1, long=(1,), timeout=2700)  # alone a fifth of it is enough
def test_many_networks_compute_and_learn_as_pytorchs(comm):
    check_seeds(comm, "pytorch", range(FEW, MANY))


def test_wider_cases_are_expressions_and_have_every_layer():
    drawn = [wider_case(seed) for seed in range(FEW)]
    assert all(eval(repr(case), vars(cases)) == case == wider_case(seed) for seed, case in enumerate(drawn))
    assert all(case.alike.layers and case.ranks == 1 for case in drawn)
    assert all(f"'{name}'" in repr(drawn) for name in (*MAKE, *ACTIVATIONS))
