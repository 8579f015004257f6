"""What check says about cores and threads."""

import pytest

from gridgrad.experiments.check import BoundRank, advice, binding, binding_problems, physical
from gridgrad.parallel.job.run import in_short


def node(*cores, threads=1, asked=None):
    """(ranks, {core: physical core}) of a node whose ranks may use these sets of cores."""
    return [BoundRank(i, frozenset(own), threads, asked) for i, own in enumerate(cores)], {c: c for own in cores for c in own}


ALL = range(4)


@pytest.mark.parametrize(("found", "text"), [({0, 1, 2, 3, 8}, "0-3,8"), ({5}, "5"), ({1, 3}, "1,3"), ({0, 1}, "0-1")])
def test_numbers_in_short(found, text):
    assert in_short(found) == text


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (node({0}, {1}), None),
        (node({0, 1}, {2, 3}, threads=2, asked=2), None),
        (node(ALL, ALL), None),  # not bound
        (node({0}, {0}, {1}), None),  # more ranks than cores
        (node(ALL, ALL, ALL, threads=2), "3 ranks x 2 BLAS threads on the 4 cores of n1"),
        (node({0}, {1}, asked=4), "rank 0 on n1 has OMP_NUM_THREADS=4 but may use only 1 of the cores (cores 0)"),
        (node({0}, {1}, asked=4), "srun --cpus-per-task=4 and SRUN_CPUS_PER_TASK=4"),
        (node({0}, {0}, {1, 2}), "ranks 0 and 1 on n1 are bound to the same core (cores 0 and 0): bind each"),
        (node({0, 1}, {1, 2}, {3}), "ranks 0 and 1 on n1 are bound to the same core (cores 0-1 and 1-2)"),
    ],
)
def test_what_is_wrong_with_a_node(job, words):
    found = list(binding_problems("n1", *job))
    assert found == [] if words is None else words in found[0]


def test_two_threads_of_one_core():
    ranks = [BoundRank(0, frozenset({0}), 1), BoundRank(1, frozenset({2}), 1)]
    [found] = binding_problems("n1", ranks, {0: 0, 1: 1, 2: 0, 3: 1})
    assert "ranks 0 and 1 on n1 are bound to two threads of one core (cores 0 and 2)" in found


@pytest.mark.parametrize(
    ("job", "machine", "words"),
    [
        (node({0}, {1}), 2, None),
        (node(ALL), 4, None),  # a serial run
        (node(ALL, ALL), 4, "not bound"),
        (node({0, 1}, {2, 3}), 4, "rank 0 has 2 cores but 1 BLAS threads: set OMP_NUM_THREADS=2"),
        (node({0}, {0}), 1, None),
        (node({0}, {0}), 8, "2 ranks may use only 1 of the 8 cores"),
    ],
)
def test_what_could_be_better(job, machine, words):
    found = advice(job[0], machine)
    assert found is None if words is None else words in found


def test_where_the_ranks_are():
    assert binding(node(ALL, ALL)[0]) == ["ranks 0-1 are not bound: each may use cores 0-3"]
    assert binding(node({0, 1}, {2, 3}, threads=2)[0]) == [
        "rank 0: cores 0-1, BLAS threads: 2",
        "rank 1: cores 2-3, BLAS threads: 2",
    ]
    many = binding(node(*({i} for i in range(12)))[0])
    assert len(many) == 9 and many[-1] == ".. and 4 more ranks"


def test_physical_cores_are_read_from_the_system(tmp_path):
    for core, text in {0: "0,2\n", 2: "0,2\n", 1: "1-3\n", 3: "1-3\n"}.items():
        (tmp_path / str(core)).write_text(text)
    assert physical(range(5), f"{tmp_path}/{{}}") == {0: 0, 2: 0, 1: 1, 3: 1, 4: 4}
