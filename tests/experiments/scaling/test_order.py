"""When a point has been measured often enough, and in which order points are measured."""

import random

from gridgrad.experiments.scaling.runs import BUSY, ENOUGH, FAILED, LATER, REPEATED, ended_by, fewest_left, rounds, settled
from gridgrad.experiments.scaling.study import Study
from tests.experiments.scaling import made_up_studies as made_up

STUDY = Study({"ranks": [1, 2, 4], "schemes": ["batch", "model"], "nets": ["a", "b"], "repeats": 6, "most_repeats": 9})
POINT = STUDY.points[0]


def runs(*seconds, **more):
    return [made_up.record(STUDY, POINT, number, value, **more) for number, value in enumerate(seconds)]


def test_a_point_is_settled_by_a_narrow_interval_by_a_limit_or_by_a_failure():
    narrow, wide = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [1.0, 1.2, 0.9, 1.0, 1.02, 0.98]
    assert settled(runs(*narrow[:5]), STUDY) is None and settled(runs(*narrow), STUDY) == ENOUGH
    assert settled(runs(*wide), STUDY) is None and settled(runs(*wide, 1, 1), STUDY) is None
    assert settled(runs(*wide, 1.1, 1, 0.8), STUDY) == REPEATED
    assert settled(runs(1.0) + runs(None, failed="no memory"), STUDY) == FAILED
    assert settled(runs(*[None] * 5), STUDY) is None and settled(runs(*[None] * 6), STUDY) == REPEATED  # too few steps


def test_the_table_says_why_a_point_was_not_repeated_more_often():
    assert ended_by(runs(*[1.0] * 6)) == ENOUGH and ended_by(runs(*[1.0] * 3)) == LATER
    assert ended_by(runs(1.0, sweep={})) is None and ended_by(runs(1.0, sweep={"no_such": 1})) is None


def test_an_interval_that_reaches_further_to_one_side_is_not_narrow():
    assert settled(runs(1, 1, 1, 1, 1, 1.059), STUDY) is None and settled(runs(1, 1, 1, 1, 1, 1.029), STUDY) == ENOUGH


def test_busy_runs_do_not_count_and_are_repeated_a_limited_number_of_times():
    quiet, busy = runs(*[1.0] * 6), runs(*[3.0] * 9, load=made_up.BUSY)
    assert settled(busy, STUDY) is None and settled(busy + quiet[:5], STUDY) is None
    assert settled(busy + quiet, STUDY) == ENOUGH
    assert settled(busy + busy, STUDY) == BUSY


def test_all_points_run_once_before_any_is_repeated_and_in_another_order_each_time():
    done, order = [], []
    for [point] in rounds(STUDY.groups, STUDY, done):
        order.append(point.key)
        done.append(made_up.record(STUDY, point, seconds=1.0))
    count = len(STUDY.points)
    turns = [order[i : i + count] for i in range(0, len(order), count)]
    assert len(turns) == 6 and all(len(set(turn)) == count for turn in turns) and len(set(map(tuple, turns))) > 1


def test_only_points_that_are_not_sure_are_repeated_beyond_the_least():
    done, rng, counts = [], random.Random(1), {}
    for [point] in rounds(STUDY.groups, STUDY, done):
        seconds = rng.uniform(0.5, 1.5) if point.ranks == 4 else 1.0
        counts[point] = counts.get(point, 0) + 1
        done.append(made_up.record(STUDY, point, seconds=seconds))
    assert {counts[point] for point in STUDY.points if point.ranks < 4} == {6}
    assert {counts[point] for point in STUDY.points if point.ranks == 4} == {9}


def test_it_says_how_many_runs_are_left_at_least():
    assert fewest_left(STUDY.groups, STUDY, []) == 6 * len(STUDY.points)
    assert fewest_left([(POINT,)], STUDY, runs(1.0, 1.0)) == 4 and fewest_left([(POINT,)], STUDY, runs(*[1.0] * 6)) == 0
    assert fewest_left([(POINT,)], STUDY, runs(1, 2, 3, 4, 5, 6)) == 1
