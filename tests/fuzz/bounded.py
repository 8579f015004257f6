"""An action in a process of its own: a crash of a library, a hang or too much memory ends only that one, and is reported."""

import contextlib
import json
import os
import resource
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

from gridgrad.parallel.job.run import one_line

READ, REFUSED, WRONG = "read right", "refused in one line", "wrong"  # what becomes of an input
LONGEST = 1500  # characters of a clear line: some list what is accepted
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bounds:
    """seconds: of the processor. waits: seconds by the clock, many, since a busy machine must not look like a hang. memory:
    bytes of addresses, besides those that the process has before. written: bytes of a file."""

    seconds: float = 10.0
    waits: float = 600.0
    memory: int = 1 << 30
    written: int = 256 << 20

    def begin(self):
        """From now on they hold for this process. Their signals end it also inside a library."""
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (pages()[0] + self.memory,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.written, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        signal.setitimer(signal.ITIMER_REAL, self.waits)

    def ended_by(self, status):
        """What a status of a process says, in words."""
        words = {
            signal.SIGPROF: f"computes for more than {self.seconds:g} s",
            signal.SIGALRM: "hangs",
            signal.SIGXFSZ: f"writes more than {self.written >> 20} MiB",
        }
        return words.get(status, f"is ended by signal {status}")


def pages():
    """(bytes of addresses, bytes of memory) that this process has."""
    return [int(count) * resource.getpagesize() for count in Path("/proc/self/statm").read_text().split()[:2]]


def apart(action, printed, bounds):
    """(outcome, words, seconds of a processor, bytes of memory that it touched) of an action, which returns the first two.

    printed: the file of what it prints. An exception, and what ends the process, is WRONG.
    """
    sys.stdout.flush()
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            held = pages()[1]
            with open(printed, "ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            warnings.simplefilter("ignore")
            bounds.begin()
            try:
                answer = action()
            except BaseException as error:
                answer = WRONG, f"{type(error).__name__} in {origin(error)}: {ascii(one_line(error))[:160]}"
            os.write(send, json.dumps((*answer, held)).encode())
        finally:
            os._exit(0)
    os.close(send)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # whatever it has started, before its number can become another one's
    _, status, usage = os.wait4(process, 0)
    with os.fdopen(receive, "rb") as answers:
        answer = answers.read()
    outcome, words, held = json.loads(answer) if answer else (WRONG, bounds.ended_by(status), 0)
    return outcome, words, usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024 - held, 0)


def origin(error):
    """The innermost line of the project behind an exception, as file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(ROOT)) and "/.venv" not in frame.filename]
    return f"{own[-1].filename.removeprefix(f'{ROOT}/')}:{own[-1].lineno}" if own else "no file"
