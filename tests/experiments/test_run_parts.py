"""The parts of a run: times, files that were written, and a training in a script of one's own."""

import shutil
import tempfile

import numpy as np
import pytest

from gridgrad.datasets.part import Part
from gridgrad.experiments.run_parts import Checkpoints, Run, RunPart, Times
from gridgrad.nn import MSE, SGD, Linear, Sequential
from gridgrad.parallel import READERS, ProcessGrid, parallelize
from gridgrad.parallel.job.run import UserError
from tests.mpi import mpi


def run_of(grid, *parts, steps=9, **options):
    """A Run on a small regression, in float64, with epochs of 4 steps."""
    net = parallelize(Sequential([Linear(3, 2)], dtype=np.float64), grid, reduction="overlap:1")
    x, y = np.random.default_rng(0).standard_normal((40, 3)), np.zeros((40, 2))
    part = Part(x, y, 0.0, 1.0, y_mean=np.zeros(2), y_std=np.ones(2), dtype=np.float64)
    return Run(net, MSE(), SGD(net, lr=0.1), READERS["each"](net, part), steps, 4, parts, **options)


class Told(RunPart):
    """Notes what it is told."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def start(self):
        self.calls.append(f"{self.name} start")

    def before_step(self, step):
        self.calls.append(f"{self.name} before {step}")

    def after_step(self, step, samples):
        self.calls.append(f"{self.name} after {step}, {samples}")

    def after_epoch(self, epoch, values):
        self.calls.append(f"{self.name} epoch {epoch}")
        values[self.name] = 1.0

    def after(self):
        self.calls.append(f"{self.name} end")

    def report(self):
        return {self.name: len(self.calls)}


@mpi(1, 2)
def test_parts_lie_around_each_other(comm):
    calls = []
    with ProcessGrid(comm, batch=comm.size) as grid:
        run = run_of(grid, Told("a", calls), Told("b", calls), steps=5)
        run.begin()
        for _ in range(5):
            run.step(np.arange(7))
        run.after()
        assert len(run.losses) == 5 and run.losses[-1] < run.losses[0] and run.report().keys() == {"a", "b"}
    assert calls[:6] == ["a start", "b start", "a before 0", "b before 0", "b after 0, 7", "a after 0, 7"]
    assert [call for call in calls if "epoch" in call] == ["b epoch 1", "a epoch 1", "b epoch 2", "a epoch 2"]
    assert calls[-2:] == ["b end", "a end"]


@mpi(1, 2)
def test_steps_behind_the_first_ones_are_measured(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        run = run_of(grid, times := Times())
        grid.world.all_reduce(np.ones(3), "before")
        run.begin()
        assert not grid.tally.records
        for step in range(9):
            run.step(np.arange(5), samples=6)
            if step == 3:
                watch = times.watch
        run.after()
        assert len(times.seconds) == 4 and min(times.seconds) > 0 and times.reference == []
        assert times.watch is not watch, "the machine is watched anew"
        assert {key[0] for key in grid.tally.records} == ({"gradients", "loss"} if comm.size > 1 else set())
        found = run.report()
        assert (found["timed_steps"], found["samples_per_step"], found["core"]) == (4, 6, None) if comm.rank == 0 else not found


@mpi(1)
def test_the_speed_of_the_core_around_each_step_is_the_mean_of_before_and_after(comm):
    with ProcessGrid(comm) as grid:
        times, said = Times(core_speed=True), iter([7.0, 9.0, 1.0, 2.0, 4.0])
        times.probe = lambda: next(said)
        run = run_of(grid, times, steps=3)
        run.begin()
        run.begun = 2  # so that no step is for warming up
        for _ in range(2):
            run.step(np.arange(5))
            run.number = 1
        assert times.reference == [5.0, 1.5]


@mpi(1, 2)
def test_what_could_not_be_written_is_raised_at_the_end_and_not_named(comm):
    folder, heard = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None), []
    with ProcessGrid(comm, batch=comm.size) as grid:
        for failure in (None, UserError("the disk is full")):
            run = run_of(grid, Checkpoints(folder, folder), say=heard.append)
            run.begin()
            run.after()
            run.written, run.failure = {"report": "r.json"}, failure
            if failure:
                with pytest.raises(UserError, match="the disk is full"):
                    run.close()
            else:
                run.close()
    lines = [line for line in heard if line.startswith("written")]
    assert lines == [f"written: report r.json, checkpoint {folder}; to go on: --resume {folder} and more steps",
                     "written: report r.json"]  # fmt: skip
    comm.Barrier()
    shutil.rmtree(folder, ignore_errors=True)
