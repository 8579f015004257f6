"""The comparison of a parallel with a serial network detects differences that a less strict one would miss."""

import numpy as np
import pytest

from tests.parallel.equality import SMALL, error

WEIGHT, BIAS = np.array([[1.0, -100.0], [3.0, 4.0]]), np.array([0.5, 0.25])
EXPECTED = {"weight": WEIGHT, "bias": BIAS}


def test_each_array_is_measured_by_its_own_scale():
    assert error(EXPECTED, EXPECTED) == 0
    assert error(EXPECTED | {"weight": WEIGHT + [0, 1]}, EXPECTED) == pytest.approx(0.01)
    assert error(EXPECTED | {"bias": BIAS + [0.01, 0]}, EXPECTED) == pytest.approx(0.02)


def test_what_is_nothing_but_rounding_is_measured_by_the_least_scale():
    expected = EXPECTED | {"bias": np.array([3e-17, -1e-17])}
    assert error(expected | {"bias": np.array([-2e-17, 0])}, expected) < 1e-15
    assert error(expected | {"bias": np.array([1e-3, 0])}, expected) == pytest.approx(1e-3 / (100 * SMALL))


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_not_finite_is_never_equal(number, name):
    other = EXPECTED | {name: np.where(EXPECTED[name] == EXPECTED[name].flat[0], number, EXPECTED[name])}
    assert error(other, EXPECTED) == error(EXPECTED, other) == error(other, other) == np.inf


def test_the_names_and_the_shapes_must_be_the_same():
    for other in ({"weight": WEIGHT}, EXPECTED | {"more": BIAS}, EXPECTED | {"bias": BIAS[:1]}):
        with pytest.raises(AssertionError):
            error(other, EXPECTED)


def test_arrays_may_be_empty_or_zero():
    nothing = {"none": np.zeros((0, 3)), "zero": np.zeros(3)}
    assert error(nothing, nothing) == 0
    assert error(nothing | {"zero": np.full(3, 0.5)}, nothing) == 0.5
