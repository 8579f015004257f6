"""A short form of `python -m tests.kills`."""

import random

import pytest

from tests.kills import CASES, disturbed, undisturbed

pytestmark = pytest.mark.mpi  # it starts jobs


@pytest.mark.parametrize("case", [pytest.param(CASES[0], marks=pytest.mark.long), CASES[1]], ids=str)
def test_a_training_whose_ranks_are_killed_ends_as_if_nothing_had_happened(tmp_path, case):
    killer, wrong = disturbed(case, tmp_path, 2, random.Random(4), undisturbed(case, tmp_path))
    assert not wrong, wrong
    assert sum(killer.kills.values()) == 2
