"""The choice of the fastest reduction is stored after it was measured, and a stored choice is checked before use."""

import inspect
import json
import os
from math import exp
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose import reductions
from tests.mpi import mpi


def net():
    return Sequential([Linear(40, 300), ReLU(), Linear(300, 20)])


def answer(grid, question="auto", plan="replicate"):
    return str(parallelize(net(), grid, plan, reduction=question).reduction)


def measure_in_this_test(monkeypatch):
    """Undo what `tests/worker.py` does, so that "auto" measures, as in no other test."""
    monkeypatch.setattr(reductions, "fastest_reduction", inspect.unwrap(reductions.fastest_reduction))


@mpi(1, 2)
def test_the_answer_is_one_for_all_ranks_and_stays(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    with ProcessGrid(comm, batch=comm.size) as grid:
        for question in ("auto", "overlap"):
            first, second = (answer(grid, question) for _ in range(2))
            assert first == second and reductions.ANSWER.fullmatch(json.dumps(first))
            assert set(comm.allgather(first)) == {first}
            assert first.startswith(question) or question == "auto" or comm.size == 1
    with ProcessGrid(comm, model=comm.size) as grid:
        assert answer(grid, plan="out") == "plain"  # nothing is replicated, so nothing is measured


@mpi(2)
def test_what_is_stored_counts_unless_it_is_damaged(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    with ProcessGrid(comm, batch=2) as grid:
        cache = Path(os.environ["GRIDGRAD_CACHE"])
        if comm.rank == 0:
            for earlier in cache.glob("reduction-*.json"):
                earlier.unlink()
        comm.Barrier()
        answer(grid)
        for damaged, text in (False, '"overlap:321"'), (True, "{"), (True, '"overlap:0"'):
            comm.Barrier()
            if comm.rank == 0:
                (file,) = cache.glob("reduction-auto-batch=2,model=1-*.json")
                file.write_text(text)
            comm.Barrier()
            assert (answer(grid) == "overlap:321") != damaged
        if comm.rank == 0:
            file.unlink()


@pytest.mark.parametrize(
    ("shared", "several_nodes", "question", "expected"),
    [(0.97, False, "auto", "plain"), (0.3, False, "auto", "shared"), (0.3, True, "overlap", "overlap:512")],
)
def test_sums_with_noise_lead_to_the_same_reduction(shared, several_nodes, question, expected):
    for seed in range(20):
        noise = [exp(x / 40) for x in np.random.default_rng(seed).uniform(-1, 1, 3)]
        seconds = {"plain": 4e-3 * noise[0], "latency": 52e-6 * noise[1]}
        if question == "auto":
            seconds["shared"] = 4e-3 * shared * noise[2]
        assert reductions.fastest(seconds, question, several_nodes, 1 << 22) == expected
