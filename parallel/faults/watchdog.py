"""A watchdog: it ends a job in which a rank waits too long in a collective, and says where all ranks are.

A rank that is blocked in MPI can not say anything, so each rank has a thread that looks at its main thread now and then. Of MPI
it calls only the function that ends the job. The threads of a node write what they see into memory that they share, and the
first one that still runs reports for all, also for a process that is stopped.

A rank *waits* while it is in a collective or a receive that the tally counts (`here` of `parallel/job/waiting.py`), or while
the line that its main thread executes calls another function of MPI. How long it has waited is counted in looks, not read from
a clock: a job that the scheduler suspends and resumes as a whole has not waited meanwhile.
"""

import linecache
import os
import platform
import re
import sys
import sysconfig
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.job.run import DRAIN, in_short
from gridgrad.parallel.job.waiting import here
from gridgrad.parallel.sync.shared_memory import NoSharedMemory, shared_arrays

PERIOD = 0.5  # seconds between two looks, at most; a tenth of the limit where that is less
SILENT = 2.0  # seconds, and at least ten looks, after which a thread that has written nothing is taken to be unable to
GRACE = 1.0  # seconds between the report and the end of the job, in which other nodes report too
FORCE = 5.0  # seconds after which a process that could not abort the job ends itself
STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waiting for a disk or a network file system",
          "R": "running, but leaves its other threads no turn", "Z": "dead"}  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
OWN = tuple(f"{ROOT / package}/" for package in ("nn", "parallel", "datasets", "experiments"))
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}) + ("<",)
MPI_METHODS = {name for kind in (MPI.Intracomm, MPI.Request, MPI.Message, MPI.Win, MPI.File) for name in dir(kind)}
SHOWN = 2  # frames of a stack, which say where something is and by what it was called

# What the thread of a rank writes. written: when, on a clock of the node. seconds: for how long nothing has changed.
SLOT = np.dtype([("written", "f8"), ("seconds", "f8"), ("waits", "u1"), ("text", "S500")])


