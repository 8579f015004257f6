"""Two studies compared point by point: the statistics on their own, and of records."""

import math

import numpy as np
import pytest
from scipy import stats

from gridgrad.experiments.scaling import comparison
from gridgrad.experiments.scaling.comparison import BUSY, FEW, NOISE, SLOWER
from tests.experiments.scaling import made_up_studies as made_up

RANDOM = np.random.default_rng


def test_without_runs_beyond_the_planned_ones_it_is_the_test_of_welch_of_logarithms():
    random = RANDOM(0)
    one, other = np.exp(random.normal(0, 0.02, 6)), np.exp(random.normal(0.03, 0.05, 9))
    found = comparison.ratio_of(one.tolist(), other.tolist(), 6, 9)
    expected = stats.ttest_ind(np.log(other), np.log(one), equal_var=False)
    assert found.chance == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert found.value == pytest.approx(stats.gmean(other) / stats.gmean(one))


def test_runs_beyond_the_planned_ones_make_the_mean_surer_but_give_no_degree_of_freedom():
    one = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    mean, square, freedom = comparison.moments(one * 2, 6)
    assert freedom == 5 and mean == pytest.approx(np.log(one).mean())
    assert square == pytest.approx(np.var(np.log(one), ddof=1) / 12)


def test_the_probabilities_are_those_of_holm():
    assert comparison.corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert comparison.corrected([0.9, 0.8]) == [1, 1] and comparison.corrected([]) == []


def records(seed, slow=1.0, repeats=6, noise=0.005, **settings):
    """A made-up study, in which the runs on 4 ranks take `slow` times as long."""
    random = RANDOM(seed)

    def seconds(point, _):
        return float(0.1 / point.ranks * (slow if point.ranks == 4 else 1) * np.exp(random.normal(0, noise)))

    return made_up.records(seconds, repeats, **settings)


def test_the_points_that_both_studies_have_are_judged():
    one = records(1, ranks=[1, 2, 4])
    found = comparison.compare(one, records(2, slow=1.05, ranks=[1, 4, 8]))
    assert [(point.series, point.ranks, point.verdict) for point in found] == [
        ("all", 1, NOISE), ("batch", 4, SLOWER), ("model", 4, SLOWER)
    ]  # fmt: skip
    assert found[1].ratio.low < 1.05 < found[1].ratio.high and found[1].chance > found[1].ratio.chance
    assert {(point.verdict, point.ratio.value) for point in comparison.compare(one, one)} == {(NOISE, 1)}


def test_few_runs_and_disturbed_ones_have_no_verdict_of_their_own():
    one, other = records(1), records(2)
    few = [record for record in other if record["P"] != 2 or record["repeat"] < 2]
    assert {point.verdict for point in comparison.compare(one, few) if point.ranks == 2} == {FEW}
    disturbed = {"load": made_up.BUSY, "seconds_per_step": {"median": 9.0}}
    some = [record | (disturbed if record["repeat"] == 0 else {}) for record in other]
    assert {(point.verdict, len(point.seconds[1])) for point in comparison.compare(one, some)} == {(NOISE, 5)}
    alone = [record | (disturbed if record["P"] == 2 else {}) for record in other]
    assert {(point.verdict, point.ratio) for point in comparison.compare(one, alone) if point.ranks == 2} == {(BUSY, None)}


MOMENTS = np.exp(RANDOM(5).normal(0, 0.1, 100)).tolist()  # how fast cores are in 100 runs


def at_moments(records, first, slow=1.0):
    """Records whose runs took longer or shorter with the cores from MOMENTS[first] on; their reference products, too."""
    return [
        record | {
            "seconds_per_step": {"median": record["seconds_per_step"]["median"] * MOMENTS[first + record["repeat"]] * slow},
            "core": {"reference_seconds": 1e-4 * MOMENTS[first + record["repeat"]],
                     "reference_products_per_step": 1e4 * record["seconds_per_step"]["median"] * slow},
        } for record in records
    ]  # fmt: skip


def test_steps_are_compared_at_the_speed_that_the_cores_had_where_the_products_are_the_same():
    one, same, slower = (at_moments(records(seed, noise=0.01), 20 * seed, slow) for seed, slow in ((1, 1), (2, 1), (3, 1.05)))
    for other, verdict in ((slower, SLOWER), (same, NOISE)):
        for point in comparison.compare(one, other):
            assert point.is_normalised and point.verdict == verdict and point.ratio.high / point.ratio.low < 1.06
    for change in ({"core": None}, {"oversubscribed": True}, {"environment": made_up.ENVIRONMENT | {"blas": "another"}}):
        for point in comparison.compare(one, [record | change for record in slower]):
            assert not point.is_normalised and point.ratio.value == pytest.approx(point.measured) and point.verdict == NOISE


def changed(**settings):
    return made_up.records(lambda point, n: (1 + n / 100) * (1.3 if settings.get("reduction") == "shared" else 1) / point.ranks,
                           ranks=[1, 2, 4], schemes=["batch"], **settings)  # fmt: skip


def test_points_that_only_one_study_has_are_named_and_compared_across_the_setting_that_was_changed():
    one, other = changed(reduction="plain"), changed(reduction="shared")
    assert [point.ranks for point in comparison.compare(one, other)] == [1] and comparison.apart(one, one) == []
    words = " ".join(comparison.apart(one, other))
    assert "1 of 3 points" in words and "reduction (A: plain, B: shared): --across reduction" in words
    found = comparison.compare(one, other, "reduction")
    assert [(point.ranks, point.verdict) for point in found] == [(1, SLOWER), (2, SLOWER), (4, SLOWER)]
    for pair, message in (
        ((one, changed(reduction=["plain", "shared"]), "reduction"), "several values of it in one file"),
        ((one, changed(reduction="plain", batch_size=64)), "no point in common .* --across batch_size"),
    ):
        with pytest.raises(ValueError, match=message):
            comparison.compare(*pair)
