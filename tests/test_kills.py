"""A short form of `python -m tests.kills`."""

import random
from itertools import count

import pytest

from tests.kills import CASES, disturbed, undisturbed

pytestmark = pytest.mark.mpi  # it starts jobs


def test_a_training_whose_ranks_are_killed_ends_as_if_nothing_had_happened(tmp_path):
    """A kill may come when the training is over: then it is trained once more."""
    case = CASES[1]
    chance, expected, kills, number = random.Random(4), undisturbed(case, tmp_path), 0, count()
    while kills < 2:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        killer, wrong = disturbed(case, folder, 2 - kills, chance, expected)
        assert not wrong, wrong
        kills += sum(killer.kills.values())
