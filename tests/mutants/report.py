"""What is known of faults, and the report: how many of each folder tests have found, and all that have survived."""

import json
import platform
import sys
from collections import Counter, defaultdict
from datetime import date
from importlib.metadata import version
from pathlib import PurePosixPath

from gridgrad.nn.kernels.processor import processor

UNDECIDED = "undecided"  # not noticed by the quick tests
COLUMNS = "faults", "found", "survived", UNDECIDED, "equivalent"
HEAD = """# Faults put in on purpose

The runs of `python -m tests.mutants`: one place of the code is changed at a time, and the short tests must notice. *Field* are
mistakes that are made in this field, *orders* those that the exploration of all orders of messages has to find, *mechanical* a
sample of what the operators of cosmic-ray make of the code. *Equivalent* ones change nothing that could be noticed:
`tests/mutants/unnoticed.toml` says why. *Undecided* ones were not noticed by the quick tests, and the further ones have not run
yet.
"""


class State:
    """The last trial of each fault: a file of JSON lines, to which a line is added with each one. path: of the file.

    trials: {key of a fault: its last trial}.
    """

    def __init__(self, path):
        lines = path.read_text().splitlines() if path.exists() else []
        self.path, self.trials = path, {one["fault"]: one for one in map(json.loads, lines) if "fault" in one}

    def add(self, trial):
        self.trials[trial["fault"]] = trial
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(trial) + "\n")

    def result(self, fault):
        """The result of the last trial of a fault; None if there was none."""
        return self.trials.get(fault.key, {}).get("result")

    def is_settled(self, fault, code, quick=False):
        """Whether a fault need not be tried again: it was found, or survived with this code and these tests.

        quick: whether it only need not be tried again with the quick tests.
        """
        same = code == self.trials.get(fault.key, {}).get("code")
        return self.result(fault) in ("found", "unimportable", *(("survived", UNDECIDED)[: 1 + quick] if same else ()))


def write(path, faults, state, equivalent, texts):
    """Write the report. equivalent: {key of a fault: why it changes nothing}. texts: {file: its text}."""
    lines = [HEAD, machine(), ""]
    for kind in dict.fromkeys(fault.kind for fault in faults):
        results = {
            fault: "equivalent" if fault.key in equivalent else state.result(fault) for fault in faults if fault.kind == kind
        }
        lines += [f"## {kind.capitalize()}", "", *table(results), ""]
        lines += [f"Not tried yet: {sum(result is None for result in results.values())}. Survivors:", ""]
        for fault in sorted((fault for fault in results if results[fault] == "survived"), key=lambda fault: fault.file):
            text = texts[fault.file]
            lines += [f"- `{fault.file}:{fault.line(text)}`: {fault.what}", "", "```diff", *fault.diff(text), "```", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n")


def table(results):
    """Rows by folder, and one of all. Score: the share found of all that are decided."""
    by_folder = defaultdict(Counter)
    for fault, result in results.items():
        if result not in (None, "unimportable"):
            for folder in (f"`{PurePosixPath(fault.file).parent}`", "**all**"):
                by_folder[folder].update(("faults", result))
    rows = [f"| folder | {' | '.join(COLUMNS)} | score |", "|---" * (len(COLUMNS) + 2) + "|"]
    for folder, counts in sorted(by_folder.items(), reverse=True):
        decided = counts["found"] + counts["survived"]
        score = f"{100 * counts['found'] / decided:.1f} %" if decided else ""
        rows.append(f"| {' | '.join(map(str, (folder, *(counts[name] for name in COLUMNS), score)))} |")
    return rows


def machine():
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "mpi4py"))
    return f"{date.today().isoformat()}, {processor().title}, Python {platform.python_version()}, {versions}, {sys.platform}."
