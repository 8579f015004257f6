"""What a calibration says of a busy machine, with loads that are made up, and of too little time."""

import re
import sys

import pytest

from gridgrad.experiments import calibrate
from gridgrad.parallel.calibration import this_machine
from gridgrad.parallel.calibration.timing import TimeLimit
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.prediction import machine
from tests.experiments.common.made_up_load import BUSY, QUIET
from tests.mpi import mpi


def test_a_busy_machine_is_refused_in_one_line():
    for load in (QUIET, None):
        calibrate.refuse_busy(load)
    with pytest.raises(UserError, match="this machine is busy, no file was written: of 2 cores 0.9 were taken") as refusal:
        calibrate.refuse_busy(BUSY)
    assert "\n" not in str(refusal.value) and str(refusal.value).endswith("with --busy")


@mpi(1, 2)
def test_a_calibration_without_enough_time_says_so(comm, monkeypatch):
    monkeypatch.setattr(calibrate, "calibrate_kernels", lambda comm: None)
    source = machine.checked(calibrate.whole(comm, TimeLimit(comm, -1.0))).source
    assert re.search(r"; only 0 of \d{4} sizes of operations were measured: predictions may be far off; there was no", source)


@mpi(1, 2)
def test_what_is_written_of_a_busy_machine(comm, monkeypatch):
    monkeypatch.setattr(this_machine, "PROBE_SECONDS", -1.0)
    path = comm.bcast(this_machine.machine_file(comm)).with_name(f"busy-{comm.size}.json")
    for before, after, option, words in (
        (BUSY, QUIET, [], None),
        (QUIET, BUSY, [], None),
        (BUSY, BUSY, ["--busy"], "; busy, of 2 cores 0.9 were taken by others"),
        (QUIET, QUIET, [], "; of 2 cores 0.02 were taken by others"),
        (None, None, [], "; how busy the machine was is not known"),
    ):
        loads = iter([after] if option else [before, after])
        monkeypatch.setattr(calibrate, "seen_asleep", lambda: None)
        monkeypatch.setattr(calibrate, "load_of_job", lambda comm, seen, loads=loads: next(loads))
        monkeypatch.setattr(sys, "argv", ["calibrate", "--quick", "--out", str(path), *option])
        if words is None:
            with pytest.raises(UserError, match="this machine is busy"):
                calibrate.main()
            assert not path.exists()
        else:
            calibrate.main()
            comm.Barrier()
            assert machine.read(str(path)).source.endswith(words)
            comm.Barrier()
            if comm.rank == 0:
                path.unlink()
        comm.Barrier()
