"""Trials: whether tests notice a fault, in a copy of the repository.

A fault is planted in the copy, tests run there rung by rung of a ladder (`ladder.py`), and it is taken out again. What fails
then must pass without the fault.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gridgrad.parallel.job.own_process import end_with_parent
from tests.killer import processes_with, remove_orphaned_segments
from tests.mutants.faults import FOLDERS

MARK = "GRIDGRAD_MUTANTS"  # the environment variable with the mark of one run of tests
LIMIT = 1800.0  # seconds for the tests of a rung
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Unusable(Exception):
    """The tests can not tell anything: they fail without a fault."""


class Stopped(Exception):
    """A run of tests was stopped, and means nothing."""


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
        self.stopped = threading.Event()  # set by another thread to end what runs
        self.passed = set()  # tests that have passed without a fault
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

    def run(self, *words):
        """(status, or None at the time limit; what is printed) of `python WORDS` in the copy. None of its processes remain."""
        mark, started = uuid.uuid4().hex, time.time()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {MARK: mark, "TMPDIR": str(self.temporary)}
        with open(self.temporary / "output", "w+", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
            try:
                status = self._status(process)
            finally:
                end(process, mark, started)
            output.seek(0)
            text = output.read()
        for path in self.temporary.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return status, text

    def _status(self, process):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(0.5)
            if self.stopped.is_set():
                raise Stopped
        return None

    def tests(self, rung):
        return self.run("-m", "pytest", "-x", "-q", "-m", "not long", "-p", "no:cacheprovider", *rung)

    def outcome(self, fault, rungs):
        """The Outcome of a fault. rungs: lists of what pytest runs. Unusable if what fails then fails without it too."""
        start = time.monotonic()
        for rung in filter(None, rungs):
            with self.planted(fault):
                status, printed = self.tests(rung)
                if status not in (0, 5):  # 5: all of its tests are long
                    importable = self.run("-c", f"import {fault.module}")[0] == 0
            if status not in (0, 5):
                by = FAILED.search(printed)
                if importable:
                    self._pass_without([by[1].partition("[")[0]] if by else rung)  # parameters may have spaces
                found = by[1] if by else "the time limit" if status is None else f"exit status {status}"
                return Outcome("found" if importable else "unimportable", found, time.monotonic() - start)
        return Outcome("unnoticed", "", time.monotonic() - start)

    def _pass_without(self, tests):
        """Unusable if tests fail twice without a fault: what fails by chance is to be mended, but is no reason to stop here."""
        if not self.passed.issuperset(tests):
            status, printed = self.tests(tests)
            if status != 0 and self.tests(tests)[0] != 0:
                raise Unusable(f"without a fault, tests fail: {' '.join(tests)}\n{printed}")
            self.passed.update(tests)


def end(process, mark, started):
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


def digest(root, files):
    """A checksum of the files of a repository on which the results of tests depend."""
    found = sha256()
    for name in sorted(files):
        if name.endswith((".py", ".toml")) and not name.startswith(("tests/mutants/", "docs/", "results/")):
            found.update(f"{name}\0".encode() + (root / name).read_bytes())
    return found.hexdigest()[:16]


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
