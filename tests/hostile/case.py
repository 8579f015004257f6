"""A case, and its judge: the reader runs in a process of its own that may compute, hold, write and wait only so much."""

import os
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from gridgrad.experiments.common.command import main
from gridgrad.experiments.common.options import user_input
from gridgrad.parallel.job.run import UserError, one_line
from tests.fuzz.bounded import LONGEST, READ, REFUSED, WRONG, Bounds, apart, origin

BOUNDS = Bounds(seconds=20, memory=3 << 30)
FREE = Bounds(seconds=3600, memory=1 << 40, written=1 << 40)
ALLOWED = 512 << 20  # bytes of memory that a case may touch
ODD = "Cc", "Cs", "Cf", "Zl", "Zp"  # the categories of what a terminal takes for more than a letter


@dataclass(frozen=True)
class Case:
    """make: puts files into a folder, beside which is a folder `outside`. read: reads them as a program does; it may return
    something. right: whether that is right, of it and the folder; None where the case must be refused. goes: patterns of the
    paths that may be changed or go away."""

    kind: str
    name: str
    make: Callable
    read: Callable
    right: Callable | None = lambda value, folder: True
    goes: tuple = ()
    may_refuse: bool = True


def judged(case, root):
    """(READ, REFUSED or WRONG; words; seconds of a processor; bytes that were touched beyond the program's own) of a case.

    root: an empty folder, in which all of it happens.
    """
    folder = root / "work"
    folder.mkdir()
    (root / "outside").mkdir()

    def make():
        case.make(folder)
        return READ, ""

    made, words, *_ = apart(make, root / "making", FREE)
    if made != READ:
        raise RuntimeError(f"{case.kind}: {case.name}: its files can not be made: {words}")
    before = snapshot(root)
    outcome, words, seconds, held = apart(lambda: in_child(case, folder, root), root / "printed", BOUNDS)
    if outcome != WRONG and (harm := f"touches {held >> 20} MiB" if held > ALLOWED else changes(before, root, case.goes)):
        outcome, words = WRONG, harm
    if outcome == REFUSED and not case.may_refuse:
        outcome, words = WRONG, f"refused: {words}"
    return outcome, words, seconds, held


def in_child(case, folder, root):
    """(outcome, words) of the reader, in this process. Nothing is started here but git, and bash to check a script."""

    def only_bash(popen, words, *rest, init=subprocess.Popen.__init__, **options):  # not a job of 100,000 ranks
        assert words[0] in ("bash", "git"), f"it starts {words[0]}"
        init(popen, words, *rest, **options)

    subprocess.Popen.__init__ = only_bash
    os.chdir(folder)
    os.environ |= {"GRIDGRAD_CACHE": str(root / "cache"), "GRIDGRAD_DATA": str(folder)}
    os.environ |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # nothing is fetched
    outcome, words = read(case, folder)
    if odd := {char for char in words + said(folder) if unicodedata.category(char) in ODD and char not in "\n\t\r\ufeff"}:
        outcome, words = WRONG, f"prints {ascii(min(odd))}"
    return outcome, words


def said(folder):
    """All that was printed so far."""
    sys.stdout.flush()
    sys.stderr.flush()
    return (folder.parent / "printed").read_text(errors="replace")


def read(case, folder):
    """(outcome, words) of a reader in this process; a program ends with status 2 and one line of an error if it refuses."""
    try:
        with user_input():
            value = case.read(folder)
    except UserError as error:
        line, cause = one_line(error), error
        while cause is not None and not isinstance(cause, MemoryError):
            cause = cause.__cause__ or cause.__context__
        wrong = cause and "refused only where memory is limited" or len(line) > LONGEST and "too long a line"
        return (WRONG, f"{wrong}, in {origin(error)}: {line[:120]}") if wrong else (REFUSED, line)
    except SystemExit as ending:  # of a program
        errors = [line for line in said(folder).splitlines() if ": error:" in line]
        right = ending.code == 2 and len(errors) == 1 and "Traceback" not in said(folder)
        return (REFUSED, errors[0]) if right else (WRONG, f"ends with status {ending.code}: {said(folder)[-300:]!r}")
    if case.right is None or not case.right(value, folder):
        return WRONG, f"is read{'' if value is None else f' as {value}'[:160]}"
    return READ, ""


def program(*words):
    """A reader that is `gridgrad WORD ..` in a folder; returns what was printed."""

    def run(folder):
        os.chdir(folder)
        sys.argv = ["gridgrad", *words]
        try:
            main()
        except SystemExit as ending:
            if ending.code:
                raise
        return said(folder)

    return run


def snapshot(root):
    """{path: what is there} of all in a folder but what the child prints and caches. Links are not followed."""
    found = {}
    for path, folders, files in (one for name in ("work", "outside") for one in os.walk(root / name)):
        for name in folders + files:
            at = os.path.join(path, name)
            status = os.lstat(at)
            content = os.readlink(at) if stat.S_ISLNK(status.st_mode) else None
            if stat.S_ISREG(status.st_mode):
                content = Path(at).read_bytes() if status.st_size < 1 << 22 else status.st_size
            found[os.path.relpath(at, root)] = stat.S_IFMT(status.st_mode), content
    return found


def changes(before, root, goes):
    """Words about the first path that is changed or gone against the rules, or that is new where nothing of ours belongs."""
    after = snapshot(root)
    for path, what in before.items():
        if after.get(path) != what and not any(fnmatch(path, pattern) for pattern in goes):
            return f"{'changes' if path in after else 'deletes'} {ascii(path)}"
    odd = [path for path in after.keys() - before.keys() if Path(path).name.startswith(".") or path.startswith("outside")]
    odd += [path for path in after if Path(path).name == "executed"]  # what the code in hostile files makes
    return f"leaves {ascii(min(odd))} behind" if odd else ""
