"""Which runs and points count as measured beside other programs."""

from types import SimpleNamespace

import pytest

from gridgrad.experiments.scaling.records import is_busy
from gridgrad.experiments.scaling.summary import is_busy_alone, rows
from tests.experiments.scaling import made_up_studies as made_up

QUIET = {"verdict": None}


def test_a_run_is_busy_if_its_load_has_a_verdict():
    assert is_busy({"load": made_up.BUSY})
    assert not any(is_busy(record) for record in ({}, {"load": None}, {"load": QUIET}, {"load": {}}))


@pytest.mark.parametrize(
    ("busy", "expected"), [((), False), ((0,), False), ((0, 1, 2, 3, 4), False), ((0, 1, 2, 3, 4, 5), True)]
)
def test_a_point_is_busy_if_no_other_run_counts(busy, expected):
    records = [
        record | {"load": made_up.BUSY if record["repeat"] in busy else QUIET} for record in made_up.records(schemes=["batch"])
    ]
    assert all(is_busy_alone(row) == expected and row.busy == len(busy) for row in rows(records))
    assert not is_busy_alone(SimpleNamespace(runs=()))  # of which all runs failed
