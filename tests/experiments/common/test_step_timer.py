"""The StepTimer measures the steps of a run, and forgets them when it is asked to."""

import numpy as np
import pytest

from gridgrad.experiments.parts.step_timer import StepTimer
from gridgrad.nn import Linear, Sequential
from gridgrad.parallel import ProcessGrid, parallelize
from tests.mpi import mpi


class Reader:
    """In a reader's place: what a StepTimer asks of one."""

    seconds = 7.0

    def clear(self):
        self.seconds = 0.0


@mpi(1, 2)
def test_steps_are_measured_from_where_it_begins(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        net, reader = parallelize(Sequential([Linear(3, 2)]), grid, reduction="overlap:1"), Reader()
        grid.world.all_reduce(np.ones(3), "before")
        measured = StepTimer(net, reader)
        assert reader.seconds == 0 and not grid.tally.records
        for samples in (5, 7):
            with measured.step(samples):
                grid.world.all_reduce(np.ones(3), "within")
        assert len(measured.seconds) == 2 and min(measured.seconds) > 0 and measured.samples_per_step == 6
        assert [key[0] for key in grid.tally.records] == ["within"] * (comm.size > 1)
        watch = measured.watch
        measured.start()
        assert measured.watch is not watch, "the machine is watched anew"
        assert measured.seconds == [] and measured.samples == 0 and not grid.tally.records
        with pytest.raises(KeyError), measured.step(1):
            raise KeyError
        assert measured.seconds == [], "a step that failed is none"
        assert measured.reference == [], "nobody asked for the speed of the core"


@mpi(1)
def test_the_speed_of_the_core_around_each_step_is_the_mean_of_before_and_after(comm):
    with ProcessGrid(comm) as grid:
        said = iter([9.0, 1.0, 2.0, 4.0])
        measured = StepTimer(parallelize(Sequential([Linear(3, 2)]), grid), Reader(), lambda: next(said))
        measured.start()
        for _ in range(2):
            with measured.step(1):
                pass
        assert measured.reference == [1.5, 3.0] and len(measured.seconds) == 2
