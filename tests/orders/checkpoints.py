"""The commit of checkpoints in all orders of what ranks and their writing threads do, with a kill at every moment.

The files are real ones. Whatever changes them, such as a write, a rename or a deletion, is an event of its own, so that a kill
can come before it.
"""

import json
import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from gridgrad.nn import Linear, Sequential
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.checkpoint import manifest, saver, shard_file
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState
from gridgrad.parallel.job.run import EndedEarly
from tests.orders.machine import DIE, Pause, Violation
from tests.orders.mpi import Until, World

JOB = "job"  # what a kill ends


class Begun(Pause):
    """Before the first event of a thread. event: the number of the one that has started it."""

    def __init__(self, event):
        self.event = event

    def causes(self, action):
        return (self.event,)


@dataclass
class Checkpoints:
    """Ranks that come to some boundaries and make checkpoints.

    size: ranks. boundaries: how many. steps: between two checkpoints. is_mortal: whether the job may be killed. signalled: the
    rank that gets a signal at some moment, or None.
    """

    size: int
    boundaries: int = 6
    steps: int = 3
    is_mortal: bool = False
    signalled: int | None = None

    def execute(self, machine):
        """An execution; returns what it leads to. Raises Violation."""
        self.machine, self.world, self.is_killed, self.heard = machine, World(self.size), False, False
        self.world.begin(machine)
        self.synchronised, self.complete, self.left, self.savers = set(), 0, {}, [None] * self.size
        machine.deaths, machine.missed = (
            self._kills,
            lambda: [((DIE, JOB), ())] if self.is_mortal and not self.is_killed else [],
        )
        for rank in range(self.size):
            machine.add(rank, lambda rank=rank: self.work(rank))
        with tempfile.TemporaryDirectory(prefix="gridgrad-orders-", dir=SHARED) as name, ExitStack() as stack:
            self.directory = Path(name)
            for patch in self.patches():
                stack.enter_context(patch)
            machine.run()
            stack.close()
            return self.judge()

    def patches(self):
        """The system's functions, each with a moment before it at which the job may be killed."""
        yield mock.patch.object(saver.threading, "Thread", self.thread)
        for name in ("fsync", "replace", "pwrite"):
            yield mock.patch.object(os, name, self.on_disk(getattr(os, name)))
        yield mock.patch.object(manifest, "open", self.open, create=True)
        for name in ("unlink", "rmdir", "mkdir"):
            yield mock.patch.object(Path, name, self.on_disk(getattr(Path, name)))

    @contextmanager
    def open(self, path, mode):
        """A file to which a text, or bytes, are written in two halves."""
        with open(path, mode) as file:
            whole = file.write

            def halves(text):
                whole(text[: len(text) // 2])
                file.flush()
                self.moment(f"the middle of {path.name}")
                whole(text[len(text) // 2 :])

            file.write = halves
            yield file

    def moment(self, words):
        """A moment at which the job may be killed."""
        if self.machine.exploring and not self.machine.stopping:
            self.machine.acting.wait(Until(lambda: True, words))
            self.machine.event.reads.add(("life", JOB))
            self.machine.event.words.append(words)

    def on_disk(self, function):
        """A function of the system that is called in an event of its own."""

        def called(*arguments, **keywords):
            self.moment(f"{function.__name__} {arguments[0]}")
            if self.machine.exploring and not self.machine.stopping:
                self.check_synchronised(function.__name__, *arguments)
            return function(*arguments, **keywords)

        return called

    def check_synchronised(self, name, file, *arguments):
        """Violation if a manifest appears before the disk has it and the files that it names, which a power cut could lose."""
        path = Path(os.readlink(f"/proc/self/fd/{file}")) if isinstance(file, int) else Path(file)
        if name == "pwrite":
            self.synchronised.discard(path)
        elif name == "fsync":
            self.synchronised.add(path)
        elif name == "replace":
            named = [path.parent / entry["name"] for entry in json.loads(path.read_text())["files"]]
            if late := [one for one in [*named, path] if one not in self.synchronised]:
                raise Violation(f"a manifest appears before the disk has {late[0].name}")

    def thread(self, target, args):
        return Thread(self, target, args)

    def _kills(self):
        return {(DIE, JOB): self._kill} if self.is_mortal and not self.is_killed and self.machine.exploring else {}

    def _kill(self):
        self.is_killed = True
        self.machine.event.writes.add(("life", JOB))
        self.machine.event.words.append("the job is killed")
        for actor in self.machine.actors.values():
            actor.alive = False

    # ----- the ranks

    def work(self, rank):
        """What a rank does."""
        comm = self.world.comm(rank)
        net = distribute(Sequential([Linear(2, 1)], 1, np.float64, (2,)), ProcessGrid(comm, batch=self.size))
        net.allocate()
        net.params[...] = 0
        participants = {"network": NetworkState(net)}
        own = self.savers[rank] = Saver(
            comm, net, participants, self.directory, steps=self.steps, keep=1, signals=Signals(self, rank)
        )
        if rank == self.signalled:
            self.machine.beside["signal", rank] = lambda: self.signal(rank)
        self.machine.start(rank)
        try:
            for step in range(1, self.boundaries + 1):
                net.params[...] = net.step = step
                own.boundary(step)
                self.note(rank, own.written * self.steps)
            own.close()
            self.note(rank, own.written * self.steps)
        except EndedEarly:
            self.left[rank] = net.step
            self.note(rank, net.step)

    def note(self, rank, step):
        """Note the step of the last checkpoint of which the first rank knows that it is whole."""
        if rank == 0:
            self.complete = step

    def signal(self, rank):
        self.heard = True
        self.machine.event.writes.add(("signal", rank))
        self.machine.event.words.append(f"rank {rank} gets a signal")

    # ----- what must hold

    def words(self, event):
        """What an event was, in lines for people."""
        return [f"it comes to {key}" for key, _ in event.effects]

    def judge(self):
        found, passed_over = manifest.found_in(self.directory)
        if passed_over:
            raise Violation(f"a checkpoint is damaged: {self.short(next(iter(passed_over.values())))}")
        for one in found:
            if len(one.files) != self.size:
                raise Violation(f"the checkpoint of step {one.step} has {len(one.files)} files of {self.size} ranks")
            for entry in one.files:
                if wrong := one.damage(entry):
                    raise Violation(f"the checkpoint of step {one.step} is not whole: {self.short(wrong)}")
                if (shard_file.Shard(one.folder / entry["name"]).array("network/parameters") != one.step).any():
                    raise Violation(f"the checkpoint of step {one.step} has parameters of another step")
        newest = found[0].step if found else 0
        if newest < self.complete:
            raise Violation(f"the checkpoint of step {self.complete} was whole, and now the newest one is of step {newest}")
        if self.is_killed:
            return "killed", newest
        if self.left and self.signalled is None:
            raise Violation(f"ranks leave although there is no signal: {self.left}")
        if self.left and len(self.left) < self.size or len(set(self.left.values())) > 1:
            raise Violation(f"ranks leave after different steps: {self.left}")
        due = self.left.get(0, self.boundaries // self.steps * self.steps)
        names = sorted(path.name for path in self.directory.iterdir() if path.name != manifest.LOCK)
        if newest != due or names != [one.folder.name for one in found]:
            raise Violation(
                f"at the end there are {', '.join(names)}, and the newest checkpoint is of step {newest}, not {due}"
            )
        return "ended", self.left.get(0)

    def short(self, words):
        return words.replace(str(self.directory), "")


SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # faster than a disk


class Thread:
    """Stands for threading.Thread: an actor of its own, beside the rank that starts it."""

    def __init__(self, case, target, args):
        self.case, self.machine, self.target, self.args, self.ended = case, case.machine, target, args, None

    def start(self):
        machine = self.machine
        self.rank = machine.acting
        self.name = f"thread {len([n for n in machine.actors if str(n).startswith('thread')])} of rank {self.rank.name}"
        self.place = "thread", self.name
        machine.add(self.name, self.run, Begun(machine.number))

    def run(self):
        self.target(*self.args)
        self.ended = self.machine.number
        self.machine.event.writes.add(self.place)

    def is_alive(self):
        self.machine.event.observe(self.place, self.ended is None)
        return self.ended is None

    def join(self):
        self.rank.wait(Until(lambda: self.ended is not None, f"the end of {self.name}", lambda: (self.ended,)))


class Signals:
    """Stands for the signals of a rank."""

    def __init__(self, case, rank):
        self.case, self.rank = case, rank

    @property
    def heard(self):
        if self.rank != self.case.signalled or self.case.machine.event is None:
            return False
        self.case.machine.event.observe(("signal", self.rank), self.case.heard)
        return self.case.heard
