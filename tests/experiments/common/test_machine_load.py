"""What others took of a machine, from made-up counters; and that a watch of real ranks gives numbers at all."""

import math
import os
from dataclasses import replace

import pytest

from gridgrad.experiments.common.machine_load import (
    Counters,
    Watch,
    between,
    load_of_job,
    load_of_node,
    load_of_nodes,
    load_of_process,
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


def test_what_the_ranks_did_not_do_was_for_others():
    load = load_of_node([rank(9.0, (8.0, 2.5))])
    assert (load.cores, load.ranks, load.seconds) == (2, 1, 10.0)
    assert load.ours == pytest.approx(0.9) and load.others == pytest.approx(0.05) and load.stolen == 0
    assert load.verdict is None and load.words == "of 2 cores 0.05 were taken by others"


def test_a_busy_loop_beside_one_rank_is_noticed():
    load = load_of_node([rank(10.0)])
    assert load.verdict == "of 2 cores 1 were taken by others: not comparable"


def test_ranks_that_share_cores_are_no_others():
    ranks = [rank(5.0)] * 4
    assert load_of_node(ranks).others == 0 and load_of_node(ranks).verdict is None
    assert load_of_node(ranks[:2]).others == pytest.approx(1.0)


def test_what_started_the_ranks_is_no_other_and_counts_once():
    ranks = [rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5, 9: 88.0}), rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5})]
    assert load_of_node(ranks).ours == pytest.approx(1.6) and load_of_node(ranks).others == pytest.approx(0.0)


def test_each_rank_adds_the_cores_to_which_it_is_bound():
    def bound(core, own, idle):
        start = replace(START, cores={core: (0.0, 0.0)})
        return between(start, replace(end(own), cores={core: (idle, 0.0)}))

    load = load_of_node([bound(0, 10.0, 0.0), bound(1, 4.0, 5.0)])
    assert load.cores == 2 and load.others == pytest.approx(0.1)


def test_ranks_that_watch_for_unequal_times_are_compared_by_their_rates():
    load = load_of_node([rank(10.0), rank(4.0, (0.0, 0.0), seconds=4.0)])
    assert load.others == pytest.approx(0.0, abs=1e-12) and load.seconds == 10.0


def test_the_host_of_a_virtual_machine_is_told_apart():
    load = load_of_node([rank(10.0, (0.0, 6.0), stolen=(0.0, 4.0))])
    assert load.others == pytest.approx(0) and load.stolen == pytest.approx(0.4)
    assert load.verdict == "of 2 cores 0 were taken by others, 0.4 by the host of this virtual machine: not comparable"


def test_a_limit_of_the_cgroup_is_told():
    load = load_of_node([rank(6.0, (14.0, 0.0), throttled=4.5)])
    assert load.throttled == 4.0
    assert "0.4 withheld by the limit of the cgroup: not comparable" in load.verdict


def test_of_a_short_time_only_much_is_noticed():
    """In a fortieth of a second a core has two or three ticks, so that rounding alone looks like others."""
    assert load_of_node([rank(0.025, (0.0, 0.01), seconds=0.025)]).verdict is None
    assert load_of_node([rank(0.5, (0.0, 0.0), seconds=0.5)]).verdict is not None
    assert load_of_node([rank(0.0, (0.0, 0.0), seconds=0.0)]).verdict is None


def test_one_busy_loop_is_noticed_however_many_cores_there_are():
    def load_of(cores, others):
        return load_of_node([Counters(100.0, 0.0, {}, {core: (100.0 * (1 - others / cores), 0.0) for core in range(cores)})])

    for cores in (1, 2, 16, 64, 256):
        assert load_of(cores, 1.0 + 0.01 * cores).verdict is not None
        assert load_of(cores, 0.1 + 0.001 * cores).verdict is None
        assert load_of(cores, 0.6).verdict is not None
    assert load_of(64, 0.3).verdict is None and load_of(2, 0.3).verdict is not None


def test_the_worst_node_is_told_and_the_worst_of_all_ranks():
    quiet = load_of_node([rank(10.0, (0.0, 10.0), throttled=1.0)])
    busy = load_of_node([rank(10.0, (0.0, 2.0), name="n2")])
    load = load_of_nodes([quiet, busy])
    assert load.host == "n2" and load.nodes == 2 and load.others == pytest.approx(0.8)
    assert load.verdict == "of 2 cores of n2 0.8 were taken by others: not comparable"
    assert load.throttled == 0.5


def test_what_the_system_does_not_say_is_not_known():
    load = load_of_node([between(replace(START, throttled=None), end(10.0, (0.0, 10.0), throttled=None))])
    assert load.throttled is None and load.verdict is None
    assert between(None, END := end()) is None and between(START, None) is None
    assert between(START, replace(END, cores={0: (0.0, 0.0)})) is None  # it may use other cores now
    assert load_of_process(None) is None


def test_the_verdict_stands_in_a_report():
    entry = load_of_node([rank(9.0, (8.0, 2.5))]).entry()
    assert verdict_of({}) is None and verdict_of({"load": None}) is None and verdict_of({"load": entry}) is None
    assert verdict_of({"load": load_of_node([rank(0.0)]).entry()}) == "of 2 cores 2 were taken by others: not comparable"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux counts so")
def test_a_watch_of_this_process():
    load = load_of_process(Watch().seen())
    assert load.cores == len(os.sched_getaffinity(0)) and load.ranks == load.nodes == 1
    assert load.others >= 0 and load.ours > 0


class WithoutCounters:
    def seen(self):
        return None


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


@mpi(3)
def test_machines_are_told_apart(comm):
    name = "n1" if comm.rank < 2 else "n2"
    load = load_of_job(comm, between(START, end(10.0 if comm.rank < 2 else 0.0, host=name, machine=name)))
    assert load.nodes == 2 and load.host == "n2" and load.ranks == 1 and load.others == pytest.approx(2.0)