class Watchdog:
    """Ends a job in which a rank waits too long, and says where all ranks are. Making one is collective.

    It watches the ranks of a communicator within a `with` block, or from `start` to `stop`. On one rank it does nothing.

    Parameters
    ----------
    comm : communicator
        An MPI communicator.
    seconds : float
        How long a rank may wait in one collective; longer than a rank that is well ever waits for the slowest other one.
    net : Sequential, optional
        A network whose `step` is reported; the attribute may be set later.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import Watchdog
    >>> with Watchdog(MPI.COMM_WORLD, seconds=300):
    ...     MPI.COMM_WORLD.Barrier()  # training steps
    """

    def __init__(self, comm: MPI.Intracomm, seconds: float, net: Sequential | None = None) -> None:
        self.seconds, self.net, self.period, self._thread = seconds, net, min(PERIOD, seconds / 10), None
        if comm.size == 1:
            return
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        try:
            slots, members = shared_arrays(node, SLOT.itemsize, np.uint8), node.allgather((comm.rank, os.getpid()))
            self.me = node.rank
        except NoSharedMemory:  # then each rank reports itself
            slots, members, self.me = [np.zeros(SLOT.itemsize, np.uint8)], [(comm.rank, os.getpid())], 0
        node.Free()
        self.slots, self.members, self.sees_all = [slot.view(SLOT) for slot in slots], members, len(members) == comm.size
        self._mark, self._still, self._reported, self._looked = None, 0.0, False, time.monotonic()
        self._over = threading.Event()
        self.slots[self.me][0] = time.monotonic(), 0.0, False, b"a place that it was not asked for yet"
        comm.Barrier()  # from here on all slots are filled
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        if self._thread:
            self._thread.start()

    def stop(self) -> None:
        """End watching."""
        if self._thread:
            self._over.set()
            self._thread.join()

    def __enter__(self) -> "Watchdog":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _watch(self):
        while not self._over.wait(self.period):
            self._look()
            now, limit = time.monotonic(), max(SILENT, 10 * self.period)
            states = [WatchState(*member, slot[0].item(), now, limit) for member, slot in zip(self.members, self.slots)]
            if next((at for at, state in enumerate(states) if not state.silent), None) == self.me:
                self._judge(states)

    def _look(self):
        """Write where the main thread is."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * self.period), now
        inside, frame = here.calls[-1:], sys._current_frames().get(threading.main_thread().ident)
        method = mpi_call(frame) if not inside and frame is not None else None
        mark = here.entered, inside, (id(frame), frame.f_lasti) if method else None
        self._still = self._still + passed if mark == self._mark else 0.0
        self._mark = mark
        if inside:
            where = f"{inside[0].kind} of '{inside[0].layer}', group of {in_words(inside[0].group.ranks)}"
        else:
            where = f"MPI's {method}, {place(frame)}" if method else place(frame)
        step = f", step {self.net.step}" if self.net is not None else ""
        words = f"{where}{step}".encode()
        self.slots[self.me][0] = time.monotonic(), self._still, bool(inside or method), words

    def _judge(self, states):
        """Report what is wrong on this node, once, and end the job if that does not change within GRACE seconds."""
        waiting = max((state.seconds for state in states if state.waits and not state.silent), default=0.0)
        longest = waiting if self.sees_all else max(state.seconds for state in states)
        if longest <= self.seconds:
            self._reported = False
            return
        if not self._reported:
            self._reported = True
            self._say([f"a rank has not gone on for {longest:.0f} s; the ranks on {platform.node()}:", *states])
        if waiting > self.seconds + GRACE:
            self._say([f"the job is ended, since a rank has waited longer than {self.seconds:g} s"])
            sys.stdout.flush()
            time.sleep(DRAIN)
            threading.Thread(target=MPI.COMM_WORLD.Abort, args=(1,), daemon=True).start()
            time.sleep(FORCE)
            os._exit(1)

    def _say(self, lines):
        # in one piece, so that lines of other ranks do not come between
        sys.stderr.write("".join(f"watchdog: {line}\n" for line in lines))
        sys.stderr.flush()


class WatchState:
    """Where one rank is, as its thread has written it. now: the time. limit: seconds after which a rank is called silent."""

    def __init__(self, rank, pid, slot, now, limit):
        self.rank, self.pid = rank, pid
        written, self.seconds, self.waits, text = slot
        self.text, self.age = text.decode(errors="replace"), now - written
        self.silent = self.age > limit

    def __str__(self):
        if self.silent:
            state = f"process {self.pid} is {process_state(self.pid)}"
            was = "waited" if self.waits else "computed"
            return f"rank {self.rank} has not answered for {self.age:.0f} s: {state}; before, it {was} in {self.text}"
        if self.waits:
            return f"rank {self.rank} has waited for {self.seconds:.0f} s in {self.text}"
        return f"rank {self.rank} is in no collective: for {self.seconds:.0f} s it has computed in {self.text}"


def process_state(pid):
    """The state of a process of this node, in words."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone" if Path("/proc/self/stat").exists() else "in an unknown state"
    return STATES.get(letter, "asleep")


def mpi_call(frame):
    """The name of the MPI method that the line of a frame calls, such as "Allreduce"; None if it calls none."""
    called = re.findall(r"\.([A-Za-z]\w*)\(", linecache.getline(frame.f_code.co_filename, frame.f_lineno))
    return next((name for name in called if name in MPI_METHODS), None)


def place(frame):
    """The innermost lines of this project, or of the user's script, that are being executed."""
    found = []
    while frame is not None and len(found) < SHOWN:
        path = frame.f_code.co_filename
        if path.startswith(OWN) or not path.startswith(LIBRARIES):
            found.append(f"{frame.f_code.co_name} at {path.removeprefix(f'{ROOT}/')}:{frame.f_lineno}")
        frame = frame.f_back
    words = ", called by ".join(found) or "outside of this project"
    return os.fsencode(words).decode(errors="backslashreplace")  # the names of files may be no UTF-8


def in_words(ranks):
    """Some ranks in words: "ranks 0-3, 8"."""
    return f"rank{'s' * (len(ranks) > 1)} {in_short(ranks, ', ')}"
