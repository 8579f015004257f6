"""The report: how many faults of each folder tests have found, and all that have survived."""

import json
import platform
import sys
from collections import Counter, defaultdict
from datetime import date
from importlib.metadata import version
from pathlib import PurePosixPath

from gridgrad.nn.kernels.processor import processor
from tests.mutants.faults import MECHANICAL

UNDECIDED = "undecided"  # not noticed by the quick tests
COLUMNS = "faults", "found", "survived", UNDECIDED, "equivalent"
HEAD = """# Faults put in on purpose

The runs of `python -m tests.mutants`: one place of the code is changed at a time, and the short tests must notice. *Field* are
mistakes that are made in this field, written by hand in `tests/mutants/field.toml`. *Mechanical* ones are a sample of all that
the operators of cosmic-ray make of the code, without those of texts, of sizes of blocks, and of costs by which only the fastest
of several ways is chosen. *Orders* are mistakes of protocols, pipelines and checkpoints that the exploration of all orders of
messages has to find, in `tests/mutants/orders.toml`. *Equivalent* ones change nothing that could be noticed:
`tests/mutants/unnoticed.toml` says why. *Undecided* ones were not noticed by the quick tests, and the further ones have not run
yet; the score leaves them out, so it says little where there are many.
"""


class State:
    """What is known of faults: a file of JSON lines, to which a line is added with each trial. path: of the file.

    trials: {key of a fault: its trials, dicts, in their order}. seconds: {(test file, checksum of it and of the code): seconds
    that it takes without a fault}.
    """

    def __init__(self, path):
        self.path, self.trials, self.seconds = path, defaultdict(list), {}
        for line in path.read_text().splitlines() if path.exists() else ():
            self._take(json.loads(line))

    def _take(self, entry):
        if "test" in entry:
            self.seconds[entry["test"], entry["code"]] = entry["seconds"]
        else:
            self.trials[entry["fault"]].append(entry)

    def add(self, entry):
        self._take(entry)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")

    def is_settled(self, fault, code, quick=False):
        """Whether a fault need not be tried again: it was found, or survived with this code and these tests.

        quick: whether it only need not be tried again with the quick tests.
        """
        last = (self.trials.get(fault.key) or [None])[-1]
        unnoticed = ("survived", UNDECIDED) if quick else ("survived",)
        return last is not None and (last["result"] in ("found", "unimportable") or last["code"] == code
                                     and last["result"] in unnoticed)  # fmt: skip

    def result(self, fault, first=False):
        """The result of the last trial of a fault, or of the first one; None if there was none."""
        trials = self.trials.get(fault.key)
        return trials[0 if first else -1]["result"] if trials else None


def write(path, faults, state, equivalent, texts):
    """Write the report. equivalent: {key of a fault: why it changes nothing}. texts: {file: its text}."""
    tried = [fault for fault in faults if fault.key in equivalent or state.result(fault) not in (None, "unimportable")]
    lines = [HEAD, machine(), ""]
    for kind in dict.fromkeys(fault.kind for fault in faults):
        some = [fault for fault in tried if fault.kind == kind]
        lines += [f"## {kind.capitalize()}", "", *table(some, state, equivalent), ""]
        lines += survivors(some, state, equivalent, texts)
        untried = sum(fault.kind == kind and fault.key not in equivalent and state.result(fault) is None for fault in faults)
        lines += [f"Not tried yet: {untried}.", ""] if untried else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n")


def machine():
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "mpi4py"))
    return f"{date.today().isoformat()}, {processor().title}, Python {platform.python_version()}, {versions}, {sys.platform}."


def table(faults, state, equivalent):
    """Rows by folder, and one of all. Score: the share found of all that are decided; when first tried: the tests then."""
    by_folder, at_first = defaultdict(Counter), Counter()
    for fault in faults:
        what = "equivalent" if fault.key in equivalent else state.result(fault)
        for folder in (str(PurePosixPath(fault.file).parent), "all"):
            by_folder[folder].update(("faults", what))
            at_first[folder] += what != "equivalent" and state.result(fault, first=True) == "found"
    rows = [f"| folder | {' | '.join(COLUMNS)} | score | when first tried |", "|---|" + "---|" * (len(COLUMNS) + 2)]
    for folder in sorted(by_folder, key=lambda name: (name == "all", name)):
        counts = by_folder[folder]
        real = counts["found"] + counts["survived"]
        scores = [f"{100 * found / real:.1f} %" if real else "" for found in (counts["found"], at_first[folder])]
        rows.append(f"| {'**all**' if folder == 'all' else f'`{folder}`'} | "
                    + " | ".join(str(counts[name]) for name in COLUMNS) + f" | {' | '.join(scores)} |")  # fmt: skip
    return rows


def survivors(faults, state, equivalent, texts):
    """The lines about the faults that no test has noticed."""
    left = [fault for fault in faults if fault.key not in equivalent and state.result(fault) == "survived"]
    lines = ["Survivors:" if left else "There are no survivors.", ""]
    for fault in sorted(left, key=lambda fault: (fault.file, fault.line(texts[fault.file]))):
        text = texts[fault.file]
        said = "" if fault.kind == MECHANICAL else f": {fault.what}"
        lines += [f"- `{fault.file}:{fault.line(text)}`{said}", "", "```diff", *fault.diff(text), "```", ""]
    return lines
