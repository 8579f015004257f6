"""What a target is, and what its reader makes of inputs."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import strategies as st
from mpi4py import MPI

from gridgrad.experiments.common.options import user_input
from gridgrad.parallel.job.run import UserError, one_line
from tests.fuzz.bounded import LONGEST, READ, REFUSED, WRONG, Bounds, apart, origin


@dataclass(frozen=True)
class Target:
    """Something of the product that reads what users give.

    valid: a function to a tuple of inputs, each bytes, that must be read. damage: a function of one of them to a strategy.
    read: reads the file at a path as a program does, and uses what it has read as far as it takes to notice that it is no good.
    file: its name, in a folder of its own. around: puts other files there. says: words of which each error may say one
    instead of the name of the file. weight: of its share of all inputs.
    """

    name: str
    valid: Callable[[], tuple]
    damage: Callable
    read: Callable
    file: str = "input"
    around: Callable = lambda folder: None
    says: tuple = ()
    weight: float = 1.0


def by_program(program, words):
    """A reader that runs a program in this process. FILE, FOLDER and TEXT in its arguments: the path, its folder, its text."""

    def read(path):
        if not MPI.Is_initialized():
            MPI.Init()
        names = {"FILE": str(path), "FOLDER": str(path.parent)}
        if "TEXT" in words:
            names["TEXT"] = path.read_bytes().decode(errors="surrogateescape")
        sys.argv = ["gridgrad", *(re.sub("FILE|FOLDER|TEXT", lambda found: names[found[0]], word) for word in words.split())]
        program.main()

    return read


def every_target():
    """{name: Target}. Another reader joins by a Target in one of these tables."""
    from tests.fuzz import targets_data, targets_documents, targets_training

    tables = targets_data.TARGETS, targets_documents.TARGETS, targets_training.TARGETS
    return {target.name: target for table in tables for target in table}


@dataclass
class Result:
    """Of a target. counts: of each outcome. failures: {kind: (how often, words about the first one, its input)}."""

    counts: Counter = field(default_factory=Counter)
    failures: dict = field(default_factory=dict)

    @property
    def inputs(self):
        return self.counts.total()

    def add(self, outcome, words, content):
        self.counts[outcome] += 1
        if outcome == WRONG:
            kind = words.partition(": ")[0]
            count, words, first = self.failures.get(kind, (0, words, content))
            self.failures[kind] = count + 1, words, first


def run(target, examples, seed, folder, bounds=None):
    """The Result of so many inputs of a target: what is valid, and what is damaged. folder: for files."""
    result, valid = Result(), target.valid()

    def one(content):
        outcome, words, *_ = apart(lambda: judged(target, content, folder), Path(folder) / "printed", bounds or Bounds())
        if outcome == REFUSED and content in valid:
            outcome, words = WRONG, f"a valid input is refused: {words}"
        result.add(outcome, words, content)

    for content in valid:
        one(content)
    examples = max(examples, len(valid) + 3)
    damaged = st.sampled_from(range(len(valid))).flatmap(lambda number: target.damage(valid[number]))  # whose names are short
    while (left := examples - result.inputs) > 0:
        settings = hypothesis.settings(
            max_examples=left,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        hypothesis.seed(seed + left)(settings(hypothesis.given(damaged)(one)))()
    return result


def judged(target, content, folder):
    """(outcome, words) for an input: right is a result, or one clear line that names the file."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        target.around(Path(own))
        path = Path(own) / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            with user_input():
                target.read(path)
        except UserError as error:
            line, where = one_line(error), origin(error.__context__ or error)
            if not any(words in line for words in (path.name, *target.says)):
                return WRONG, f"does not name the file, in {where}: {line[:200]}"
            return (WRONG, f"too long a line, in {where}: {line[:200]}") if len(line) > LONGEST else (REFUSED, line)
    return READ, ""
