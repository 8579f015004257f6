"""The limits of the machine: what the two rates count. The limits of problems: what is refused before anything is built."""

import pytest

from gridgrad.experiments import explain, summary
from gridgrad.experiments.common import core_limits, programs
from gridgrad.experiments.common.options import check_startable
from gridgrad.experiments.scaling.study import MOST_POINTS, Study
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError


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


def test_sizes_that_no_machine_takes_are_refused_by_every_parser():
    for parser in (explain.options(), summary.options(), programs.parser_of("train")):
        with pytest.raises(UserError, match="argument --batch-size: .* is too large: at most"):
            parser.parse_args(["--batch-size", str(2**63 - 1)])
    with pytest.raises(UserError, match="argument --outputs: .* is too large: at most"):
        explain.options().parse_args(["--outputs", str(10**12)])
    assert programs.parser_of("train").parse_args(["--steps", str(10**15)]).steps == 10**15


def test_a_study_or_a_job_that_is_too_large_is_refused_at_once():
    lists = {name: list(range(1, 21)) for name in ("lr", "l1", "l2", "momentum", "seed", "batch_size", "steps", "rebalance")}
    with pytest.raises(ValueError, match=f"points, more than {MOST_POINTS}"):
        Study(lists)
    with pytest.raises(ValueError, match="too many to start from here"):
        check_startable(10**8)
    check_startable(1024)


def test_what_is_trained_must_fit_the_memory():
    with pytest.raises(ValueError, match="needs .* GiB, and the machine has"):
        summary.check_memory(network_names.build("mlp:1000000,1000000,relu", 64, 10), 1)
    summary.check_memory(network_names.build("mlp:64,relu", 64, 10), 1)
