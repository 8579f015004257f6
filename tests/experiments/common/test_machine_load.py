"""What others took of a machine, from made-up counters and files; and that a watch of real ranks gives numbers at all."""

import math
import os
from collections import namedtuple
from dataclasses import replace

import psutil
import pytest

from gridgrad.experiments.common import machine_load
from gridgrad.experiments.common.machine_load import (
    Counters,
    Watch,
    between,
    core_seconds,
    counters_now,
    load_of_job,
    load_of_node,
    load_of_nodes,
    load_of_process,
    throttled_seconds,
    verdict_of,
)
from tests.mpi import mpi

CORES = {0: (50.0, 1.0), 1: (60.0, 2.0)}
START = Counters(100.0, 5.0, {1: 3.0, 7: 0.5}, CORES, 0.5, "n1", "n1")


def end(own=0.0, idle=(0.0, 0.0), stolen=(0.0, 0.0), seconds=10.0, **more):
    """The counters so many seconds after START, between which this process computed and the cores were idle for so long."""
    change = zip(START.cores.items(), idle, stolen, strict=True)
    cores = {core: (a + not_busy, b + taken) for (core, (a, b)), not_busy, taken in change}
    return replace(START, seconds=START.seconds + seconds, own=START.own + own, cores=cores, **more)


def rank(*arguments, name="n1", **more):
    """What a rank on a machine has seen until `end`."""
    return between(START, end(*arguments, **more, host=name, machine=name))


def bound(core, own, idle):
    """What a rank has seen that is bound to one core."""
    start = replace(START, cores={core: (0.0, 0.0)})
    return between(start, replace(end(own), cores={core: (idle, 0.0)}))


@pytest.mark.parametrize(
    ("ranks", "ours", "others", "words"),
    [
        ([rank(9.0, (8.0, 2.5))], 0.9, 0.05, None),
        ([rank(10.0)], 1.0, 1.0, "of 2 cores 1 were taken by others: not comparable"),  # a busy loop beside it
        ([rank(5.0)] * 4, 2.0, 0.0, None),  # ranks that share cores
        ([rank(5.0)] * 2, 1.0, 1.0, "of 2 cores 1 were"),
        # What started the ranks is no other, and counts once.
        (
            [rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5, 9: 88.0}), rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5})],
            1.6,
            0.0,
            None,
        ),
        ([bound(0, 10.0, 0.0), bound(1, 4.0, 5.0)], 1.4, 0.1, None),
        ([rank(10.0), rank(4.0, (0.0, 0.0), seconds=4.0)], 2.0, 0.0, None),  # rates of ranks that watch for unequal times
        ([rank(10.0, (0.0, 6.0), stolen=(0.0, 4.0))], 1.0, 0.0, "0.4 by the host of this virtual machine: not comparable"),
        ([rank(6.0, (10.0, 4.0), throttled=4.5)], 0.6, 0.0, "0.4 withheld by the limit of the cgroup: not comparable"),
        # In a fortieth of a second a core has two or three ticks, so that rounding alone looks like others.
        ([rank(0.025, (0.0, 0.01), seconds=0.025)], 1.0, 0.6, None),
        ([rank(0.5, (0.0, 0.0), seconds=0.5)], 1.0, 1.0, "of 2 cores 1 were"),
    ],
)
def test_what_the_ranks_did_not_do_was_for_others(ranks, ours, others, words):
    load = load_of_node(ranks)
    assert (load.ours, load.others) == pytest.approx((ours, others), abs=1e-9)
    assert (load.verdict is None) == (words is None) and (words or "") in (load.verdict or "")


@pytest.mark.parametrize("cores", [1, 2, 64, 256])
def test_one_busy_loop_is_noticed_however_many_cores_there_are(cores):
    def verdict(others):
        return load_of_node(
            [Counters(100.0, 0.0, {}, {core: (100 * (1 - others / cores), 0) for core in range(cores)})]
        ).verdict

    assert verdict(1.0 + 0.01 * cores) and verdict(0.6) and not verdict(0.1 + 0.001 * cores)
    assert bool(verdict(0.3)) == (cores <= 2)


def test_the_worst_node_is_told_and_the_worst_of_all_ranks():
    quiet = load_of_node([rank(10.0, (0.0, 10.0), throttled=1.0)])
    load = load_of_nodes([quiet, load_of_node([rank(10.0, (0.0, 2.0), name="n2")])])
    assert load.host == "n2" and load.nodes == 2 and load.others == pytest.approx(0.8) and load.throttled == 0.5
    assert load.verdict == "of 2 cores of n2 0.8 were taken by others: not comparable" == verdict_of({"load": load.entry()})
    assert verdict_of({}) is None and verdict_of({"load": None}) is None and verdict_of({"load": quiet.entry()}) is None


def test_what_the_system_does_not_say_is_not_known():
    load = load_of_node([between(replace(START, throttled=None), end(10.0, (0.0, 10.0), throttled=None))])
    assert load.throttled is None and load.verdict is None
    assert between(None, now := end()) is None and between(START, None) is None and load_of_process(None) is None
    assert between(START, replace(now, cores={0: (0.0, 0.0)})) is None  # it may use other cores now


@mpi(1, 2, 3)
def test_all_ranks_get_the_load_of_the_job(comm):
    watch = Watch()
    sum(k * k for k in range(20000))
    load = load_of_job(comm, watch.seen())
    assert comm.allgather(load) == [load] * comm.size
    if load is not None:  # on Linux
        assert load.ranks == comm.size and load.nodes == 1 and load.ours > 0 and load.seconds > 0
        assert all(math.isfinite(value) and value >= 0 for value in (load.others, load.stolen, load.taken))
    assert load_of_job(comm, watch.seen() if comm.rank else None) is None
    name = f"n{comm.rank}"  # each rank on a machine of its own
    load = load_of_job(comm, between(START, end(10.0 if comm.rank < comm.size - 1 else 0.0, host=name, machine=name)))
    assert (
        load.nodes == comm.size and load.host == f"n{comm.size - 1}" and load.ranks == 1 and load.others == pytest.approx(2.0)
    )


# ----- what the system counts

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
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return written


def test_cores_are_known_where_none_of_those_before_is_off_and_all_have_counters(write, monkeypatch):
    for online, known in (("", True), ("0-1\n", True), ("0,2\n", False), ("0\n", False)):
        write({"sys/devices/system/cpu/online": online})
        assert core_seconds() == ({1: (203.0, 0.75)} if known else {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 2}, raising=False)
    assert core_seconds() == {} and counters_now() is None
    monkeypatch.delattr(os, "sched_getaffinity")
    assert counters_now() is None


def test_a_limit_is_found_in_both_versions_of_cgroups(write):
    write({"proc/self/cgroup": "nonsense\n12:cpu,cpuacct:/job/step\n3:cpuset:/job\n0::/user/me\n"})
    write({"sys/fs/cgroup/cpuset/job/cpu.stat": "throttled_time 9000000000\n"})  # of another controller
    assert throttled_seconds() is None
    write({"sys/fs/cgroup/user/cpu.stat": "nr_periods 7\nthrottled_usec 250000\n"})
    assert throttled_seconds() == 0.25
    write({"sys/fs/cgroup/cpu/job/step/cpu.stat": "throttled_time 1000000000\n"})
    assert throttled_seconds() == 1.0
