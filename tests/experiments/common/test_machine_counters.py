"""What the system counts is read from made-up files, and from those of this machine."""

import os
from collections import namedtuple

import psutil
import pytest

from gridgrad.experiments.common import machine_load
from gridgrad.experiments.common.machine_load import above, core_seconds, counters_now, throttled_seconds

Times = namedtuple("Times", "user idle iowait irq softirq steal")
TIMES = [Times(3, 100, 1, 0.25, 0.25, 0.5), Times(3, 200, 2, 0.5, 0.5, 0.75)]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes made-up files {name: text}, which are read from now on."""
    monkeypatch.setattr(machine_load, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine_load, "SYS", tmp_path / "sys")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1}, raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: TIMES)

    def written(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return written


@pytest.mark.parametrize(("online", "known"), [("", True), ("0-1\n", True), ("0,2\n", False), ("0-3\n", False), ("0\n", False)])
def test_cores_are_known_where_none_of_those_before_is_off(write, online, known):
    write({"sys/devices/system/cpu/online": online})
    assert core_seconds() == ({1: (203.0, 0.75)} if known else {})


def test_without_the_counters_of_a_core_nothing_is_known(write, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 2}, raising=False)
    assert core_seconds() == {} and counters_now() is None
    monkeypatch.delattr(os, "sched_getaffinity")
    assert counters_now() is None


def test_a_limit_is_found_in_both_versions_of_cgroups(write):
    write({"proc/self/cgroup": "nonsense\n12:cpu,cpuacct:/job/step\n3:cpuset:/job\n0::/user/me\n"})
    assert throttled_seconds() is None
    write({"sys/fs/cgroup/cpuset/job/cpu.stat": "throttled_time 9000000000\n"})  # of another controller
    assert throttled_seconds() is None
    write({"sys/fs/cgroup/user/cpu.stat": "nr_periods 7\nthrottled_usec 250000\n"})
    assert throttled_seconds() == 0.25
    write({"sys/fs/cgroup/cpu/job/step/cpu.stat": "throttled_time 1000000000\n"})
    assert throttled_seconds() == 1.0


def test_processes_that_end_meanwhile_are_left_out(monkeypatch):
    def gone(process):
        raise psutil.NoSuchProcess(process.pid)

    monkeypatch.setattr(psutil.Process, "cpu_times", gone)
    assert above() == {}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux counts so")
def test_the_counters_of_this_machine_only_grow():
    first, second = counters_now(), counters_now()
    assert second.seconds >= first.seconds and second.own >= first.own
    assert os.getppid() in {0, *first.above} and all(
        second.above[process] >= seconds for process, seconds in first.above.items()
    )
    assert first.cores.keys() == second.cores.keys() == os.sched_getaffinity(0)
