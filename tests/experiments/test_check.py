"""What check says about ranks, cores and threads; and programs that are started in the wrong way."""

import pytest

from gridgrad.experiments.check import BoundRank, advice, binding, binding_problems, problems
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


def test_where_the_ranks_are_and_what_could_be_better():
    assert advice(node(ALL)[0], 4) is None  # a serial run
    assert "not bound" in advice(node(ALL, ALL)[0], 4)
    assert "set OMP_NUM_THREADS=2" in advice(node({0, 1}, {2, 3})[0], 4)
    assert binding(node(ALL, ALL)[0]) == ["ranks 0-1 are not bound: each may use cores 0-3"]
    assert binding(node({0, 1}, {2, 3}, threads=2)[0])[1] == "rank 1: cores 2-3, BLAS threads: 2"


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
