"""What others took of a machine, from made-up counters; and that a watch of real ranks gives numbers at all."""

import math
from dataclasses import replace

import pytest

from gridgrad.experiments.common.machine_load import (
    Counters,
    Watch,
    between,
    load_of_job,
    load_of_node,
    load_of_nodes,
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


@pytest.mark.parametrize(
    ("ranks", "ours", "others", "words"),
    [
        ([rank(9.0, (8.0, 2.5))], 0.9, 0.05, None),
        ([rank(10.0)], 1.0, 1.0, "of 2 cores 1 were taken by others: not comparable"),  # a busy loop beside it
        ([rank(5.0)] * 4, 2.0, 0.0, None),  # ranks that share cores
        # What started the ranks is no other, and counts once.
        (
            [rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5, 9: 88.0}), rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5})],
            1.6,
            0.0,
            None,
        ),
        ([rank(10.0), rank(4.0, (0.0, 0.0), seconds=4.0)], 2.0, 0.0, None),  # rates of ranks that watch for unequal times
        ([rank(10.0, (0.0, 6.0), stolen=(0.0, 4.0))], 1.0, 0.0, "0.4 by the host of this virtual machine: not comparable"),
        ([rank(6.0, (10.0, 4.0), throttled=4.5)], 0.6, 0.0, "0.4 withheld by the limit of the cgroup: not comparable"),
        # In a fortieth of a second a core has two or three ticks, so that rounding alone looks like others.
        ([rank(0.025, (0.0, 0.01), seconds=0.025)], 1.0, 0.6, None),
    ],
)
def test_what_the_ranks_did_not_do_was_for_others(ranks, ours, others, words):
    load = load_of_node(ranks)
    assert (load.ours, load.others) == pytest.approx((ours, others), abs=1e-9)
    assert (load.verdict is None) == (words is None) and (words or "") in (load.verdict or "")


def test_the_worst_node_is_told_and_the_worst_of_all_ranks():
    quiet = load_of_node([rank(10.0, (0.0, 10.0), throttled=1.0)])
    load = load_of_nodes([quiet, load_of_node([rank(10.0, (0.0, 2.0), name="n2")])])
    assert load.host == "n2" and load.nodes == 2 and load.others == pytest.approx(0.8) and load.throttled == 0.5
    assert load.verdict == "of 2 cores of n2 0.8 were taken by others: not comparable" == verdict_of({"load": load.entry()})
    assert verdict_of({}) is None and verdict_of({"load": None}) is None and verdict_of({"load": quiet.entry()}) is None


@mpi(1, 2)
def test_all_ranks_get_the_load_of_the_job(comm):
    watch = Watch()
    sum(k * k for k in range(20000))
    load = load_of_job(comm, watch.seen())
    assert comm.allgather(load) == [load] * comm.size
    if load is not None:  # on Linux
        assert load.ranks == comm.size and load.nodes == 1 and load.ours > 0 and load.seconds > 0
        assert all(math.isfinite(value) and value >= 0 for value in (load.others, load.stolen, load.taken))
    assert load_of_job(comm, watch.seen() if comm.rank else None) is None
