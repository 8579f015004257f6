"""When checkpoints are made, and what a disk may do to them: nothing that is whole is lost, and each trouble is said in a line.

A limit of the size of files stands for a full disk: the same calls fail.
"""

import os
import signal
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import SGD, Linear, Sequential, Tanh
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.checkpoint import manifest
from gridgrad.parallel.checkpoint import saver as saver_module
from gridgrad.parallel.checkpoint.manifest import NAME, found_in
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Agreement, Saver, Signals
from gridgrad.parallel.checkpoint.shard_file import write_shard
from gridgrad.parallel.job.run import UserError, on_root
from tests.disk import files_end_at
from tests.mpi import mpi
from tests.parallel.checkpoint.training import Training, folder, minibatches

PAGE = 4096
BATCHES = minibatches(6, (20,))


@contextmanager
def training_with(comm, directory, **options):
    """(a Training that has done a step, its Saver, [line about what went wrong, ..]). options: of the Saver. Collective."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        serial = Sequential([Linear(20, 90), Tanh(), Linear(90, 3)], seed=3, dtype="float64", input_shape=(20,))
        training, lines = Training(grid, serial, partial(SGD, lr=0.05, momentum=0.9)).train(BATCHES[:1]), []
        saver = Saver(comm, training.net, training.participants, directory, say=lines.append, **options)
        yield training, saver, lines
        saver.close()


def save(saver, step):
    """Write a whole checkpoint. Collective."""
    saver.save(step)
    saver.complete()


def content_of(directory):
    """{path: content} of all files in a folder."""
    return {path: path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}


def path_of(directory, step, name=""):
    return Path(directory) / f"step-{step:09d}" / name


# ----- when


@mpi(1, 2, 5)
def test_ranks_agree_one_call_later_and_one_rank_at_once(comm):
    agreement, own = Agreement(comm), np.array([comm.rank, -comm.rank, 7])
    if comm.size == 1:
        assert agreement.next(own).tolist() == [0, 0, 7]
    else:
        assert agreement.next(own).tolist() == [0, 0, 0]
        assert agreement.next(own * 2).tolist() == [comm.size - 1, 0, 7]
        assert agreement.next(own * 0).tolist() == [2 * (comm.size - 1), 0, 14]
        assert agreement.close().tolist() == [0, 0, 0]
    assert agreement.close() is None


@mpi(1, 3)
def test_checkpoints_come_every_so_many_steps_and_the_best_stays(comm):
    values = iter([0.5, 0.1, 0.4, 0.3, 0.2, 0.6])
    with folder(comm) as directory:
        with training_with(comm, directory, steps=2, keep=2, value=lambda: next(values)) as (training, saver, _):
            for step in range(12):
                saver.boundary(step)
            save(saver, 12)
            save(saver, 12)  # it has been
            assert (saver.saved, saver.written) == (6, 6) and saver.seconds > 0
        comm.Barrier()
        found, passed_over = found_in(directory)
        assert [(one.step, one.value) for one in found] == [(12, 0.6), (10, 0.2), (4, 0.1)] and not passed_over
        assert sorted(path.name for path in Path(directory).glob("step-*")) == [one.folder.name for one in reversed(found)]


@mpi(1, 2)
def test_a_checkpoint_that_is_due_by_time_is_made_once(comm, monkeypatch):
    """The clock of the first rank counts; all ranks hear of it one step later. That nobody waits is in `tests/orders`."""
    now, made, late = [0.0], [], int(comm.size > 1)
    monkeypatch.setattr(saver_module.time, "monotonic", lambda: now[0] if comm.rank == 0 else 0.0)
    with folder(comm) as directory, training_with(comm, directory, minutes=2) as (training, saver, _):
        for step in range(6):
            now[0] = 60.0 * min(step, 3)
            saver.boundary(step)
            made.append(saver.saved)
    assert made == [int(step >= 2 + late) for step in range(6)]


@mpi(1)
def test_training_does_not_change_what_is_being_written(comm, monkeypatch):
    changed = threading.Event()
    monkeypatch.setattr(saver_module, "write_shard", lambda *arguments: changed.wait(60) and write_shard(*arguments))
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, _):
        before = training.bits()
        saver.save(1)
        training.train(BATCHES)
        changed.set()
        saver.complete()
        assert training.bits() != before == training.resume(directory).bits()


# ----- signals


@pytest.fixture(params=[signal.SIGTERM, signal.SIGUSR1])
def number(request):
    """That of a signal of which a test may change the handler."""
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_both_signals_are_heard_while_somebody_listens(number):
    noted, signals = [], Signals()  # by the handler that was there before
    signal.signal(number, lambda number, frame: noted.append(number))
    signals.listen()
    signal.raise_signal(number)
    assert signals.heard and not noted
    signals.listen_no_more()
    signal.raise_signal(number)
    assert noted == [number]
    signals.listen()
    signals.nothing_left()  # to save: a warning means nothing then
    signal.raise_signal(number)
    assert noted == [number, *[number] * (number == signal.SIGTERM)]


# ----- trouble while one is written


@mpi(1)
def test_a_full_disk_costs_one_checkpoint_and_is_said_in_a_line(comm):
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        save(saver, 1)
        before, size = content_of(directory), path_of(directory, 1, "rank-0000.h5").stat().st_size
        for step, limit in enumerate((0, 100, *range(PAGE, size, 2 * PAGE), size - 1), 2):
            with files_end_at(limit), pytest.raises(UserError) as caught:
                save(saver, step)
            path = path_of(directory, step, "rank-0000.h5")
            words = f"the checkpoint after step {step} can not be written: {path}: File too large"
            assert str(caught.value) == words and content_of(directory) == before
            assert lines[step - 2 :] == [f"warning: {words}; training goes on, and earlier checkpoints are as they were"]
        save(saver, 100)
        assert newest(comm, directory).manifest.step == 100


@mpi(2)
def test_what_goes_wrong_on_one_rank_costs_that_checkpoint_on_all(comm, monkeypatch):
    def fail(error):
        raise error

    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        save(saver, 1)
        before = on_root(comm, lambda: content_of(directory))
        saver.save(2)
        saver._writing.thread.join()
        comm.Barrier()
        on_root(comm, lambda: os.truncate(path_of(directory, 2, "rank-0001.h5"), PAGE))
        with pytest.raises(UserError, match="the checkpoint after step 2 can not be written: .*step-000000002"):
            saver.complete()
        with monkeypatch.context() as patch:
            if comm.rank == 1:
                patch.setattr(saver_module, "write_shard", lambda *arguments: fail(MemoryError("no room")))
            with pytest.raises(UserError, match="after step 3 can not be written: .*no room"):
                save(saver, 3)
        assert on_root(comm, lambda: content_of(directory)) == before
        monkeypatch.setattr(manifest, "prune", lambda *arguments: fail(PermissionError(13, "Permission denied", "others")))
        save(saver, 4)  # trouble with older ones does not cost the new one
        assert newest(comm, directory).manifest.step == 4
        assert lines[-1:] == ["warning: older checkpoints can not be deleted: others: Permission denied"] * (comm.rank == 0)


# ----- trouble while one is read


@mpi(2)
def test_a_checkpoint_that_ends_early_anywhere_is_passed_over_for_the_one_before(comm):
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, _):
        for step in (1, 2):
            save(saver, step)
        for path, content in comm.bcast(on_root(comm, lambda: content_of(path_of(directory, 2)))).items():
            for end in (0, len(content) // 2, len(content) - 2):
                comm.Barrier()
                on_root(comm, lambda: os.truncate(path, end))  # noqa: B023
                said = []
                assert newest(comm, directory, said.append).manifest.step == 1
                words = "passed over" if path.name == NAME else "passed over, since damaged"
                assert len(said) == 1 and said[0].startswith(f"{words}: {path}") and "\n" not in said[0]
                comm.Barrier()
                on_root(comm, lambda: path.write_bytes(content))  # noqa: B023
        assert newest(comm, directory).manifest.step == 2


@mpi(2)
def test_a_checkpoint_that_can_not_be_read_is_kept_and_without_another_one_nothing_begins_anew(comm, monkeypatch):
    with folder(comm) as directory, training_with(comm, directory, keep=1) as (training, saver, _):
        save(saver, 2)
        broken, read, said = path_of(directory, 2), manifest.Manifest.damage, []

        def hiccup(one, entry):
            if one.folder == broken and comm.rank == 1:  # which reads the second file
                raise OSError(5, "Input/output error", str(broken / entry["name"]))
            return read(one, entry)

        monkeypatch.setattr(manifest.Manifest, "damage", hiccup)
        with pytest.raises(UserError, match="no checkpoint in .* can be used .*: mend what hinders reading"):
            newest(comm, directory, said.append)
        assert said == [f"passed over, since unreadable: {broken / 'rank-0001.h5'}: Input/output error"]
        saver.has(1, {broken})
        for step in (3, 4):
            save(saver, step)
        assert newest(comm, directory).manifest.step == 4
        comm.Barrier()
        assert sorted(path.name for path in Path(directory).glob("step-*")) == [broken.name, "step-000000004"]
