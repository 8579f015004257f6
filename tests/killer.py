"""Kills processes of a supervised training at random moments, and looks what they were doing.

A rank is a process with this training's mark in its environment and a number from the launcher. It is stopped before it is
killed, so that what is found about it is what it was doing when it died.
"""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from gridgrad.parallel.checkpoint.manifest import FOLDER
from gridgrad.parallel.checkpoint.manifest import NAME as MANIFEST
from gridgrad.parallel.job.own_process import LIBRARIES, SHARED_MEMORY

TRAINING = "GRIDGRAD_KILLS"  # the environment variable with the mark of one supervised training
RANKS = "PMI_RANK", "OMPI_COMM_WORLD_RANK"
LAUNCHER = 0.1  # of the kills hit mpiexec
KINDS = {"starting": 0.3, "reading": 0.15, "writing": 0.35, "later": 0.2}  # when kills come: with which chance
PAUSES = {"starting": 3.0, "reading": 0.004, "writing": 0.012, "later": 1.0}  # seconds at most from that moment to the kill
IMPORTS = 0.5  # seconds in which no rank reads a checkpoint yet
PATIENCE = 60.0  # seconds for what a kill waits for


class Killer:
    """Kills ranks, or now and then the launcher, of the training with a mark. folder: of its checkpoints.

    kills: {what was going on: how many}. left: how many checkpoints were half written when their job was gone. segments: the
    shared-memory files that the ranks had.
    """

    def __init__(self, mark, folder, random):
        self.mark, self.folder, self.random = f"{TRAINING}={mark}", folder, random
        self.kills, self.left, self.segments = {}, 0, set()
        self._seen, self._given_up = set(), set()  # ranks, and checkpoints without a manifest, of earlier jobs

    def kill_one(self, goes_on):
        """Wait for a random moment and kill a process. goes_on: whether the training does. Returns whether one was killed."""
        if not self._wait(lambda: self._ranks() - self._seen, goes_on, 0.05):
            return False
        kind, before = self.random.choices(list(KINDS), list(KINDS.values()))[0], self._whole()
        if not self._moment(kind, before, goes_on):
            return False
        time.sleep(self.random.uniform(0, PAUSES[kind]))
        ranks = sorted(self._ranks())
        self.segments |= {path for rank in ranks for path in segments_of(rank)}
        others = [] if self.random.random() > LAUNCHER else launchers(processes_with(self.mark))
        if not ranks or not goes_on():
            return False
        victim = self.random.choice(others or ranks)
        try:
            os.kill(victim, signal.SIGSTOP)
            doing = f"{'mpiexec' if others else 'a rank'} {self._doing(ranks, before)}"
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.kills[doing] = self.kills.get(doing, 0) + 1
        self._seen |= set(ranks) | self._ranks()
        self._wait(lambda: not self._seen & processes_with(self.mark).keys(), lambda: True, 0.05)
        left = self._half()
        self.left += len(left)
        self._given_up |= left
        return True

    def _moment(self, kind, before, goes_on):
        """Wait for the moment of a kind of kill; whether it comes. before: the checkpoints when the ranks were seen first."""
        newer = lambda: self._whole() - before  # noqa: E731
        if kind == "starting":
            return True
        if kind == "reading" and before:
            time.sleep(IMPORTS)
            ranks = self._ranks()
            return self._wait(lambda: files_of(ranks, self.folder) or newer(), goes_on)
        return self._wait(self._half if kind == "writing" else newer, goes_on)

    def _wait(self, condition, goes_on, nap=0.001):
        """Whether a condition comes true while the training goes on. nap: seconds between two looks."""
        deadline = time.monotonic() + PATIENCE
        while goes_on() and time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(nap)
        return False

    def _doing(self, ranks, before):
        """What ranks do: a phrase."""
        if open_files := files_of(ranks, self.folder):
            return "while files are written" if open_files & self._half() else "while a checkpoint is read"
        if self._half():
            return "while a checkpoint is completed"
        return "between checkpoints" if self._whole() - before or self._begun(ranks[0]) else "before the first checkpoint"

    def _begun(self, rank):
        """Whether a job has made a checkpoint already."""
        with suppress(OSError):
            started = Path(f"/proc/{rank}").stat().st_mtime
            return any(path.stat().st_mtime > started for path in self.folder.glob(f"*/{MANIFEST}"))
        return False

    def _whole(self):
        return whole_in(self.folder)

    def _half(self):
        """The names of the folders of checkpoints that are being written."""
        return half_written_in(self.folder) - self._given_up

    def _ranks(self):
        """The ids of the ranks."""
        return {pid for pid, environment in processes_with(self.mark).items()
                if any(variable.partition("=")[0] in RANKS for variable in environment)}  # fmt: skip

    def remains(self):
        """What is left of the training when it has ended: processes and shared-memory files."""
        return sorted(processes_with(self.mark)), sorted(path for path in self.segments if path.exists())


def whole_in(folder):
    """The names of the folders of checkpoints that have a manifest."""
    return {path.parent.name for path in folder.glob(f"{FOLDER}*/{MANIFEST}")}


def half_written_in(folder):
    """The names of the folders of checkpoints without a manifest. One that gets its manifest meanwhile is not among them."""
    return {path.name for path in folder.glob(f"{FOLDER}*")} - whole_in(folder)


def processes_with(variable):
    """{id: environment} of the processes that have this environment variable, NAME=VALUE."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            if variable in environment:
                found[int(entry.name)] = environment
    return found


def launchers(processes):
    """The ids of those processes that are mpiexec."""
    found = []
    for pid in processes:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [pid] * (os.path.basename(words[0]) in (b"mpiexec", b"mpiexec.hydra", b"mpirun", b"prterun"))
    return found


def segments_of(rank):
    """The shared-memory files that a rank maps: a set of paths."""
    with suppress(OSError):
        found = re.findall(rf"{SHARED_MEMORY}/\S+$", Path(f"/proc/{rank}/maps").read_text(), re.MULTILINE)
        return {Path(name) for name in found}
    return set()


def orphaned_segments(since):
    """MPI's shared-memory files that changed after the time `since`, and that no process maps: a set of paths."""
    found = {path for path in SHARED_MEMORY.iterdir() if path.name.startswith(LIBRARIES) and changed(path) >= since}
    return found.difference(*(segments_of(entry.name) for entry in Path("/proc").glob("[0-9]*"))) if found else found


def changed(path):
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def remove_orphaned_segments(since):
    """Delete those that are still orphaned at a second look: a job that just starts has not mapped its own yet."""
    if first := orphaned_segments(since):
        time.sleep(0.3)
        for path in first & orphaned_segments(since):
            path.unlink(missing_ok=True)


def files_of(ranks, folder):
    """The names of the checkpoints of which some ranks have a file open or mapped."""
    found = set()
    for rank in ranks:
        with suppress(OSError):
            links = [os.readlink(entry) for entry in Path(f"/proc/{rank}/fd").iterdir()]
            text = "\n".join(links) + "\n" + Path(f"/proc/{rank}/maps").read_text()
            found |= set(re.findall(rf"{re.escape(str(folder))}/({FOLDER}[\d-]+)/", text))
    return found
