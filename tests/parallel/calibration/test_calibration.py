"""A calibration, and the quick probe in its place, give whole machine files in however little time; ranks end together."""

import io
import json
import sys
from contextlib import redirect_stderr

import numpy as np
import pytest

from gridgrad.experiments import calibrate
from gridgrad.parallel.calibration import measure, this_machine, timing
from gridgrad.parallel.calibration.timing import TimeLimit, slowest_in_turns
from gridgrad.parallel.prediction import machine
from tests.clock import Clock
from tests.mpi import mpi

SHORT = {"SAMPLE": 1e-6, "RUNS": 1, "PASSES": 1, "ELEMENTS": [128, 4096], "LENGTHS": [2, 64], "LONGEST": 128,
         "LINEAR": ([1, 4], [8, 16], [8, 16]), "CONVOLUTION": ([1, 2], [16], [1, 3], [8]),
         "STEPS": 1, "STEP_ROUNDS": 1, "STEP_PASSES": 2, "CASES": measure.CASES[:1]}  # fmt: skip


def shorten(monkeypatch):
    """For this test, in which the numbers that are found do not matter."""
    for name, value in SHORT.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(this_machine, "PROBE_SECONDS", -1.0)


@mpi(1, 3)
def test_the_budget_bounds_the_turns_and_the_ranks_agree(comm, monkeypatch):
    """However fast the clocks of the other ranks go, and however long the trials take."""
    for seconds, times in ((0.25, 10), (1.0, 3), (7.0, 1)):
        clock = Clock()
        monkeypatch.setattr(timing, "time", clock)

        def trial():
            clock.sleep(seconds * (1 + comm.rank))  # noqa: B023
            return float(comm.rank)

        found = slowest_in_turns(comm, [trial], TimeLimit(comm, 2.4))
        assert found.shape == (times, 1) and (found == comm.size - 1).all()
        assert comm.bcast(clock.now) == seconds * times <= 2.4 + seconds
        assert len(slowest_in_turns(comm, [trial, trial], most=4)) == 4


def test_gaps_are_filled_in_proportion_to_the_nearest_sizes():
    nan = np.nan
    table = {"axes": [[1, 10], [4, 8, 64]], "seconds": np.array([[1.0, nan, nan], [nan, nan, 160.0]])}
    assert np.allclose(measure.completed(table)["seconds"], [[1.0, 2.0, 16.0], [10.0, 20.0, 160.0]], rtol=1e-12)


@mpi(1, 2)
def test_what_is_measured_is_a_whole_machine_file(comm, monkeypatch):
    content = comm.bcast(this_machine.measure_thoroughly(comm, limit=TimeLimit(comm, -1.0)))  # no time at all
    machine.checked(content)
    assert not content["tables"]
    for kind in content["collectives"]:  # the lengths that are always measured
        assert len(content["collectives"][kind]["2"]) >= 2
    shorten(monkeypatch)
    described = machine.checked(comm.bcast(this_machine.measure_thoroughly(comm)))
    assert described.operation_seconds("linear.forward", (4, 16, 16), 1.0, 0, 0, 4, 1) > 0
    assert {"conv3.backward", "tanh.backward", "update", "loss", "copy.forward"} <= set(described.tables)
    assert described.peak >= described.core["flops"]


@mpi(1, 2)
def test_a_stored_probe_is_used_until_a_calibration_takes_its_place(comm, monkeypatch):
    path, said = comm.bcast(this_machine.machine_file(comm)), io.StringIO()
    if comm.rank == 0:
        path.unlink(missing_ok=True)
    comm.Barrier()
    shorten(monkeypatch)
    with redirect_stderr(said):
        first = this_machine.machine_of_job(comm)
    comm.Barrier()  # rank 0 has stored it
    assert first.uncertainty and path.is_file() and first.node["ranks"] == comm.size
    assert said.getvalue().count("\n") == said.getvalue().count("gridgrad calibrate") == (comm.rank == 0)
    with monkeypatch.context() as patched:
        patched.setattr(this_machine, "measure_quickly", lambda comm: pytest.fail("it is measured again"))
        assert this_machine.machine_of_job(comm).core == first.core
    monkeypatch.setattr(sys, "argv", ["calibrate", "--busy"])
    calibrate.main()
    comm.Barrier()
    found = this_machine.machine_of_job(comm)
    assert found.core["step"] > 0 and found.core["wait"] > 0  # what steps take beyond their parts
    assert not found.uncertainty and found.tables and found.core == json.loads(path.read_text())["core"]
    comm.Barrier()
    if comm.rank == 0:
        path.unlink()
