"""Files of results to which a program adds those of one problem after another."""

import contextlib
import json
from pathlib import Path

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import check_writable
from gridgrad.nn.files.documents import UNFIT, content_of_file


@contextlib.contextmanager
def fitting(words):
    """Around code that uses the content of a file: what it raises for unfit content becomes a ValueError with these words."""
    try:
        yield
    except UNFIT as error:
        raise ValueError(f"{words} ({type(error).__name__}: {error})") from None


def earlier_results(path, entries, program, document=iter):
    """The results in a file, a list of dicts; an empty list if there is no file.

    entries: what each of them must have. program: the name of the one that writes the file. document: what the program makes
    of all results, see `write_results`; it is tried now, and not only when new results have been measured.
    ValueError if the file holds anything else, OSError if it can not be written.
    """
    check_writable(path)
    found = content_of_file(path) if Path(path).exists() else []
    if not isinstance(found, list) or any(not isinstance(r, dict) or not set(entries) <= r.keys() for r in found):
        raise ValueError(f"{path} holds no results of {program}: give another name")
    with fitting(f"{path} holds results of {program} that are damaged: give another name"):
        list(document(found) if found else ())
    return found


def of_other_problems(before, results, problem):
    """The earlier results that differ from `results` in one of the entries that name the problem."""
    return [r for r in before if any(r[name] != results[name] for name in problem)]


def write_results(path, before, result, problem, document):
    """Write the earlier results with a new one in the place of its problem's, as JSON, and a Markdown document beside it.

    problem: the entries that name the problem. document: a function of all results that yields the lines of the document.
    """
    results = [*of_other_problems(before, result, problem), result]
    report.write_text(path, json.dumps(results, indent=1) + "\n")
    report.write_text(Path(path).with_suffix(".md"), "\n".join(document(results)) + "\n")
