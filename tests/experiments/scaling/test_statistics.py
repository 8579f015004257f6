"""The interval of a median, against what is known of it, and against the normal and other distributions."""

import numpy as np
import pytest
from scipy.stats import quantile_test

from gridgrad.experiments.scaling.statistics import FEWEST, Median, interval_of


def test_intervals_are_between_the_ranks_of_the_tables():
    # David and Nagaraja 2003, and every table of the sign test: n, and the rank of the ends for 95 %
    for count, rank in ((6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8)):
        found = interval_of(range(1, count + 1))
        assert (found.low, found.high) == (rank, count + 1 - rank) and found.sure
        assert (found.low, found.high) == tuple(quantile_test(range(1, count + 1)).confidence_interval(0.95))


def test_few_values_are_never_sure():
    assert not any(interval_of(range(1, count + 1)).sure for count in range(1, FEWEST)) and interval_of(range(1, 7)).sure
    assert interval_of([3.0]) == Median(3.0, 3.0, 3.0, 1, 0.0)
    assert interval_of([1, 2, 3, 4, 5]).confidence == pytest.approx(0.9375)


@pytest.mark.parametrize("draw", ["normal", "exponential", "cauchy"])
def test_the_median_of_any_distribution_is_in_the_interval_as_often_as_it_says(draw):
    rng, middle = np.random.default_rng(5), {"normal": 0.0, "exponential": np.log(2), "cauchy": 0.0}[draw]
    values = getattr(rng, {"cauchy": "standard_cauchy"}.get(draw, draw))(size=(4000, 12)) + 10
    found = [interval_of(row) for row in values.tolist()]
    inside = np.mean([one.low <= middle + 10 <= one.high for one in found])
    assert abs(inside - found[0].confidence) < 0.015


def test_ratios_are_between_the_extremes():
    slow, fast = Median(4.0, 3.0, 6.0, 6, 0.97), Median(2.0, 1.5, 2.0, 7, 0.98)
    ratio = slow.over(fast)
    assert (ratio.value, ratio.low, ratio.high, ratio.count) == (2.0, 1.5, 4.0, 6)
    assert ratio.confidence == pytest.approx(0.95) and slow.half_width == pytest.approx(2 / 4)
    assert slow.times(10) == Median(40.0, 30.0, 60.0, 6, 0.97)
