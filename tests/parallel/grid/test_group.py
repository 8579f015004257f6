"""What the collectives of a group refuse."""

import numpy as np
import pytest

from gridgrad.parallel.grid.process_grid import ProcessGrid
from tests.mpi import mpi


@mpi(2)
def test_an_exchange_with_oneself_is_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        group = grid.group("batch")
        own, other = ([3 * (rank == whose) for rank in range(2)] for whose in (group.rank, 1 - group.rank))
        out = np.zeros(3)
        for counts in ((own, other), (other, own)):
            with pytest.raises(ValueError, match=f"rank {group.rank} must have counts of 0 there"):
                group.start_exchange(np.ones(3), counts[0], out, counts[1], "test")
        group.start_exchange(np.full(3, float(group.rank)), other, out, other, "test").wait()
        assert (out == 1 - group.rank).all()
