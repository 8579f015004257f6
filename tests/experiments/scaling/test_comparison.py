"""Two studies compared point by point: the statistics on their own, in simulations with fixed seeds, and of records."""

import math

import numpy as np
import pytest
from scipy import stats

from gridgrad.experiments.scaling import comparison
from gridgrad.experiments.scaling.comparison import FASTER, FEW, NOISE, SLOWER
from gridgrad.experiments.scaling.statistics import interval_of
from tests.experiments.scaling import made_up_studies as made_up

POINTS = 12
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
    one, other = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0], [1.2, 1.3, 1.1, 1.25, 1.15, 1.2]
    few = comparison.ratio_of(one, other, 6, 6)
    many = comparison.ratio_of(one * 2, other * 2, 6, 6)
    assert many.value == pytest.approx(few.value) and many.high - many.low < few.high - few.low
    mean, square, freedom = comparison.moments(one * 2, 6)
    assert (
        freedom == 5 and square == pytest.approx(np.var(np.log(one), ddof=1) / 12) and mean == pytest.approx(np.log(one).mean())
    )
    _, square, _ = comparison.moments([*one, 5.0], 6)  # a run that is far slower counts as what it is
    assert square == pytest.approx(np.var(np.log([*one, 5.0]), ddof=1) / 7)


def test_the_probabilities_are_those_of_holm():
    assert comparison.corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert comparison.corrected([0.9, 0.8]) == [1, 1] and comparison.corrected([]) == []


def study(random, noise, repeats=6, most=12, interval=0.03):
    """The runs of the points of a made-up study, which are repeated as `sweep` does: until the interval is narrow."""
    points = []
    for runs in np.exp(noise(random, (POINTS, most))).tolist():
        enough = (n for n in range(repeats, most) if interval_of(runs[:n]).half_width <= interval)
        points.append(runs[: next(enough, most)])
    return points


def normal(spread):
    return lambda random, shape: random.normal(0, spread, shape)


def slow_runs(random, shape):
    """Noise of 1.5 %, and one run in ten that is slower by 15 % on average."""
    return random.normal(0, 0.015, shape) + (random.random(shape) < 0.1) * random.exponential(0.15, shape)


def one_sided(random, shape):
    """Times that are never below a least one, and often far above it."""
    return random.exponential(0.02, shape)


def verdicts(one, other):
    chances = [comparison.ratio_of(a, b, 6, 6).chance for a, b in zip(one, other, strict=True)]
    return [chance < 0.05 for chance in comparison.corrected(chances)]


@pytest.mark.parametrize("noise", [normal(0.015), normal(0.04), slow_runs, one_sided], ids=["1.5", "4", "slow", "one-sided"])
def test_of_equal_studies_at_most_one_in_twenty_has_a_point_that_differs(noise):
    random, pairs = RANDOM(1), 400
    alarms = sum(any(verdicts(study(random, noise), study(random, noise))) for _ in range(pairs))
    assert alarms <= 0.05 * pairs


def test_a_point_that_is_five_percent_slower_is_found_where_the_noise_is_one_and_a_half():
    random, pairs, found, others = RANDOM(2), 300, 0, 0
    for _ in range(pairs):
        one, other = study(random, normal(0.015)), study(random, normal(0.015))
        other[3] = [1.05 * seconds for seconds in other[3]]
        differ = verdicts(one, other)
        found, others = found + differ[3], others + any(differ[:3] + differ[4:])
    assert found >= 0.9 * pairs and others <= 0.05 * pairs


# ----- of records


def records(seed, slow=1.0, repeats=6, noise=0.005, **settings):
    """A made-up study, in which the runs on 4 ranks take `slow` times as long."""
    random = RANDOM(seed)

    def seconds(point, _):
        return float(0.1 / point.ranks * (slow if point.ranks == 4 else 1) * np.exp(random.normal(0, noise)))

    return made_up.records(seconds, repeats, **settings)


def test_the_points_that_both_studies_have_are_judged():
    found = comparison.compare(records(1, ranks=[1, 2, 4]), records(2, slow=1.05, ranks=[1, 4, 8]))
    assert [(point.series, point.ranks, point.verdict) for point in found] == [
        ("all", 1, NOISE), ("batch", 4, SLOWER), ("model", 4, SLOWER)
    ]  # fmt: skip
    assert found[1].ratio.low < 1.05 < found[1].ratio.high and found[1].chance > found[1].ratio.chance
    assert found[1].seconds[0] == tuple(
        one["seconds_per_step"]["median"] for one in records(1) if one["grid"] == "batch=4,model=1"
    )
    faster = comparison.compare(records(2, slow=1.05), records(1))
    assert {point.verdict for point in faster if point.ranks == 4} == {FASTER}
    mean, above, count = comparison.together(faster)
    assert mean < 1 and count == 5 and above <= 3


def test_a_study_with_itself_differs_nowhere():
    found = comparison.compare(records(1), records(1))
    assert {point.verdict for point in found} == {NOISE} and {point.ratio.value for point in found} == {1}


def test_few_runs_busy_runs_and_failures_have_no_verdict_of_their_own():
    one, other = records(1), records(2)
    few = [record for record in other if record["P"] != 2 or record["repeat"] < 2]
    assert {point.verdict for point in comparison.compare(one, few) if point.ranks == 2} == {FEW}
    busy = [
        record | ({"load": made_up.BUSY, "seconds_per_step": {"median": 9.0}} if record["repeat"] == 0 else {})
        for record in other
    ]
    assert {point.verdict for point in comparison.compare(one, busy)} == {NOISE}
    assert {len(point.seconds[1]) for point in comparison.compare(one, busy)} == {5}


