"""Writing checkpoints while training goes on.

At a *boundary*, between two steps, the ranks decide together whether to make a checkpoint. If so, each rank copies what it
writes, and a thread brings the copy to the disk while training goes on. When all threads are done, which the ranks find out at
a later boundary, the first rank writes the manifest: now the checkpoint is whole, and older ones may go.

The ranks agree by an all-reduce that is completed when they agree next, so that nobody waits for it. On several ranks a signal,
or the clock of the first rank, therefore takes effect one boundary later. What they agree on at the first boundary after a
checkpoint was begun is older than it, and does not say whether it is under way.
"""

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from gridgrad.nn.device import to_host, xp
from gridgrad.nn.files.whole_files import number_of
from gridgrad.parallel.checkpoint import manifest
from gridgrad.parallel.checkpoint.manifest import Manifest
from gridgrad.parallel.checkpoint.pieces import Piece, pieces_of, position_in, written_slices
from gridgrad.parallel.checkpoint.shard_file import file_of, table_of, write_shard
from gridgrad.parallel.job.run import EndedEarly, UserError, on_root, one_line
from gridgrad.parallel.job.waiting import broadcast, meet

MINUTES = 15.0  # between two checkpoints where nothing else was said


class Signals:
    """Notes SIGTERM, and SIGUSR1, which Slurm can send before the time limit. `heard`: whether one has come.
    They ask a training for a checkpoint and an end; while nobody listens they end the process at once."""

    def __init__(self):
        self.heard, self._before = False, {}

    def listen(self):
        """Note these signals from now on."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._hear)

    def listen_no_more(self):
        """They mean again what they meant before `listen`."""
        while self._before:
            signal.signal(*self._before.popitem())

    def nothing_left(self):
        """There is nothing left to save: SIGTERM ends the process again, and SIGUSR1, which only warns, means nothing."""
        if self._before:
            self.listen_no_more()
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def _hear(self, number, frame):
        self.heard = True


class Saver:
    """Makes checkpoints of {name: participant}, those of `state.py` or alike, between steps. Collective over `comm`, all ranks.
    The folder is locked until `close`: UserError, on all ranks, if another training has it."""

    def __init__(
        self,
        comm,
        net,
        participants,
        directory,  # in which each checkpoint gets a folder, on a file system that all ranks see
        workers=MPI.COMM_SELF,
        steps=None,  # between two checkpoints
        minutes=None,
        keep=3,  # how many of the last ones to keep, beside the best one
        every=1,  # the ranks decide together after every so many steps; so none is ahead of another by much more
        signals=None,  # ask for a checkpoint and an end
        settings=None,  # what a later run wants to know, a dict for JSON
        value=lambda: None,  # called on the first rank: the lowest is the best; None or infinite does not count
        flush=lambda: None,  # called before a state is read
        say=lambda line: None,  # called with a line about what happens
    ):
        self.net, self.participants, self.workers, self.directory = net, participants, workers, Path(directory)
        self.steps, self.minutes, self.keep, self.every = steps, minutes, keep, every
        self.signals, self.settings, self.value, self.flush, self.say = signals or Signals(), settings, value, flush, say
        self.saved, self.written = 0, 0  # how many checkpoints were begun, and how many are whole
        self.seconds = 0.0  # how long training stood still for them
        self._lock, self.comm = on_root(comm, lambda: manifest.lock(self.directory)), comm.Dup()
        if self._lock and self._lock.note:
            self.say(self._lock.note)
        self._agreement = Agreement(self.comm)
        self._last, self._saved_step, self._passed_over = time.monotonic(), None, ()
        self._layout, self._slices, self._copies = None, {}, {}  # what is written, while layouts stay
        self._writing = None
        self._just_begun = False  # whether a checkpoint was begun since the ranks said last what they agree on next

    def has(self, step, passed_over):
        """Note that there is a checkpoint of this step already. passed_over: folders of others, which are left as they are."""
        self._saved_step, self._passed_over = step, passed_over

    def boundary(self, step):
        """Called when `step` steps are complete: makes a checkpoint if it is time to. Collective.
        EndedEarly, on all ranks, after the checkpoint that a signal asked for; UserError if it can not be written."""
        start, before = time.monotonic(), self.seconds
        due = bool(self.steps and step and step % self.steps == 0)
        if step % self.every == 0:
            late = self.comm.rank == 0 and bool(self.minutes) and start - self._last >= 60 * self.minutes
            unfinished = bool(self._writing and self._writing.thread) and self._writing.thread.is_alive()
            signalled, late, unfinished = self._agreement.next([self.signals.heard, late, unfinished])
            outdated, self._just_begun = self._just_begun, False
            if self._writing and not (unfinished or outdated):
                self._complete()
            if signalled:
                self.save(step)
                self._agreement.close()
                self.complete()
                words = f"stopped by a signal after step {step}, with a checkpoint in {self.directory}"
                raise EndedEarly(f"{words}: start again with --resume to go on")
            due = due or (late and not outdated)
        if due:
            self.save(step)
        self.seconds = before + time.monotonic() - start

    def save(self, step):
        """Begin a checkpoint, when `step` steps are complete; that of an earlier step is completed first. Collective."""
        start = time.monotonic()
        if self._writing:
            self._complete()
        self._last, self._just_begun = time.monotonic(), True
        if step != self._saved_step:
            self.flush()
            self._saved_step, self.saved = step, self.saved + 1
            states = {name: participant.state() for name, participant in self.participants.items()}
            pieces, copies = self._copied(states)
            table = table_of(pieces, {name: state.numbers for name, state in states.items()}, self.workers.rank)
            writing = SimpleNamespace(step=step, value=None, folder=None, entry=None, error=None, thread=None)
            if self.comm.rank == 0:
                try:
                    writing.folder = manifest.new_folder(self.directory, step)
                except OSError as caught:
                    writing.error = one_line(caught)
                writing.value = self.value()
            writing.folder, writing.error = broadcast(self.comm, (writing.folder, writing.error))
            if writing.folder:
                arguments = writing, writing.folder / file_of(self.comm.rank), copies, table
                writing.thread = threading.Thread(target=write, args=arguments)
                writing.thread.start()
            self._writing = writing
        self.seconds += time.monotonic() - start

    def complete(self):
        """Wait until the checkpoint that was begun last is whole. Collective. Raises UserError, on all ranks, if that fails."""
        if self._writing and (error := self._complete()):
            raise UserError(error)

    def _complete(self):
        """Complete the checkpoint under way; returns a line about what went wrong, or None. Collective."""
        writing, self._writing = self._writing, None
        if writing.thread:
            writing.thread.join()
        meet(self.comm, "the files of a checkpoint")
        entries = self.comm.gather((writing.entry, writing.error))
        error = broadcast(self.comm, self._commit(writing, *zip(*entries)) if entries else None)
        if error:
            self._saved_step = None  # so that there may be another one of this step
        self.written += not error
        return error

    def _commit(self, writing, files, errors):
        """Write the manifest, on the first rank; returns a line about what went wrong, or None."""
        error = next(filter(None, errors), None)
        try:
            if not error:
                value = writing.value if writing.value is None or np.isfinite(writing.value) else None
                saved, workers = manifest.time_to_save(self.directory), self.workers.size
                Manifest(writing.step, saved, value, workers, [*files], self.settings or {}, writing.folder).write()
        except (OSError, ValueError) as caught:
            error = what_failed(caught, writing.folder)
        if error:
            error = f"the checkpoint after step {writing.step} can not be written: {error}"
            self.say(f"warning: {error}; training goes on, and earlier checkpoints are as they were")
            if writing.folder:
                manifest.remove(writing.folder)
            return error
        try:
            manifest.prune(self.directory, self.keep, self._passed_over)
        except OSError as caught:  # the new one is whole all the same
            self.say(f"warning: older checkpoints can not be deleted: {one_line(caught)}")
        return None

    def close(self):
        """Complete what is under way. Collective. Raises UserError as `complete` does."""
        self._agreement.close()
        try:
            self.complete()
        finally:
            self.comm.Free()
            if self._lock:
                self._lock.release()

    def _copied(self, states):
        """({path: pieces that this rank writes}, {path of a dataset: flat host array}), copies that the next call overwrites.
        Collective where layouts have changed."""
        net, arrays = self.net, arrays_of(self.net, states)
        layout = net.reduction, {path: slices for path, (_, slices) in arrays.items()}
        if layout != self._layout:
            self._layout, self._slices, self._copies = layout, written_slices(net, layout[1]), {}
        pieces = {path: pieces_of(net, written) for path, written in self._slices.items()}
        parts = {path: [array[position_in(slices, where)] for where in self._slices[path]]
                 for path, (array, slices) in arrays.items()}  # fmt: skip
        counted = [number for number, (_, buffer) in enumerate(net.buffers)
                   if buffer.layout.is_counted(net.grid.coordinates) and buffer.size]  # fmt: skip
        for participant, state in states.items():
            for name, buffers in state.buffers.items():
                path = f"{participant}/{name}"
                pieces[path] = [Piece.whole(*net.buffers[number]) for number in counted]
                parts[path] = [buffers[number].reshape(-1) for number in counted]
            parts |= {f"own/{participant}/{name}": [array] for name, array in state.own.items()}
        for path, some in parts.items():
            if path not in self._copies:
                self._copies[path] = np.empty(sum(part.size for part in some), net.dtype)
            start = 0
            for part in some:  # one after the other: a GPU's copies of all at once would take the memory twice
                self._copies[path][start : start + part.size] = to_host(part)
                start += part.size
        logs = {f"logs/{participant}/{name}": np.array(log, np.float64)
                for participant, state in states.items() for name, log in state.logs.items()}  # fmt: skip
        return pieces, self._copies | (logs if net.grid.rank == 0 else {})


class Agreement:
    """Lets ranks agree on the largest of their numbers. comm: for this alone."""

    def __init__(self, comm):
        self.comm, self._request = comm, None

    def next(self, numbers):
        """What the ranks agreed on at the call before this one, at first zeros; begins to agree on `numbers`. Collective.
        One rank alone agrees at once, on the numbers of this call."""
        numbers = np.array(numbers, np.int64)
        if self.comm.size == 1:
            return numbers
        agreed = self.close()
        self._sent, self._found = numbers, np.zeros_like(numbers)
        self._request = self.comm.Iallreduce(self._sent, self._found, MPI.MAX)
        return np.zeros_like(numbers) if agreed is None else agreed

    def close(self):
        """What the ranks agreed on at the last call; None if there was none. Collective."""
        if self._request is None:
            return None
        self._request.Wait()
        self._request = None
        return self._found


def write(writing, path, arrays, table):
    """Write the file of this rank, in a thread, and note its entry in the manifest, or in words what went wrong."""
    try:
        writing.entry = write_shard(path, arrays, table)
    except Exception as error:  # OSError or RuntimeError of h5py where a disk is full; whatever it is must be told
        writing.error = what_failed(error, path)


def what_failed(error, path):
    """The line about an exception from writing. What h5py raises has the system's error only within a long text."""
    number = number_of(error)
    return f"{getattr(error, 'filename', None) or path}: {os.strerror(number)}" if number else one_line(error)


def arrays_of(net, states):
    """{path: (flat array, slices)} of all that belongs to parameters in the states of all participants.
    A term of a sum is an array on those ranks that hold it; on the others it has no slices."""
    found, terms = {}, max(group.size for group, _ in net.reduction.runs)
    for one, state in states.items():
        found |= {f"{one}/{name}": (array, list(slices)) for name, (array, slices) in state.arrays.items()}
        for name, array in state.terms.items():
            for number in range(terms):
                mine = [where for group, where in net.reduction.runs if group.rank == number]
                found[f"{one}/{name}/{number}"] = xp.concatenate([array[:0], *(array[where] for where in mine)]), mine
    return found
