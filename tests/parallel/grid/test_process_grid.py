from itertools import combinations

import numpy as np
import pytest

from gridgrad.parallel.grid.process_grid import AXES, ProcessGrid, parse_grid
from gridgrad.parallel.grid.process_grid import ranks_per_node as read_ranks_per_node
from tests.mpi import mpi


def test_grids_as_text():
    assert parse_grid("batch=4,model=2") == {"batch": 4, "model": 2}
    assert parse_grid("model=3") == {"model": 3}


@pytest.mark.parametrize(
    "text",
    ["", "batch", "batch=", "batch=0", "batch=-2", "batch=two", "rows=2", "batch=2,batch=2", "batch=1.5", "batch=2;model=2"],
)
def test_bad_grids_are_refused(text):
    with pytest.raises(ValueError, match="grid '"):
        parse_grid(text)


@mpi(6)
def test_groups_are_the_rows_and_columns_of_the_grid(comm):
    with ProcessGrid(comm, batch=3, model=2) as grid:
        b, m = grid.coordinates["batch"], grid.coordinates["model"]
        assert grid.rank == comm.rank == 2 * b + m
        assert [grid.coordinates_of(r) for r in (0, 1, 5)] == [
            {"stage": 0, "batch": b, "height": 0, "model": m} for b, m in ((0, 0), (0, 1), (2, 1))
        ]  # fmt: skip
        for axes, expected, rank in (
            (("batch",), 0 + 2 + 4 + 3 * m, b),
            (("model",), 4 * b + 1, m),
            (("batch", "model"), 15, comm.rank),
        ):
            group = grid.group(*axes)
            assert group is grid.group(*reversed(axes))
            assert group.rank == rank
            assert group.sum(comm.rank, "test") == expected
        assert grid.max(np.array([comm.rank]))[0] == 5 and grid.min(np.array([comm.rank]))[0] == 0
        assert str(grid) == "batch=3,model=2"


@mpi(3)
def test_a_grid_of_another_size_names_both_numbers(comm):
    with pytest.raises(ValueError, match="has 4 places but the number of ranks is 3"):
        ProcessGrid(comm, batch=2, model=2)
    with pytest.raises(ValueError, match="unknown axes"):
        ProcessGrid(comm, depth=3)


@pytest.mark.parametrize("text", ["0", "x", "-1", "9" * 5000])
def test_a_variable_that_is_no_number_of_ranks_is_named(text):
    with pytest.raises(ValueError, match="GRIDGRAD_RANKS_PER_NODE must be a whole number"):
        read_ranks_per_node(4, {"GRIDGRAD_RANKS_PER_NODE": text})


@mpi(2, 4, long=(4,))
def test_many_grids_in_one_job(comm):
    for _ in range(520):  # MPICH has 2048 communicators, and each grid makes at least 4
        ProcessGrid(comm, batch=comm.size // 2, model=2).free()


@mpi(4, 8, long=(8,))
def test_a_rank_that_asks_for_groups_alone_waits_for_nobody(comm, monkeypatch):
    """All communicators are made with the grid, and sets of axes with the same ranks share one."""
    for ranks_per_node in ("1", "3", "8"):
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", ranks_per_node)
        with ProcessGrid(comm, batch=comm.size // 2, model=2) as grid:
            if comm.rank == comm.size - 1:
                groups = [grid.group(*axes) for number in range(5) for axes in combinations(AXES, number)]
                assert len({id(group) for group in groups}) == 4
                assert grid.group("stage", "model") is grid.group("model") and grid.group("stage").size == 1
                assert grid.world is grid.group(*AXES) and grid.world.size == grid.size and grid.rank in grid.node.ranks
                for group in groups:
                    leaders = grid.leaders(group)
                    assert leaders is None or grid.rank in leaders.ranks and set(leaders.ranks) <= set(group.ranks)
            comm.Barrier()
