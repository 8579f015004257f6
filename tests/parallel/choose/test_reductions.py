"""The choice of the fastest reduction is cached after it was measured, and a cached choice is checked before use."""

import inspect
import json
import os
from pathlib import Path

import numpy as np

from gridgrad.nn import Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.calibration.timing import slowest_in_turns
from gridgrad.parallel.choose import reductions
from tests.mpi import mpi
from tests.parallel.equality import grids

DAMAGED = "", "[]", "{", '{"a": 3}', '"rm -rf"', '"overlap:0"', '"plain;"'


def net():
    return Sequential([Linear(40, 300), ReLU(), Linear(300, 20)])


def measure_in_this_test(monkeypatch):
    """Undo what `tests/worker.py` does, so that "auto" measures, as in no other test."""
    monkeypatch.setattr(reductions, "fastest_reduction", inspect.unwrap(reductions.fastest_reduction))


@mpi(1, 2, 3, 4)
def test_the_answer_is_one_for_all_ranks_and_stays(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    for sizes in grids(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            for question in ("auto", "overlap"):
                first, second = (str(parallelize(net(), grid, "replicate", reduction=question).reduction) for _ in range(2))
                assert first == second and reductions.ANSWER.fullmatch(json.dumps(first))
                assert set(comm.allgather(first)) == {first}
                assert first.startswith(question) or question == "auto" or comm.size == 1


@mpi(4)
def test_uneven_blocks_do_not_part_the_ranks(comm, monkeypatch):
    """The group with the most parameters on one rank need not be that on another."""
    measure_in_this_test(monkeypatch)
    with ProcessGrid(comm, batch=2, model=2) as grid:
        uneven = Sequential([Linear(6, 2), ReLU(), Linear(2, 9)])
        answers = comm.allgather(str(parallelize(uneven, grid, "replicate,out", reduction="auto").reduction))
        assert len(set(answers)) == 1


@mpi(2)
def test_where_there_is_no_room_it_is_plain(comm, monkeypatch):
    monkeypatch.setattr(reductions, "has_room", lambda net: False)
    monkeypatch.setattr(reductions, "fastest_reduction", lambda net, question: "shared")
    with ProcessGrid(comm, batch=2) as grid:
        assert str(parallelize(net(), grid, reduction="auto").reduction) == "plain"


@mpi(2)
def test_what_is_remembered_counts(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    with ProcessGrid(comm, batch=2) as grid:
        cache = Path(os.environ["GRIDGRAD_CACHE"])
        if comm.rank == 0:
            for earlier in cache.glob("reduction-*.json"):
                earlier.unlink()
        comm.Barrier()
        parallelize(net(), grid, reduction="auto")
        for damaged, text in (False, '"overlap:321"'), *((True, text) for text in DAMAGED):
            comm.Barrier()
            if comm.rank == 0:
                (file,) = cache.glob("reduction-auto-batch=2,model=1-*.json")
                file.write_text(text)
            comm.Barrier()
            assert (str(parallelize(net(), grid, reduction="auto").reduction) == "overlap:321") != damaged
        if comm.rank == 0:
            file.unlink()


@mpi(1, 2, 3)
def test_where_there_is_no_time_one_turn_is_enough(comm, monkeypatch):
    monkeypatch.setattr(reductions, "SECONDS", -1.0)
    turns = []
    monkeypatch.setattr(reductions, "slowest_in_turns", lambda *given: turns.append(slowest_in_turns(*given)) or turns[-1])
    with ProcessGrid(comm, batch=comm.size) as grid:
        group = grid.group("batch")
        answer = reductions.measure_fastest(grid, group, 1000, np.float32, "overlap", False)
    assert [len(each) for each in turns] == [1] and answer.startswith("overlap:")


@mpi(4)
def test_on_several_nodes_it_is_shared_or_overlap(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "2")
    with ProcessGrid(comm, batch=4) as grid:
        assert str(parallelize(net(), grid, reduction="auto").reduction).split(":")[0] in ("shared", "overlap")


@mpi(2)
def test_where_nothing_is_replicated_nothing_is_measured(comm, monkeypatch):
    measure_in_this_test(monkeypatch)
    with ProcessGrid(comm, model=2) as grid:
        assert str(parallelize(net(), grid, "out", reduction="auto").reduction) == "plain"
