"""Progress messages, and the limit on the time of a comparison."""

import time

from experiments.benchmarks.rounds import Clock, ratios
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
    clock, now = Clock(10, 5), time.monotonic()
    assert 119 < clock.share() - now < 121
    assert 149 < clock.share() - now < 151  # nothing of the first share was used
    late = Clock(0, 2)
    assert len(ratios(lambda: None, [lambda: None], 50, 1e-6, late.share())) == 1
    assert len(ratios(lambda: None, [lambda: None], 5, 1e-6)) == 5