MOMENTS = np.exp(RANDOM(5).normal(0, 0.1, 100)).tolist()  # how fast cores are in 100 runs


def at_moments(records, first, slow=1.0, **core):
    """Records whose runs took longer or shorter with the cores from MOMENTS[first] on; their reference products, too."""
    return [
        record | {
            "seconds_per_step": {"median": record["seconds_per_step"]["median"] * MOMENTS[first + record["repeat"]] * slow},
            "core": {"reference_seconds": 1e-4 * MOMENTS[first + record["repeat"]],
                     "reference_products_per_step": 1e4 * record["seconds_per_step"]["median"] * slow} | core,
        } for record in records
    ]  # fmt: skip


def test_steps_are_compared_at_the_speed_that_the_cores_had():
    one, same, slower = (at_moments(records(1, noise=0.01), 0), at_moments(records(2, noise=0.01), 20),
                         at_moments(records(3, noise=0.01), 40, slow=1.05))  # fmt: skip
    found, equal = comparison.compare(one, slower), comparison.compare(one, same)
    assert {point.verdict for point in found} == {SLOWER} and {point.verdict for point in equal} == {NOISE}
    for point in found + equal:
        assert point.is_normalised and point.ratio.high / point.ratio.low < 1.06
        logs = [np.log(of).mean() for of in point.seconds]
        assert point.measured == pytest.approx(math.exp(logs[1] - logs[0]))
    without = [record | {"core": None} for record in slower]
    assert {point.verdict for point in comparison.compare(one, without)} == {NOISE}, "the moments vary by a tenth"


@pytest.mark.parametrize("change", [
    {"core": None}, {"oversubscribed": True}, {"environment": made_up.ENVIRONMENT | {"processor": "another"}},
    {"environment": made_up.ENVIRONMENT | {"blas": "another"}}, {"environment": made_up.ENVIRONMENT | {"threads": "2"}},
])  # fmt: skip
def test_steps_are_compared_in_seconds_where_the_products_are_not_the_same(change):
    one, other = at_moments(records(1), 0), at_moments(records(2), 20)
    mixed = [record | change if record["repeat"] == 0 else record for record in other]
    whole = [record | change for record in other]
    for changed in (mixed, whole) if "environment" not in change else (whole,):  # a point of two environments is refused
        for point in comparison.compare(one, changed):
            assert not point.is_normalised and point.ratio.value == pytest.approx(point.measured)
    assert comparison.compare(one, at_moments(records(2), 20))[0].is_normalised


def test_the_repeats_that_were_planned_are_those_of_the_study():
    runs = lambda count: [record for record in records(1, repeats=count) if record["P"] == 1]  # noqa: E731
    assert comparison.planned(runs(8)) == 6 and comparison.planned(runs(3)) == 3
    assert comparison.planned([record | {"sweep": {"repeats": 10}} for record in runs(12)]) == 10


def test_studies_without_a_common_point_are_refused():
    with pytest.raises(ValueError, match="no point in common"):
        comparison.compare(records(1), records(1, batch_size=64))
    predicted = [record | {"predicted": True} for record in records(1)]
    with pytest.raises(ValueError, match="no point in common"):
        comparison.compare(records(1), predicted)


def changed(**settings):
    return made_up.records(lambda point, n: (1 + n / 100) * (1.3 if settings.get("reduction") == "shared" else 1) / point.ranks,
                           ranks=[1, 2, 4], schemes=["batch"], **settings)  # fmt: skip


def test_points_that_only_one_study_has_are_named_with_what_differs():
    one, other = changed(reduction="plain"), changed(reduction="shared")
    assert [point.ranks for point in comparison.compare(one, other)] == [1] and comparison.apart(one, one) == []
    words = " ".join(comparison.apart(one, other))
    assert "1 of 3 points" in words and "reduction (A: plain, B: shared): --across reduction" in words
    timeless = [record | {"failed": "no memory", "seconds_per_step": None} if record["P"] == 4 else record for record in one]
    [first, second] = comparison.apart(one, timeless)
    assert "2 of 3" in first and second.startswith("Only A") and "4 ranks" in second


def test_points_are_compared_across_a_setting_that_was_changed():
    one, other = changed(reduction="plain"), changed(reduction="shared")
    found = comparison.compare(one, other, "reduction")
    assert [(point.ranks, point.verdict) for point in found] == [(1, SLOWER), (2, SLOWER), (4, SLOWER)]
    assert comparison.apart(one, other, "reduction") == []
    both = changed(reduction=["plain", "shared"])
    with pytest.raises(ValueError, match="several values of it in one file"):
        comparison.compare(one, both, "reduction")
    with pytest.raises(ValueError, match=r"--across colour: no point has this setting; there are .*batch_size"):
        comparison.compare(one, other, "colour")
    with pytest.raises(ValueError, match=r"no point in common .* differ in batch_size \(A: 100, B: 64\): --across batch_size"):
        comparison.compare(one, changed(reduction="plain", batch_size=64))


def test_a_point_with_disturbed_runs_alone_has_no_verdict():
    one = records(1)
    busy = [record | {"load": made_up.BUSY} if record["P"] == 2 else record for record in records(2, slow=3.0)]
    verdicts = {point.ranks: (point.verdict, point.ratio) for point in comparison.compare(one, busy)}
    assert verdicts[2] == (comparison.BUSY, None) and all(ratio for ranks, (_, ratio) in verdicts.items() if ranks != 2)
