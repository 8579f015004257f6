"""Jobs that run one test after another, so that starting Python and MPI on all ranks is paid once for many tests.

pytest starts a job of `tests.worker` on as many ranks as a test wants and keeps it until a test wants another number, or
a test fails: then the ranks may be out of step. Each rank has a socket of its own to pytest. All of them get the name of
the next test through it and answer with the traceback, or that there is none; between tests they wait in the socket,
where they need no core, and not in MPI, where they would. The time limit of a test is kept here, outside of the ranks.
"""

import contextlib
import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gridgrad.experiments.launching.start_ranks import FALSE_START, STARTS, care_no_more, find_mpiexec, launch

START_LIMIT = 120.0  # seconds until all ranks of a job must have reported
END_LIMIT = 30.0  # seconds until a job that has been told to must have ended
GRACE = 2.0  # seconds that the other ranks have to report their tracebacks after the first one has failed


class NoJob(Exception):
    """A job did not start, or did not end, as it should: the message has what it printed."""


class Jobs:
    """The job that runs tests at present: at most one, so that the memory of many ranks is never held at once."""

    def __init__(self):
        self.job = None

    def run(self, ranks, test, timeout, argument=None):
        """Run the test "module:function" on `ranks` ranks. Returns None if it passed, else what to tell about its failure.

        argument: what its body gets as a second one, if anything: for JSON.
        """
        if self.job is None or self.job.ranks != ranks:
            self.end()
            self.job = start(ranks)
        failure, intact = None, False
        try:
            failure = self.job.run(test, timeout, argument)
            intact = failure is None
        finally:
            if not intact:
                self.job.kill()
                self.job = None
        return failure

    def end(self):
        """End the present job, if there is one. NoJob if it ends with another status than 0."""
        job, self.job = self.job, None
        if job is not None:
            job.end()


jobs = Jobs()


def start(ranks):
    """A Job that is ready. A launcher that fails before it has started any rank is started again."""
    for attempt in range(STARTS):
        job = Job(ranks)
        try:
            job.connect()
            return job
        except BaseException as failure:
            printed = job.printed()
            job.kill()
            if not isinstance(failure, NoJob):
                raise
            if FALSE_START not in printed or attempt == STARTS - 1:
                raise NoJob(f"the job of {ranks} ranks for the tests: {failure}\n{printed}") from None


class Rank:
    """pytest's end of the connection to one rank of a job."""

    def __init__(self, connection):
        self.socket, self.lines = connection, connection.makefile()

    def fileno(self):
        return self.socket.fileno()

    def answer(self):
        """The traceback that the rank reports, or "" if it reports that the test passed."""
        with contextlib.suppress(OSError):
            if answer := self.lines.readline():
                return json.loads(answer)
        return "the rank has ended\n"

    def close(self):
        self.lines.close()
        self.socket.close()


class Job:
    """A job of `tests.worker` on some ranks."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.folder = Path(tempfile.mkdtemp(prefix="gridgrad-job-"))
        self.connections, self.read_so_far = {}, 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "socket"))
        self.listener.listen(ranks)
        command = [sys.executable, "-m", "tests.worker", str(self.folder)]
        with open(self.folder / "output", "wb") as output:
            self.process, self.caretaker = launch(find_mpiexec(), ranks, command, stdout=output, stderr=subprocess.STDOUT)
        self.mark = self.caretaker.args[-1]

    def connect(self):
        """Wait until all ranks have reported."""
        deadline = time.monotonic() + START_LIMIT
        self.listener.settimeout(0.1)
        while len(self.connections) < self.ranks:
            if self.process.poll() is not None:
                raise NoJob(f"it ended with status {self.process.returncode} when it was started")
            if time.monotonic() > deadline:
                raise NoJob(f"not all ranks started within {START_LIMIT:.0f} s")
            with contextlib.suppress(TimeoutError):
                connection, _ = self.listener.accept()
                connection.setblocking(True)
                rank = Rank(connection)
                self.connections[json.loads(rank.lines.readline())] = rank
        self.connections = dict(sorted(self.connections.items()))

    def run(self, test, timeout, argument=None):
        """Run a test on all ranks. Returns None if it passed on all, else the tracebacks and what else there is to tell."""
        order = json.dumps({"test": test, "timeout": timeout, "argument": argument}) + "\n"
        for connection in self.connections.values():
            with contextlib.suppress(OSError):  # a rank that has died is found below
                connection.socket.sendall(order.encode())
        waiting, failures = dict(self.connections), {}
        limit = deadline = time.monotonic() + timeout
        while waiting and (left := deadline - time.monotonic()) > 0:
            ready = select.select(list(waiting.values()), [], [], left)[0]
            for rank in [rank for rank, connection in waiting.items() if connection in ready]:
                failure = waiting.pop(rank).answer()
                if failure:
                    failures[rank] = failure
                    deadline = min(deadline, time.monotonic() + GRACE)
        if not failures and not waiting:
            self.read_so_far = (self.folder / "output").stat().st_size
            return None
        if waiting and deadline == limit:
            failures |= {rank: f"not finished after {timeout} s; it was here:\n{self._place(rank)}" for rank in waiting}
        return self._report(failures)

    def _place(self, rank):
        """Where a rank was when its time was over. Python on that rank writes it again and again; the last may be cut off."""
        with contextlib.suppress(OSError):
            return "Timeout" + max((self.folder / f"hung-{rank}").read_text().split("Timeout")[-2:], key=len)
        return ""

    def _report(self, failures):
        """Each traceback once, with the ranks on which it was met, and what the job has printed during the test."""
        by_text = {}
        for rank, text in sorted(failures.items()):
            by_text.setdefault(text, []).append(str(rank))
        plural = {True: "s", False: ""}
        parts = [f"[rank{plural[len(on) > 1]} {', '.join(on)} of {self.ranks}]\n{text}" for text, on in by_text.items()]
        if any("the rank has ended" in text for text in by_text):  # then the launcher has something to say
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)
        self._wait_for_output()
        printed = self.printed()
        return "\n".join(parts) + (f"\n[printed]\n{printed}" if printed.strip() else "")

    def _wait_for_output(self):
        """Wait until nothing more comes for a moment: the launcher passes on what the ranks have printed when it gets to it."""
        size, deadline = -1, time.monotonic() + GRACE
        while size != (now := (self.folder / "output").stat().st_size) and time.monotonic() < deadline:
            size = now
            time.sleep(0.3)

    def printed(self):
        """What the job has printed since the last test that passed."""
        with open(self.folder / "output", errors="replace") as output:
            output.seek(self.read_so_far)
            return output.read()

    def end(self):
        """Let the ranks leave MPI, and wait until the job has ended."""
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_LIMIT)
        status, printed = self.process.poll(), self.printed()
        self.kill()
        if status != 0:
            ended = "did not end" if status is None else f"ended with status {status}"
            raise NoJob(f"the job of {self.ranks} ranks {ended} after its tests had passed\n{printed}")

    def kill(self):
        """End every process of the job; nothing of it remains."""
        care_no_more(self.caretaker, clean=self.process.poll() == 0)
        self.process.wait()
        self._close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _close(self):
        for connection in self.connections.values():
            connection.close()
        self.listener.close()
        self.connections = {}
