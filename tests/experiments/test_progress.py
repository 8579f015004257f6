"""Progress messages, and the limit on the time of a comparison."""

import pytest

from gridgrad.experiments.benchmarks import rounds
from gridgrad.experiments.benchmarks.rounds import in_minutes, quiet_rounds, ratios, shares
from gridgrad.experiments.common import progress
from tests import clock


@pytest.fixture
def now(monkeypatch):
    """The clock of both."""
    now = clock.Clock(1000.0)
    monkeypatch.setattr(progress, "time", now)
    monkeypatch.setattr(rounds, "time", now)
    monkeypatch.setattr(rounds, "load_of_process", lambda seen: None)
    return now


def test_a_line_is_printed_now_and_then(now, capsys):
    seen = []
    for thing in progress.progress(["a", "b", "c", "d"], "testing"):
        seen.append(thing)
        now.sleep(15)
    assert seen == ["a", "b", "c", "d"]
    assert capsys.readouterr().err.splitlines() == ["testing: 2 of 4, 0.5 minutes, 0.5 minutes left"]
    for _ in progress.progress(range(1000), "a part", end=now.now + 90):
        now.sleep(30)
        if now.now >= 1120:
            break
    assert capsys.readouterr().err.splitlines() == ["a part: 1 of 1000, 0.5 minutes, 1.0 minutes left"]
    assert list(progress.progress([1, 2], "testing", shown=False)) == [1, 2] and capsys.readouterr().err == ""


def test_each_comparison_has_a_share_of_the_time_and_at_least_one_round(now, monkeypatch):
    ends = shares(in_minutes(10), [1, 2, 2])
    assert next(ends) - now.now == 120
    assert next(ends) - now.now == 300  # nothing of the first share was used
    now.sleep(200)
    assert next(ends) - now.now == 400  # the rest
    monkeypatch.setattr(rounds, "CLOCKS", dict.fromkeys(rounds.CLOCKS, now.perf_counter))
    sides = [lambda: now.sleep(2), lambda: now.sleep(1), lambda: now.sleep(4)]
    for found, count in ((ratios(sides, 50, 1e-6, next(shares(now.now, [1, 1]))), 1), (ratios(sides, 5, 1e-6), 5)):
        assert found["cpu"] == found["wall"] == [2.0] * count  # the faster one of the others counts


def test_no_round_begins_that_would_end_too_late(now):
    found, _ = quiet_rounds([lambda: [now.sleep(4), 1.0][1]], 9, 9, end=now.now + 10)
    assert len(found) == 2
