"""Progress messages, and the limit on the time of a comparison."""

import time

from experiments.benchmarks.rounds import Clock, in_minutes, ratios, rounds_until
from experiments.common import progress


def test_a_line_is_printed_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.02)
    seen = []
    for thing in progress.progress(["a", "b", "c"], "testing"):
        seen.append(thing)
        time.sleep(0.03)
    assert seen == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == ["testing: 1 of 3, 0.0 minutes", "testing: 2 of 3, 0.0 minutes"]
    assert list(progress.progress([1, 2], "testing", shown=False)) == [1, 2] and capsys.readouterr().err == ""


def test_each_comparison_has_a_share_of_the_time_and_at_least_one_round():
    clock, now = Clock(in_minutes(10), [1, 2, 2]), time.monotonic()
    assert 119 < clock.share() - now < 121
    assert 299 < clock.share() - now < 301  # nothing of the first share was used
    late = Clock(in_minutes(0), [1, 1])
    sides = [lambda: None] * 2
    assert [len(values) for values in ratios(sides, 50, 1e-6, late.share()).values()] == [1, 1]
    assert [len(values) for values in ratios(sides, 5, 1e-6).values()] == [5, 5]


def test_no_round_begins_that_would_end_too_late(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found = []
    for number in rounds_until(end=10.0, most=9):
        found.append(number)
        now[0] += 4.0
    assert found == [0, 1]
