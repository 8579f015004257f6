import json
import math

import pytest

from gridgrad.nn import EarlyStopping


def watch(values, *arguments):
    """(epoch of the stop or None, best epoch, which epochs improved)."""
    early, improved = EarlyStopping(*arguments), []
    for epoch, value in enumerate(values, start=1):
        improved += [epoch] * early.see(value)
        if early.stop:
            return epoch, early.best_epoch, improved
    return None, early.best_epoch, improved


@pytest.mark.parametrize(
    ("values", "arguments", "expected"),
    [
        ([3, 2, 1, 0], (1,), (None, 4, [1, 2, 3, 4])),
        ([3, 2, 2, 1], (1,), (3, 2, [1, 2])),
        ([3, 4, 5, 2, 3, 3, 3, 9], (3,), (7, 4, [1, 4])),
        ([3, 2.95, 2.5, 2.45, 2.41], (2, 0.1), (5, 3, [1, 3])),  # small falls do not add up unseen: 2.5 stays the best
        ([math.nan, 5, math.nan, math.nan], (2,), (4, 2, [2])),
        ([math.nan, math.nan, 1], (2,), (2, 0, [])),
        ([math.inf, math.inf], (2,), (2, 0, [])),
        ([-1, -2, -2], (2,), (None, 2, [1, 2])),
    ],
)
def test_stops_once_patience_runs_out(values, arguments, expected):
    assert watch(values, *arguments) == expected


def test_it_goes_on_from_its_state():
    values = [3, 2.5, 2.7, 2.6, 2.9]
    for cut in range(len(values)):
        first, second, whole = EarlyStopping(2), EarlyStopping(2), EarlyStopping(2)
        for value in values[:cut]:
            first.see(value)
        second.restore(json.loads(json.dumps(first.state())))
        assert [second.see(value) for value in values[cut:]] == [whole.see(value) for value in values][cut:]
        assert vars(second) == vars(whole)


@pytest.mark.parametrize("arguments", [(0,), (-1,), (1, -0.1), (1, math.nan), (1, math.inf)])
def test_values_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match="must be at least"):
        EarlyStopping(*arguments)
