"""Faults: changes of one place of the code, each of which some test should notice."""

import tomllib
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FOLDERS = "nn", "parallel", "datasets", "experiments"  # that are packages of gridgrad


@dataclass(frozen=True)
class Fault:
    """what: in a sentence. file: that it changes, relative to the repository. old: text that occurs exactly once in the file.
    new: what takes its place. tests: paths, where to look first. kind: the name of the file that lists it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple = ()
    kind: str = ""

    @cached_property
    def key(self):
        """By which it is known: of the file, the text and its replacement."""
        return sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()[:16]

    @property
    def module(self):
        """The dotted name of the module that it changes."""
        name = self.file.removesuffix(".py").replace("/", ".")
        return f"gridgrad.{name}" if name.startswith(tuple(f"{folder}." for folder in FOLDERS)) else name

    def applied(self, text):
        """The text of the file with the fault. ValueError if it does not fit the text, or the result is no Python."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.file}: what is to be replaced occurs {found} times, not once: {self.old!r}")
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.file}: with {self.new!r} it is no Python: {error}") from None
        return changed

    def line(self, text):
        """The number of the first line that it changes."""
        pairs = enumerate(zip(text.splitlines(), self.applied(text).splitlines(), strict=False), 1)
        return next((number for number, (before, after) in pairs if before != after), len(text.splitlines()))

    def diff(self, text):
        """The lines that it removes and adds."""
        lines = unified_diff(text.splitlines(), self.applied(text).splitlines(), lineterm="", n=0)
        return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def listed(folder=HERE):
    """All faults that files in a folder list, as a list: NAME.toml has those of the kind NAME, each in a table [[fault]]."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text()).get("fault", ()):
            found.append(Fault(**entry | {"tests": tuple(entry.get("tests", ()))}, kind=path.stem))
    return found
