"""Files of results to which a program adds those of one problem after another."""

import contextlib
import json
from pathlib import Path

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import check_writable
from gridgrad.nn.files.documents import UNFIT, content_of_file


@contextlib.contextmanager
def fitting(words):
    """Errors over unfit content of a file become a ValueError with these words."""
    try:
        yield
    except UNFIT as error:
        raise ValueError(f"{words} ({type(error).__name__}: {error})") from None


def earlier_results(path, entries, program, document=iter):
    """The results in a file, a list of dicts that have these entries; none if there is no file. ValueError for anything else.
    document: as in `write_results`, tried before anything is measured. OSError if the file can not be written."""
    check_writable(path)
    found = content_of_file(path) if Path(path).exists() else []
    if not isinstance(found, list) or any(not isinstance(r, dict) or not set(entries) <= r.keys() for r in found):
        raise ValueError(f"{path} holds no results of {program}: give another name")
    with fitting(f"{path} holds results of {program} that are damaged: give another name"):
        list(document(found) if found else ())
    return found


def write_results(path, before, result, problem, document):
    """Write the earlier results, with a new one in the place of its problem's, as JSON and beside it as Markdown. problem: the
    entries that name it. document: a function of all results that yields lines."""
    results = [*(one for one in before if any(one[name] != result[name] for name in problem)), result]
    report.write_text(path, json.dumps(results, indent=1) + "\n")
    report.write_text(Path(path).with_suffix(".md"), "\n".join(document(results)) + "\n")
