"""What a disk may do to checkpoints: it is full, files and folders disappear or end early. Nothing that is whole is lost.

A limit of the size of files stands for a full disk: the same calls fail.
"""

import os
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gridgrad.nn import SGD, Linear, Sequential, Tanh
from gridgrad.nn.files.whole_files import MARK
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.checkpoint import manifest
from gridgrad.parallel.checkpoint.manifest import NAME, found_in
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.job.run import UserError, on_root
from tests.disk import files_end_at
from tests.mpi import mpi
from tests.parallel.checkpoint.training import Training, folder, minibatches

PAGE = 4096
BATCHES = minibatches(6, (20,))


@contextmanager
def training_with(comm, directory):
    """(a Training, its Saver, [line about what went wrong, ..]), with a whole checkpoint after one step. Collective."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        serial = Sequential([Linear(20, 90), Tanh(), Linear(90, 3)], seed=3, dtype="float64", input_shape=(20,))
        training, lines = Training(grid, serial, partial(SGD, lr=0.05, momentum=0.9)).train(BATCHES[:1]), []
        saver = Saver(comm, training.net, training.participants, directory, say=lines.append)
        saver.save(1)
        saver.complete()
        yield training, saver, lines
        saver.close()


def content_of(directory):
    """{path: content} of all files in a folder."""
    return {path: path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}


@mpi(1)
def test_a_full_disk_costs_one_checkpoint_and_is_said_in_a_line(comm):
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        before, size = content_of(directory), (Path(directory) / "step-000000001" / "rank-0000.h5").stat().st_size
        for step, limit in enumerate((0, 100, *range(PAGE, size, PAGE), size - 1), 2):
            with files_end_at(limit):
                saver.save(step)
                with pytest.raises(UserError) as caught:
                    saver.complete()
            path = Path(directory) / f"step-{step:09d}" / "rank-0000.h5"
            words = f"the checkpoint after step {step} can not be written: {path}: File too large"
            assert str(caught.value) == words and content_of(directory) == before
            assert lines[step - 2 :] == [f"warning: {words}; training goes on, and earlier checkpoints are as they were"]
        saver.save(100)
        saver.complete()
        assert newest(comm, directory).manifest.step == 100


SABOTAGE = {  # what is done to the folder of a checkpoint before it is complete
    "folder": shutil.rmtree,
    "file": lambda path: (path / "rank-0001.h5").unlink(),
    "short": lambda path: os.truncate(path / "rank-0001.h5", PAGE),
    "manifest": lambda path: (path / f"{NAME}.new").mkdir(),
}


@mpi(2)
def test_what_disappears_before_a_checkpoint_is_complete_costs_that_one(comm):
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        before = on_root(comm, lambda: content_of(directory))
        for step, (name, action) in enumerate(SABOTAGE.items(), 2):
            saver.save(step)
            saver._writing.thread.join()
            comm.Barrier()
            on_root(comm, partial(action, Path(directory) / f"step-{step:09d}"))
            with pytest.raises(UserError, match=f"the checkpoint after step {step} can not be written: .*step-{step:09d}"):
                saver.complete()
            assert on_root(comm, lambda: content_of(directory)) == before, name
        saver.save(100)
        saver.complete()
        assert newest(comm, directory).manifest.step == 100


@mpi(2)
def test_a_folder_that_can_not_be_made_costs_a_checkpoint(comm):
    with folder(comm) as parent:
        directory = Path(parent) / "checkpoints"
        with training_with(comm, directory) as (training, saver, lines):
            on_root(comm, lambda: (directory.rename(f"{directory}-moved"), directory.write_text("in the way")))
            saver.save(2)
            with pytest.raises(
                UserError, match="after step 2 can not be written: .*checkpoints.*: (File exists|Not a directory)"
            ):
                saver.complete()
            on_root(comm, lambda: (directory.unlink(), Path(f"{directory}-moved").rename(directory)))
            assert newest(comm, directory).manifest.step == 1


@mpi(1)
def test_a_checkpoint_that_ends_early_anywhere_is_passed_over_for_the_one_before(comm):
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        saver.save(2)
        saver.complete()
        kept, cut = content_of(Path(directory) / "step-000000001"), content_of(Path(directory) / "step-000000002")
        assert {path.name for path in cut} == {NAME, "rank-0000.h5"}
        ends = [(path, end) for path, content in cut.items() for end in range(0, len(content), PAGE)]
        ends += [(path, len(content) - 2) for path, content in cut.items()]
        assert len(ends) > 12
        for path, end in [*ends, *((path, None) for path in cut)]:
            content = path.read_bytes()
            os.truncate(path, end) if end is not None else path.unlink()
            said = []
            assert newest(comm, directory, said.append).manifest.step == 1
            passed_over = [f"passed over: {path}"] if path.name == NAME else [f"passed over, since damaged: {path}"]
            if path.name != NAME or end is not None:  # a folder without a manifest was never a checkpoint
                assert [line[: len(words)] for line, words in zip(said, passed_over, strict=True)] == passed_over
            path.write_bytes(content)
        assert newest(comm, directory).manifest.step == 2 and found_in(directory)[1] == {}
        assert content_of(Path(directory) / "step-000000001") == kept


@mpi(2)
def test_a_checkpoint_that_can_not_be_read_is_no_damaged_one_and_is_kept(comm, monkeypatch):
    """It is passed over for the one before. If there is none, all ranks refuse to begin anew, and nothing is deleted."""
    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        saver.keep = 1
        monkeypatch.setattr(manifest, "prune", lambda *arguments: None)
        saver.save(2)
        saver.complete()
        monkeypatch.undo()
        first, second = (Path(directory) / f"step-00000000{step}" for step in (1, 2))
        if comm.rank == 1:  # which reads the second file
            read = manifest.Manifest.damage
            monkeypatch.setattr(manifest.Manifest, "damage", lambda one, entry: hiccup(one, entry, read, second))
        said, path = [], second / "rank-0001.h5"
        found = newest(comm, directory, said.append)
        assert found.manifest.step == 1 and found.passed_over == {second}
        assert said == [f"passed over, since unreadable: {path}: Input/output error"]
        saver.has(1, found.passed_over)
        for step in (3, 4):
            saver.save(step)
            saver.complete()
        comm.Barrier()
        assert sorted(path.name for path in Path(directory).glob("step-*")) == [second.name, "step-000000004"]
        comm.Barrier()
        if comm.rank == 0:
            (Path(directory) / "step-000000004" / NAME).write_text("{}")
        before = on_root(comm, lambda: content_of(directory))
        with pytest.raises(
            UserError, match="no checkpoint in .* can be used .*: mend what hinders reading, or begin in another"
        ):
            newest(comm, directory)
        assert on_root(comm, lambda: content_of(directory)) == before


@mpi(2)
def test_a_folder_that_another_job_has_is_refused_on_all_ranks(comm, monkeypatch):
    def held(*arguments):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with folder(comm) as directory, training_with(comm, directory) as (training, saver, lines):
        on_root(comm, lambda: (Path(directory) / manifest.LOCK).write_bytes(MARK + b"process 3 of Slurm job 7 on n1\n"))
        monkeypatch.setattr("fcntl.lockf", held)
        with pytest.raises(
            UserError, match=rf"{directory} has .*that runs \(process 3 of Slurm job 7 on n1\): wait for its end"
        ):
            Saver(training.grid.comm, training.net, training.participants, directory)


def hiccup(one, entry, read, folder):
    if one.folder == folder:
        raise OSError(5, "Input/output error", str(folder / entry["name"]))
    return read(one, entry)
