"""Reading inputs in child processes: a crash of a library, a hang or too much memory ends only the child, and is reported."""

import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from tests.fuzz.target import judged


@dataclass(frozen=True)
class Bounds:
    """What one input may take. seconds: of the processor. waiting: seconds by the clock, many, since a busy machine must not
    look like a hang. memory: bytes, besides what the process has before."""

    seconds: float = 10.0
    waiting: float = 120.0
    memory: int = 1 << 30


@dataclass
class Result:
    """Of a target. counts: of "read", "refused" and "failed". failures: {kind: (how often, words about
    the first one, its input)}."""

    counts: Counter = field(default_factory=Counter)
    failures: dict = field(default_factory=dict)
    inputs: int = 0

    def add(self, kind, words, content):
        self.inputs += 1
        self.counts[kind] += 1
        if kind == "failed":
            kind = words.partition(": ")[0]
            count, words, first = self.failures.get(kind, (0, words, content))
            self.failures[kind] = count + 1, words, first


BOUNDS = Bounds()


def run(target, examples, seed, folder, bounds=BOUNDS):
    """The Result of so many inputs of a target: its examples, what is valid, and what is damaged. folder: for files."""
    result, current = Result(), Path(folder) / "current"
    fixed = [*target.examples(), *target.valid()]
    examples = max(examples, len(fixed) + 3)
    while result.inputs < examples:
        done = result.inputs
        for kind, words, content in child(target, fixed[done:], examples - done, seed + done, folder, bounds, current):
            result.add(kind, words, content)
        if result.inputs == done:
            raise RuntimeError(f"{target.name}: the strategy makes no inputs")
    return result


def child(target, fixed, examples, seed, folder, bounds, current):
    """Yields (kind, words, input) from a process that reads one input after another. The last one may have ended it."""
    sys.stdout.flush()
    receive, send = os.pipe()
    current.unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        os.close(receive)
        status = 1
        try:
            read_all(target, fixed, examples, seed, folder, bounds, current, send)
            status = 0
        except BaseException:  # a mistake of a strategy: the parent sees the status
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as lines:
        for line in lines:
            kind, words, content = json.loads(line)
            yield kind, words, bytes.fromhex(content)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and current.exists():
        number = os.WTERMSIG(status)
        words = {signal.SIGALRM: "waits for too long", signal.SIGPROF: f"computes for more than {bounds.seconds:g} s"}
        words = words.get(number, f"ends the process by signal {number}")
        yield "failed", words, current.read_bytes()
    elif status:  # no input is to blame
        raise RuntimeError(
            f"{target.name}: its damage or its surroundings fail: {(Path(folder) / 'printed').read_text()[-2000:]}"
        )


def read_all(target, fixed, examples, seed, folder, bounds, current, send):
    """Read inputs in this process and write what became of each to `send`, a line of JSON; of those that failed, all bytes."""
    with open(Path(folder) / "printed", "ab") as printed:
        for number in (1, 2):
            os.dup2(printed.fileno(), number)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + bounds.memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()  # writes to what is printed, which is shown where no input is to blame
    for number in (signal.SIGALRM, signal.SIGPROF):  # end the process also inside a library
        signal.signal(number, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    left, lines = examples, os.fdopen(send, "wb")

    def one(content):
        nonlocal left
        if left <= 0:
            return
        left -= 1
        current.write_bytes(content)
        signal.setitimer(signal.ITIMER_PROF, bounds.seconds)
        signal.setitimer(signal.ITIMER_REAL, bounds.waiting)
        kind, words = judged(target, content, folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        current.unlink()
        if kind == "refused" and content in target.valid():
            kind, words = "failed", f"a valid input is refused: {words}"
        line = [kind, words, content.hex()] if kind == "failed" else [kind, "", ""]
        lines.write(json.dumps(line).encode() + b"\n")
        lines.flush()

    for content in fixed:
        one(content)
    valid = target.valid()
    inputs = st.integers(0, len(valid) - 1).flatmap(lambda number: target.damage(valid[number]))  # whose names are short
    while left > 0:
        before = left
        run_strategy(inputs, one, left, seed + left)
        if left == before:
            return


def run_strategy(inputs, action, count, seed):
    """Call `action` with so many inputs of a strategy, which depend on the seed alone."""
    checks = list(hypothesis.HealthCheck)
    settings = hypothesis.settings(max_examples=count, database=None, deadline=None, suppress_health_check=checks,
                                   phases=[hypothesis.Phase.generate])  # fmt: skip
    hypothesis.seed(seed)(settings(hypothesis.given(inputs)(action)))()
