"""The probe of a machine is bounded by its budget, all ranks end it together, and it is stored until a calibration."""

import io
import json
import sys
from contextlib import redirect_stderr

import numpy as np
import pytest

from gridgrad.experiments import calibrate
from gridgrad.nn.measured import timed
from gridgrad.parallel.calibration import measure, this_machine, timing
from gridgrad.parallel.calibration.timing import TimeLimit, slowest_in_turns
from gridgrad.parallel.prediction import machine
from tests.clock import Clock
from tests.mpi import mpi


@mpi(1, 2, 3)
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


def test_an_action_is_timed_by_the_clock_that_is_given():
    clock = Clock()
    assert timed(lambda: clock.sleep(3), 4, clock.perf_counter)() == 3 and len(clock.naps) == 4


def test_how_uncertain_the_turns_are():
    calm = np.array([[1.0, 2.0], [1.1, 2.1], [9.0, 9.0], [9.0, 9.0]])
    assert this_machine.uncertainty(calm) == 0.5
    assert this_machine.uncertainty(calm * [[1, 1], [1, 1.3], [1, 1], [1, 1.3]]) == 1.0
    assert this_machine.uncertainty(calm * [[1, 1], [9, 1], [1, 1], [9, 1]]) == this_machine.uncertainty(calm[:1]) == 1.0


@mpi(1, 2, 3)
def test_one_turn_is_a_whole_machine_file(comm, monkeypatch):
    monkeypatch.setattr(this_machine, "PROBE_SECONDS", -1.0)
    content = comm.bcast(this_machine.measure_quickly(comm))
    found = machine.checked(content)
    assert found.uncertainty in (this_machine.DISTURBED, this_machine.CROWDED) and content["source"].startswith(
        "measured quickly on"
    )
    assert found.core["flops"] > 0 and not content["tables"] and not content["collectives"]


@mpi(1, 2, 3)
def test_a_stored_probe_is_used_until_a_calibration_takes_its_place(comm, monkeypatch):
    path, said = comm.bcast(this_machine.machine_file(comm)), io.StringIO()
    if comm.rank == 0:
        path.unlink(missing_ok=True)
    comm.Barrier()
    monkeypatch.setattr(this_machine, "PROBE_SECONDS", -1.0)
    with redirect_stderr(said):
        first = this_machine.machine_of_job(comm)
    comm.Barrier()  # rank 0 has stored it
    assert first.uncertainty and path.is_file() and first.node["ranks"] == comm.size
    assert said.getvalue().count("\n") == said.getvalue().count("gridgrad calibrate") == (comm.rank == 0)
    with monkeypatch.context() as patched:
        patched.setattr(this_machine, "measure_quickly", lambda comm: pytest.fail("it is measured again"))
        assert this_machine.machine_of_job(comm).core == first.core
    for name, value in {"SAMPLE": 1e-6, "RUNS": 1, "PASSES": 1, "ELEMENTS": [128], "LENGTHS": [2, 64], "LONGEST": 128}.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(measure, "LINEAR", ([1], [8], [8]))
    monkeypatch.setattr(measure, "CONVOLUTION", ([1], [16], [1], [8]))
    for name in ("STEPS", "STEP_ROUNDS", "STEP_PASSES"):
        monkeypatch.setattr(measure, name, 1)
    monkeypatch.setattr(measure, "CASES", measure.CASES[:1])
    monkeypatch.setattr(sys, "argv", ["calibrate", "--busy"])
    calibrate.main()
    comm.Barrier()
    found = this_machine.machine_of_job(comm)
    assert not found.uncertainty and found.tables and found.core == json.loads(path.read_text())["core"]
    comm.Barrier()
    if comm.rank == 0:
        path.unlink()
