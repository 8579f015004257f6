"""What check says about ranks, cores and threads; and what others took of a machine while a job ran, from made-up counters."""

from dataclasses import replace

import pytest

from gridgrad.experiments.check import BoundRank, binding_problems, problems
from gridgrad.experiments.common.machine_load import Counters, between, load_of_node, load_of_nodes, verdict_of
from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.experiments.programs import job


def node(*cores, threads=1, asked=None):
    """(ranks, {core: physical core}) of a node whose ranks may use these sets of cores."""
    return [BoundRank(i, frozenset(own), threads, asked) for i, own in enumerate(cores)], {c: c for own in cores for c in own}


ALL = range(4)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (node({0}, {1}), None),
        (node({0}, {0}, {1}), None),  # more ranks than cores
        (node(ALL, ALL, ALL, threads=2), "3 ranks x 2 BLAS threads on the 4 cores of n1"),
        (node({0}, {1}, asked=4), "rank 0 on n1 has OMP_NUM_THREADS=4 but may use only 1 of the cores (cores 0)"),
        (node({0, 1}, {1, 2}, {3}), "ranks 0 and 1 on n1 are bound to the same core (cores 0-1 and 1-2)"),
        ((node({0}, {2})[0], {0: 0, 1: 1, 2: 0, 3: 1}), "bound to two threads of one core (cores 0 and 2)"),
    ],
)
def test_what_is_wrong_with_a_node(ranks, words):
    found = list(binding_problems("n1", *ranks))
    assert found == [] if words is None else words in found[0]


def test_ranks_that_are_missing_or_alone_are_named():
    one, two, eight = ({"here": node(*[range(2)] * ranks)} for ranks in (1, 2, 8))
    assert "N singletons" in problems(None, 1, one, {"PMI_SIZE": "4"})[0]
    assert "3 ranks were asked for but 2 started" in problems(3, 2, two, {})[0]
    assert problems(2, 2, two, {}) == [] == problems(None, 8, eight, {})  # oversubscribed is said, but is not wrong


def test_it_says_what_it_finds_once():
    finished = job(2, "check", "--ranks", 2)
    assert finished.status == 0, finished.stderr
    once = "MPI library", "2 found, 2 asked for", "threads a rank: 1", "came back right", "sum right", "binding", "\nload "
    assert [words for words in once if finished.stdout.count(words) != 1] == [] and finished.stdout.endswith("ok\n")


def test_an_import_that_fails_on_one_rank_ends_the_job(tmp_path):
    ranks = "os.environ.get('PMI_RANK'), os.environ.get('OMPI_COMM_WORLD_RANK')"
    (tmp_path / "tqdm.py").write_text(f"import os\nif '1' in ({ranks}): 1 / 0\ntqdm = print\n")
    finished = mpiexec(2, ["-m", "gridgrad", "train"], timeout=30, env={"PYTHONPATH": str(tmp_path)})
    assert finished.status not in (0, None) and "ZeroDivisionError" in finished.stderr


# ----- the load of machines

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
        ([rank(6.0, (0.0, 4.0), above={1: 7.0, 7: 0.5})] * 2, 1.6, 0.0, None),  # what started the ranks counts once
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


def test_the_worst_node_is_told():
    quiet = load_of_node([rank(10.0, (0.0, 10.0), throttled=1.0)])
    load = load_of_nodes([quiet, load_of_node([rank(10.0, (0.0, 2.0), name="n2")])])
    assert load.host == "n2" and load.nodes == 2 and load.others == pytest.approx(0.8) and load.throttled == 0.5
    assert load.verdict == "of 2 cores of n2 0.8 were taken by others: not comparable" == verdict_of({"load": load.entry()})
    assert verdict_of({}) is None and verdict_of({"load": quiet.entry()}) is None
