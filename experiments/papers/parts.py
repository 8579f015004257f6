"""The parts of which the experiments of a paper consist. Each is done once: a folder keeps what it found, with its settings.

A part leaves nothing if it ends before it is complete, for whatever reason, and is done again when its experiment is started
again. Parts that were done with the same settings on the same processor are not done again.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.launching.start_ranks import mpiexec, printed_json
from gridgrad.nn.files.documents import content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.kernels.processor import processor
from gridgrad.parallel.job.run import one_line

SHORT, USUAL, LONG = "short", "usual", "long"  # how much is measured: `reproduce all`, `reproduce PAPER`, all there is


@dataclass(frozen=True)
class PaperPart:
    """name: of the part, another for each part of a paper. run: a function without arguments; what it returns can be written
    as JSON. seconds: about how long it takes. settings: what the result depends on."""

    name: str
    run: Callable
    seconds: float
    settings: dict


@dataclass
class Found:
    """What the parts of one paper found. results: {name of the part: what it returned}. failures: a line for each part that
    failed. left_out: names of parts for which the time was too short."""

    results: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)
    left_out: list = field(default_factory=list)


class TimeLeft:
    """How much time is left, judged by how long the parts took that are done. parts: all that are to be run. seconds: that they
    may take together, None for as long as they need. expected: of the parts that are left; spent, foreseen: what those that
    were run have taken, and were expected to."""

    def __init__(self, parts, seconds=None):
        self.start, self.seconds = time.monotonic(), seconds
        self.expected, self.spent, self.foreseen = sum(part.seconds for part in parts), 0.0, 0.0

    @property
    def pace(self):
        """How many times as long as expected parts take: what was seen, with a minute's weight on what was expected."""
        return (60 + self.spent) / (60 + self.foreseen)

    def allows(self, part):
        """Whether there is time for a part."""
        elapsed = time.monotonic() - self.start
        return self.seconds is None or elapsed + self.pace * part.seconds <= self.seconds

    def remaining(self):
        """The seconds until all parts have to be done, None for any."""
        return None if self.seconds is None else max(1.0, self.seconds - (time.monotonic() - self.start))

    def left(self):
        """The time that the remaining parts take, in words."""
        seconds = self.pace * max(0.0, self.expected)
        return f"about {seconds / 60:.0f} minutes left" if seconds > 90 else f"about {seconds:.0f} s left"


class TimeUpError(Exception):
    """A part was still running when the time was up."""


@contextlib.contextmanager
def at_most(seconds):
    """End what runs inside by a TimeUpError after so many seconds; None for no limit. Jobs end their processes then. Nothing
    else here uses the alarm of the system, and programs run in the main thread, which gets it."""

    def end(*_):
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_resumable(by_paper, folder, seconds=None, say=lambda line: print(line, file=sys.stderr, flush=True)):
    """Run the parts of several papers: {paper: Found}. What was done before, with the same settings, is read instead. by_paper:
    {paper: [PaperPart]}. folder: where what they found is kept. seconds: that it may take, None for any; parts that would take
    longer are left out. say: takes a line on each part. A part that fails does not keep others from running."""
    here = {"processor": processor().title, "launcher": os.environ.get("MPIEXEC", "")}
    found = {paper: Found() for paper in by_paper}
    todo = []
    for paper, part in in_turns(by_paper):
        kept = read(path_of(folder, paper, part), part.settings | here)
        if kept is None:
            todo.append((paper, part))
        else:
            found[paper].results[part.name] = kept
    done = sum(map(len, by_paper.values())) - len(todo)
    clock = TimeLeft([part for _, part in todo], seconds)
    say(f"{len(todo)} parts to do, {done} done before; {clock.left()}")
    for number, (paper, part) in enumerate(todo, 1):
        mine = found[paper]
        clock.expected -= part.seconds
        if not clock.allows(part):
            mine.left_out.append(part.name)
            continue
        start = time.monotonic()
        try:
            with at_most(clock.remaining()):
                result = part.run()
            write_json(path_of(folder, paper, part), {"settings": part.settings | here, "result": result})
            mine.results[part.name] = result
            ended = ""
        except TimeUpError:
            mine.left_out.append(part.name)
            ended = " ENDED: the time is up"
        except Exception as error:  # whatever it is, the other parts can go on
            ended = f" FAILED: {one_line(error)}"
            mine.failures.append(f"{part.name}: {one_line(error)}")
        took = time.monotonic() - start
        clock.spent, clock.foreseen = clock.spent + took, clock.foreseen + part.seconds
        say(f"[{number}/{len(todo)}] {paper}: {part.name}, {took:.1f} s{ended}; {clock.left()}")
    for mine, parts in zip(found.values(), by_paper.values()):
        mine.results = {part.name: mine.results[part.name] for part in parts if part.name in mine.results}
    return found


def in_turns(by_paper):
    """(paper, part) of all parts, so that all papers go on at the same time, and none is left out if the time is too short."""
    placed = []
    for paper, parts in by_paper.items():
        total, before = sum(part.seconds for part in parts), 0.0
        for part in parts:
            placed.append((before / total, paper, part))
            before += part.seconds
    return [(paper, part) for _, paper, part in sorted(placed, key=lambda one: one[0])]


def path_of(folder, paper, part):
    """The file in which a part is kept."""
    words = re.sub(r"[^\w.=]+", "-", part.name)[:80].strip("-")
    return Path(folder) / paper / f"{words}-{sha256(part.name.encode()).hexdigest()[:8]}.json"


def read(path, settings):
    """What a part found, or None if that is not kept in this file for these settings."""
    try:
        content = content_of(read_limited(path))
        return content["result"] if content["settings"] == json.loads(json.dumps(settings)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_job(program, ranks, timeout, what, **options):
    """What a job of so many ranks prints in its last line, the content of JSON; UserError if it fails. what: words for it.
    program: behind "papers.". options: of the program, by the names of its arguments; those that are None are left out."""
    words = [word for name, value in options.items() if value is not None
             for word in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))]  # fmt: skip
    return printed_json(mpiexec(ranks, [*as_module(f"papers.{program}"), *words], timeout), what)
