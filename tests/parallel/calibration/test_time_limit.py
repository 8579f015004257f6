"""A calibration that is stopped early still gives a complete machine file, and says how much its times vary."""

import platform

import numpy as np

from gridgrad.experiments.calibrate import variation
from gridgrad.parallel.calibration import measure, this_machine, timing
from gridgrad.parallel.calibration.timing import NormalisedTimer, TimeLimit
from gridgrad.parallel.grid.process_grid import GroupDescription
from gridgrad.parallel.prediction import machine
from tests.clock import Clock
from tests.mpi import mpi


def test_gaps_are_filled_in_proportion_to_the_nearest_sizes():
    nan = np.nan
    table = {"axes": [[1, 10], [4, 8, 64]], "seconds": np.array([[1.0, nan, nan], [nan, nan, 160.0]])}
    expected = [[1.0, 2.0, 16.0], [10.0, 20.0, 160.0]]
    assert np.allclose(measure.completed(table)["seconds"], expected, rtol=1e-12)
    whole = {"axes": [[1, 10]], "seconds": np.array([1.0, 3.0])}
    assert measure.completed(whole)["seconds"] == [1.0, 3.0]


class Alone:
    """A communicator of one rank, without MPI."""

    def bcast(self, value):
        return value


def test_a_limit_ends_and_is_shared(monkeypatch):
    clock = Clock(5.0)
    monkeypatch.setattr(timing, "time", clock)
    assert not TimeLimit(Alone()).is_over() and TimeLimit(Alone(), -1.0).is_over()
    long = TimeLimit(Alone(), 1000.0)
    assert long.share(0.5).end == 505.0
    clock.sleep(200.0)
    half = long.share(0.5)
    assert half.end == 605.0 and not half.is_over()
    clock.sleep(401.0)
    assert half.is_over() and not long.is_over()


def test_the_identifier_of_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "START_ID", tmp_path / "boot_id")
    assert timing.machine() == platform.node()
    (tmp_path / "boot_id").write_text("abc\n")
    assert timing.machine() == "abc"


def test_how_much_times_vary():
    words = variation(np.array([[1.0, 1.0, 1.0], [1.0, 1.25, 6.0]]))
    assert "1.20 times" in words and "at worst 3.67 times" in words
    assert "no time" in variation(np.ones((1, 3)))


@mpi(1, 2)
def test_no_time_at_all_gives_a_whole_machine_file_all_the_same(comm):
    content = comm.bcast(this_machine.measure_thoroughly(comm, limit=TimeLimit(comm, -1.0)))
    described = machine.checked(content)
    assert not content["tables"]
    for kind in content["collectives"]:  # the lengths that are always measured
        assert len(content["collectives"][kind]["2"]) >= 2
    assert described.collective_seconds("all-reduce", GroupDescription(comm.size, 0, comm.size), comm.size, 1000) >= 0
    passes = measure.measured_steps(NormalisedTimer(comm), limit=TimeLimit(comm, -1.0))
    assert passes.shape == (1, len(measure.problems(comm.size))) and (passes > 0).all()


@mpi(2)
def test_what_was_measured_before_the_end_is_kept(comm):
    seen = []

    def some(things):
        for thing in things[:40]:
            seen.append(thing)
            yield thing

    tables, (done, sizes) = measure.tables(NormalisedTimer(comm), some)
    assert len(seen) == done == 40 < sizes and tables
    for name, table in tables.items():
        machine.check_table(name, table)
