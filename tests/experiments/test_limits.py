"""The limits of the machine: what the two rates count."""

import pytest

from gridgrad.experiments.common import core_limits


def test_the_fastest_of_several_calls_counts(monkeypatch):
    clock = iter([0, 10, 14, 20, 22, 30, 33, 40])  # the end is at 1; calls take 4, 2 and 3
    monkeypatch.setattr(core_limits.time, "perf_counter", lambda: next(clock))
    calls = []
    assert core_limits.least_seconds(lambda: calls.append(1), 1) == 2
    assert len(calls) == 4  # with the one that warms up


def test_rates_count_operations_and_the_bytes_that_are_read_and_written(monkeypatch):
    monkeypatch.setattr(core_limits, "SIDE", 64)
    monkeypatch.setattr(core_limits, "COPIED", 1 << 16)
    assert core_limits.gemm_peak(0.001) > 0 and core_limits.copy_bandwidth(0.001) > 0
    monkeypatch.setattr(core_limits, "least_seconds", lambda action, seconds: seconds)
    assert core_limits.gemm_peak(2.0) == pytest.approx(64**3)
    assert core_limits.copy_bandwidth(2.0) == pytest.approx(1 << 16)
