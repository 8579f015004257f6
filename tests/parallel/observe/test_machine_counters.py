"""What the system counts is read from made-up files, and from those of this machine."""

import os

import pytest

from gridgrad.parallel.observe import machine_counters
from gridgrad.parallel.observe.machine_counters import (
    above,
    core_seconds,
    counters_now,
    cpu_stats,
    machine,
    own_core,
    queued_seconds,
    throttled,
    throttled_seconds,
    waited_seconds,
)

STAT = """cpu  900 80 700 60000 500 40 30 200 9 0
cpu0 300 10 200 10000 100 20 10 50 0 0
cpu1 300 20 200 20000 200 10 10 70 0 0
cpu11 300 50 300 30000 200 10 10 80 9 0
intr 100 0 0
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_cores_of_this_process_are_read_by_their_numbers():
    assert core_seconds(STAT, {0, 11}, 100) == {0: (101.3, 0.5), 11: (302.2, 0.8)}
    assert core_seconds(STAT, {1}, 1000) == {1: (20.22, 0.07)}


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu0 1 2\n", STAT.replace("cpu11", "cpu12"), "\n \ncpu\n"])
def test_where_a_core_is_missing_nothing_is_known(text):
    assert core_seconds(text, {0, 11}, 100) == {}


def test_the_waits_of_all_threads_are_added(tmp_path):
    assert waited_seconds(tmp_path) is None
    write(tmp_path, {"proc/self/task/7/schedstat": "900 2000000000 12\n", "proc/self/task/8/schedstat": "1 500000000 3\n"})
    write(tmp_path, {"proc/self/task/9/schedstat": ""})  # a thread that has ended meanwhile
    assert waited_seconds(tmp_path) == 2.5


def test_the_pressure_is_that_of_some_process():
    text = "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
    assert queued_seconds(text) == 2.5
    assert queued_seconds("") is None and queued_seconds("full total=9\nsome\n") is None


def test_a_limit_is_found_in_both_versions_of_cgroups(tmp_path):
    assert throttled("nr_periods 7\nthrottled_usec 1500000\n") == 1.5
    assert throttled("nr_throttled 3\nthrottled_time 2500000000\n") == 2.5
    assert throttled("usage_usec 12\n") is None
    write(tmp_path, {"proc/self/cgroup": "12:cpu,cpuacct:/job/step\n3:cpuset:/job\n0::/user/me\n"})
    assert throttled_seconds(tmp_path) is None
    write(tmp_path, {"sys/fs/cgroup/cpuset/job/cpu.stat": "throttled_time 9000000000\n"})  # of another controller
    assert throttled_seconds(tmp_path) is None
    write(tmp_path, {"sys/fs/cgroup/user/cpu.stat": "throttled_usec 250000\n"})
    assert throttled_seconds(tmp_path) == 0.25
    write(tmp_path, {"sys/fs/cgroup/cpu,cpuacct/job/step/cpu.stat": "throttled_time 1000000000\n"})
    assert throttled_seconds(tmp_path) == 1.0


def test_no_path_leaves_the_folder_of_the_cgroups(tmp_path):
    paths = list(cpu_stats("0::/../../job\nnonsense\n1:cpu:/\n", tmp_path))
    assert paths and all(".." not in path.parts and path.is_relative_to(tmp_path) for path in paths)


def test_the_core_is_found_behind_a_name_with_blanks_and_parentheses():
    assert own_core("42 (a (b) c) R " + " ".join(["0"] * 35) + " 5 0 0\n") == 5
    assert own_core("") == 0


def test_the_processes_above_this_one_are_followed_to_the_first(tmp_path):
    def stat(number, parent, utime, stime):
        words = ["S", parent, *[0] * 9, utime, stime, *[0] * 30]
        write(tmp_path, {f"{number}/stat": f"{number} (a ) b) {' '.join(map(str, words))}\n"})

    assert above(tmp_path, 100) == {}
    stat("self", 30, 999, 999)
    assert above(tmp_path, 100) == {}, "it is not to be seen"
    stat(30, 20, 150, 50)
    stat(20, 1, 0, 0)
    stat(1, 0, 100, 0)
    assert above(tmp_path, 100) == {30: 2.0, 20: 0.0, 1: 1.0}
    stat(1, 30, 100, 0)
    assert above(tmp_path, 100).keys() == {30, 20, 1}, "a circle ends"


def test_the_identifier_of_a_machine(tmp_path):
    assert machine(tmp_path) == machine_counters.platform.node()
    write(tmp_path, {"proc/sys/kernel/random/boot_id": "abc\n"})
    assert machine(tmp_path) == "abc"


def test_all_counters_of_made_up_files(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert counters_now(tmp_path) is None
    frequency = "sys/devices/system/cpu/cpu1/cpufreq"
    write(tmp_path, {"proc/stat": STAT})
    least = counters_now(tmp_path)
    assert least.cores.keys() == {0, 1} and least.own > 0
    assert [least.waited, least.queued, least.throttled, least.mhz, least.governor] == [None] * 5
    write(tmp_path, {"proc/self/stat": "42 (python) R " + " ".join(["0"] * 35) + " 1 0\n"})
    write(tmp_path, {f"{frequency}/scaling_cur_freq": "2400000\n", f"{frequency}/scaling_governor": "performance\n"})
    assert (counters_now(tmp_path).mhz, counters_now(tmp_path).governor) == (2400.0, "performance")


def test_other_systems_count_nothing(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert counters_now() is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux counts so")
def test_the_counters_of_this_machine_only_grow():
    first, second = counters_now(), counters_now()
    assert second.clock >= first.clock and second.own >= first.own and second.preempted >= first.preempted
    assert os.getppid() in {0, *first.above} and all(
        second.above[process] >= seconds for process, seconds in first.above.items()
    )
    assert first.cores.keys() == second.cores.keys() == os.sched_getaffinity(0)
