"""Trials: whether tests notice a fault, in a copy of the repository.

A fault is planted in the copy, tests run there, and it is taken out again. They run rung by rung of a ladder (`ladder.py`), and
what stands first is quick, so that most faults take seconds. The unchanged copy must pass the tests first.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import xml.etree.ElementTree as xml
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gridgrad.parallel.job.own_process import end_with_parent
from tests.jobs import NoJob
from tests.killer import processes_with, remove_orphaned_segments
from tests.mutants.faults import FOLDERS

MARK = "GRIDGRAD_MUTANTS"  # the environment variable with the mark of one run of tests
TIMES, MORE = 3, 30.0  # a run of tests may take so many times what it took without a fault, and so many seconds more
FIRST_LIMIT = 1800.0  # seconds for the tests without a fault
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
NO_JOB = NoJob.__name__  # a job of ranks did not start


class Unusable(Exception):
    """The tests can not tell anything: they fail without a fault."""


class Stopped(Exception):
    """A run of tests was stopped, and means nothing."""


@dataclass(frozen=True)
class Ended:
    """How a run of tests ended. status: None at the time limit. seconds: by the clock. output: what it printed."""

    status: int | None
    seconds: float
    output: str


@dataclass(frozen=True)
class Outcome:
    """What became of a fault. result: "found", "unnoticed", or "unimportable" if the module can not even be imported, which is
    no fault. by: the test that noticed it. seconds: that this took."""

    result: str
    by: str
    seconds: float


class Copy:
    """A copy of a repository, in a folder of its own. files: the paths of its files, relative to root."""

    def __init__(self, root, files, folder):
        self.folder, self.temporary, self.now = Path(folder) / "copy", Path(folder) / "tmp", int(time.time())
        self._stopped = threading.Event()
        self.temporary.mkdir(parents=True)
        for name in files:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.folder / name, follow_symlinks=False)
        if (self.folder / "gridgrad").is_dir():  # so that Python finds the modules of the copy, not those that are installed
            for name in FOLDERS:
                (self.folder / "gridgrad" / name).symlink_to(self.folder / name)

    @contextmanager
    def planted(self, fault):
        """A `with` block in which the copy has a fault."""
        path = self.folder / fault.file
        text = path.read_text()
        self._write(path, fault.applied(text))
        try:
            yield
        finally:
            self._write(path, text)

    def _write(self, path, text):
        """Python compiles a file anew if it has another time, in whole seconds, so no two contents have the same one."""
        path.write_text(text)
        self.now += 1
        os.utime(path, (self.now, self.now))

    def run(self, words, limit):
        """Run Python in the copy: `python WORDS`. Returns an Ended. None of its processes remain. Stopped after `stop`."""
        mark, started = uuid.uuid4().hex, time.time()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {MARK: mark, "TMPDIR": str(self.temporary)}
        with open(self.temporary / "output", "w+", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
            try:
                status = self._status(process, limit)
            finally:
                self._end(process, mark, started)
            output.seek(0)
            text = output.read()
        for path in self.temporary.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return Ended(status, time.time() - started, text)

    def stop(self):
        """End what runs in the copy, from another thread."""
        self._stopped.set()

    def _status(self, process, limit):
        """The status of a process that has ended; None at the time limit."""
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(min(left, 1.0))
            if self._stopped.is_set():
                raise Stopped
        return None

    @staticmethod
    def _end(process, mark, started):
        """Kill what is left of a run: its group of processes, and those of jobs that it has started."""
        clean = process.poll() == 0
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while left := processes_with(f"{MARK}={mark}"):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        if not clean:
            remove_orphaned_segments(since=started)


class Trials:
    """Tries faults in a Copy, one after another.

    seconds: {test file or single test: what it takes without a fault}, of those that are known to pass without one. passed:
    called as passed(test, seconds) for others, which enters them there. say: called with a line about what happens.
    """

    def __init__(self, copy, seconds, passed, say=lambda line: None):
        self.copy, self.seconds, self.passed, self.say = copy, seconds, passed, say

    def of(self, fault, rungs):
        """The Outcome of a fault. rungs: lists of test files, to be run in this order. Unusable if they fail without it."""
        start = time.monotonic()
        outcome = lambda result, by="": Outcome(result, by, time.monotonic() - start)  # noqa: E731
        for rung in filter(None, rungs):
            self._pass_without(rung)
            with self.copy.planted(fault):
                ended, limit = self._tests(rung), self._limit(rung)
            if ended.status is None:
                # A busy machine is no fault: it must be quick enough without one, now.
                if self._tests(rung).seconds > limit / 2:
                    self.say(f"the machine is busy: {fault.file} once more")
                    for path in rung:
                        self.passed(path, 2 * self.seconds[path])
                    return self.of(fault, rungs)
                return outcome("found", "the time limit")
            if ended.status != 0:
                by = FAILED.search(ended.output)
                ran = by and by[0].startswith("FAILED") and NO_JOB not in ended.output
                if not ran and not self._can_be_imported(fault):
                    return outcome("unimportable")
                return outcome("found", by[1] if by else f"exit status {ended.status}")
        return outcome("unnoticed")

    def _can_be_imported(self, fault):
        """Whether the module with the fault can be imported."""
        with self.copy.planted(fault):
            return self.copy.run(["-c", f"import {fault.module}"], FIRST_LIMIT).status == 0

    def _limit(self, rung):
        return TIMES * sum(self.seconds[path] for path in rung) + MORE

    def _tests(self, rung, limit=None, options=()):
        words = ["-m", "pytest", "-x", "-q", "-m", "not long", "-p", "no:cacheprovider", *options, *rung]
        return self.copy.run(words, limit or self._limit(rung))

    def _pass_without(self, rung):
        """Run those tests without a fault that have not passed yet. Unusable if they fail."""
        new = [path for path in rung if path not in self.seconds]
        if new:
            self.say(f"without a fault: {' '.join(new)}")
            report = self.copy.folder / "without.xml"
            ended = self._tests(new, FIRST_LIMIT, [f"--junitxml={report}"])
            if ended.status != 0:  # once more: what fails by chance is to be mended, but is no reason to stop here
                self.say(f"without a fault, a test has failed: {FAILED.findall(ended.output)}")
                ended = self._tests(new, FIRST_LIMIT, [f"--junitxml={report}"])
            if ended.status != 0:
                raise Unusable(f"without a fault, tests fail: {' '.join(new)}\n{ended.output}")
            cases = [
                (case.get("classname"), case.get("name"), float(case.get("time")))
                for case in xml.parse(report).iter("testcase")
            ]
            for path in new:
                file, _, single = path.partition("::")
                own = file.removesuffix(".py").replace("/", ".")
                took = sum(time for name, test, time in cases if f"{name}.".startswith(f"{own}.") and single in ("", test))
                self.passed(path, 1.0 + took)


def digest(root, files):
    """A checksum of some files of a repository."""
    found = sha256()
    for name in sorted(files):
        found.update(f"{name}\0".encode() + (root / name).read_bytes())
    return found.hexdigest()[:16]


def is_code(name):
    """Whether it is a file on which the results of tests depend."""
    return name.endswith((".py", ".toml")) and not name.startswith(("tests/mutants/", "docs/", "results/"))


def files_of(root):
    """The files of a repository, as git knows them: also new ones, but none that it ignores."""
    words = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(words, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in listed if name and (root / name).is_file()]


@contextmanager
def new_copy(root, files):
    """A `with` block with a Copy, which is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="gridgrad-mutants-") as folder:
        yield Copy(root, files, folder)
