"""The study of loops beside trainings: what it counts, and that the loops end."""

import os

import pytest

from gridgrad.experiments.launching.start_ranks import Finished
from gridgrad.experiments.studies import machine_load
from gridgrad.experiments.studies.machine_load import loops_beside, rows_of
from gridgrad.parallel.job.run import UserError
from tests.experiments.common.made_up_load import BUSY, QUIET


def test_a_row_for_each_number_of_ranks_and_of_loops():
    measured = [
        {"ranks": ranks, "loops": loops, "seconds": seconds, "load": load.entry()}
        for ranks, loops, seconds, load in [
            (1, 0, 0.010, QUIET), (1, 1, 0.015, BUSY), (1, 0, 0.012, QUIET), (1, 1, 0.018, QUIET), (2, 1, 0.020, BUSY),
        ]
    ]  # fmt: skip
    quiet, busy, other = rows_of(measured)
    assert (quiet["loops beside them"], quiet["times as long"], quiet["marked"]) == (0, "1.00", "0 of 2")
    assert (busy["loops beside them"], busy["times as long"], busy["marked"]) == (1, "1.50", "1 of 2")
    assert busy["cores taken by others"] == "0.46 (0.02 - 0.90)" and busy["by the host"] == "0.00 (0.00 - 0.00)"
    assert (other["ranks"], other["times as long"], other["marked"]) == (2, "", "1 of 1")


def test_the_loops_end_with_their_block(monkeypatch):
    started, popen = [], machine_load.subprocess.Popen

    def start(*arguments, **settings):
        started.append(popen(*arguments, **settings))
        return started[-1]

    monkeypatch.setattr(machine_load.subprocess, "Popen", start)
    with pytest.raises(KeyError), loops_beside(2):
        assert [process.poll() for process in started] == [None, None]
        raise KeyError
    assert all(process.returncode is not None for process in started)
    assert not any(os.path.exists(f"/proc/{process.pid}/exe") for process in started)


def test_a_training_that_fails_and_one_of_which_nothing_is_known_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_load, "mpiexec", lambda *_: Finished(2, "", "train: error: no"))
    with pytest.raises(UserError, match="a training on 3 ranks ended with status 2: train: error: no"):
        machine_load.training(3, 8, tmp_path)
    monkeypatch.setattr(machine_load, "mpiexec", lambda *_: Finished(0, "", ""))
    (tmp_path / "report.json").write_text('{"load": null, "seconds_per_step": {"median": 1.0}}')
    with pytest.raises(UserError, match="does not say how busy it is"):
        machine_load.training(3, 8, tmp_path)
