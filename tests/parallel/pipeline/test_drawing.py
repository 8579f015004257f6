"""Schedules as text."""

from gridgrad.parallel.pipeline.generators import complete, one_f_one_b, zb_h1
from gridgrad.parallel.pipeline.schedule import grid
from gridgrad.parallel.pipeline.simulate import UnitTimes, draw, simulate


def test_a_simulation_is_drawn_to_scale():
    assert draw(simulate(complete(one_f_one_b(2, 2)))).split("\n") == [
        "rank 0: 0F0 0F1 .   .   0B0 -   .   0B1 -",
        "rank 1: .   1F0 1B0 -   1F1 1B1 -",
    ]
    assert draw(simulate(complete(zb_h1(2, 2)), UnitTimes(update=1)), columns=6).split("\n") == [
        "rank 0: 0F0 0F1 .   0I0 0W0 0I1 ..",
        "rank 1: .   1F0 1I0 1F1 1I1 1W0 ..",
    ]


def test_a_coarser_unit():
    assert draw(simulate(complete(one_f_one_b(1, 1)), UnitTimes(2, 2, 2)), unit=2) == "rank 0: 0F0 0B0 -"
    assert draw(simulate(complete(one_f_one_b(1, 1)), UnitTimes(0, 0, 0))) == "rank 0:"


def test_a_marked_place_and_what_is_around_it():
    rows = ["abcdefghijklmnopqrst", "uv", ""]
    assert grid(rows, {0: 9, 1: 0}).split("\n") == ["rank 0: .. f g h i >j< k l m n ..", "rank 1: >u< v", "rank 2: "]
    assert grid(rows[:1], {}) == "rank 0: a b c d e f g h i .."
