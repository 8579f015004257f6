"""Grids of ranks with their groups, and the one table of kernels that all ranks of a grid use."""

import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn.kernels import kernel_table
from gridgrad.nn.kernels.kernel_table import PLAIN, PRESET, SHIPPED, to_json
from gridgrad.nn.kernels.measure_table import QUICKLY
from gridgrad.parallel.grid import devices
from gridgrad.parallel.grid.process_grid import AXES, ProcessGrid, parse_grid
from tests.mpi import mpi
from tests.parallel.equality import on_cpus

TABLES = [SHIPPED["Skylake-X"], PLAIN, SHIPPED["Zen 4"]]


def test_bad_grids_are_refused(monkeypatch):
    assert parse_grid("batch=4,model=2") == {"batch": 4, "model": 2}
    for text in ("batch", "batch=0", "rows=2", "batch=2,batch=2"):
        with pytest.raises(ValueError, match="grid '"):
            parse_grid(text)
    with pytest.raises(ValueError, match="GRIDGRAD_RANKS_PER_NODE must be a whole number"):
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "x")
        ProcessGrid(MPI.COMM_SELF)


@mpi(6)
def test_groups_are_the_rows_and_columns_of_the_grid(comm):
    with ProcessGrid(comm, batch=3, model=2) as grid:
        b, m = grid.coordinates["batch"], grid.coordinates["model"]
        assert grid.rank == comm.rank == 2 * b + m
        assert grid.coordinates_of(5) == {"stage": 0, "batch": 2, "height": 0, "model": 1}
        for axes, expected, rank in (
            (("batch",), 6 + 3 * m, b),
            (("model",), 4 * b + 1, m),
            (("batch", "model"), 15, comm.rank),
        ):
            group = grid.group(*axes)
            assert group is grid.group(*reversed(axes)) and group.rank == rank
            array = np.array([comm.rank])
            group.all_reduce(array, "test")
            assert array == expected
        assert grid.max(np.array([comm.rank]))[0] == 5 and grid.min(np.array([comm.rank]))[0] == 0
        assert str(grid) == "batch=3,model=2"
    for sizes, words in (({"batch": 2, "model": 2}, "4 places but the number of ranks is 6"), ({"depth": 6}, "unknown axes")):
        with pytest.raises(ValueError, match=words):
            ProcessGrid(comm, **sizes)


@mpi(2)
def test_many_grids_in_one_job(comm):
    for _ in range(520):  # MPICH has 2048 communicators, and each grid makes at least 4
        ProcessGrid(comm, model=2).free()


@mpi(4)
def test_a_rank_that_asks_for_groups_alone_waits_for_nobody(comm, monkeypatch):
    """All communicators are made with the grid, and sets of axes with the same ranks share one."""
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "3")
    with ProcessGrid(comm, batch=2, model=2) as grid:
        if comm.rank == 3:
            groups = [grid.group(*axes) for number in range(5) for axes in combinations(AXES, number)]
            assert len({id(group) for group in groups}) == 4 and grid.world is grid.group(*AXES)
            for group in groups:
                leaders = grid.leaders(group)
                assert leaders is None or grid.rank in leaders.ranks and set(leaders.ranks) <= set(group.ranks)
        comm.Barrier()


# ----- one table of kernels


@mpi(3)
def test_all_ranks_use_the_table_of_kernels_of_the_first(comm, monkeypatch):
    """Of tables that differ, of files that differ, or of measurements, which the first rank stores."""

    def check(*expected):
        with ProcessGrid(comm, batch=comm.size):
            found = kernel_table.kernels()
            assert found == replace(TABLES[0], name=found.name)
            assert comm.allgather(found.name) == [*expected] * comm.size

    kernel_table.use(TABLES[comm.rank])
    check(TABLES[0].name)
    path = Path(os.environ["GRIDGRAD_CACHE"]) / f"kernels-of-rank-{comm.rank}.json"
    path.write_text(to_json(TABLES[comm.rank]))
    monkeypatch.setenv("GRIDGRAD_KERNELS", str(path))
    kernel_table.use(None)  # what the variable names
    check(comm.bcast(str(path)))
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain" if comm.rank else "/nowhere")
    kernel_table.use(None)
    with pytest.raises(ValueError, match="GRIDGRAD_KERNELS: can not read /nowhere"):
        ProcessGrid(comm, batch=comm.size)
    kernel_table.use(PRESET)
    if on_cpus(comm):
        stored = []
        monkeypatch.setattr(devices, "measured", lambda budget: replace(TABLES[comm.rank], name=QUICKLY))
        monkeypatch.setattr(devices, "stored", lambda: None)
        monkeypatch.setattr(devices, "store", lambda table: stored.append(table.name))
        check(QUICKLY)
        assert stored == [QUICKLY] * (comm.rank == 0)
    kernel_table.use(PLAIN)
