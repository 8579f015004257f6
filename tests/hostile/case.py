"""A case, and its judge: the reader runs in a child process that may compute, hold, write and wait only so much."""

import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from gridgrad.experiments.common.options import user_input
from gridgrad.parallel.job.run import UserError, one_line
from tests.fuzz.target import LONGEST, origin

SECONDS, WAITS = 20, 120  # of the processor; by the clock, many, since a busy machine must not look like a hang
MEMORY, ALLOWED, WRITTEN = 3 << 30, 512 << 20, 256 << 20  # bytes: of addresses; that a case may touch; of a file
ENDS = {signal.SIGPROF: f"computes for more than {SECONDS} s", signal.SIGXFSZ: f"writes more than {WRITTEN >> 20} MiB",
    signal.SIGALRM: "hangs"}  # fmt: skip
READ, REFUSED, WRONG = "read right", "refused in one line", "wrong"
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
    folder.mkdir(), (root / "outside").mkdir()
    made, words, *_ = apart(lambda: (case.make(folder), (READ, ""))[1], root / "making")
    if made != READ:
        raise RuntimeError(f"{case.kind}: {case.name}: its files can not be made: {words}")
    before = snapshot(root)
    outcome, words, seconds, held = apart(lambda: in_child(case, folder, root), root / "printed")
    if outcome != WRONG and (harm := f"touches {held >> 20} MiB" if held > ALLOWED else changes(before, root, case.goes)):
        outcome, words = WRONG, harm
    if outcome == REFUSED and not case.may_refuse:
        outcome, words = WRONG, f"refused: {words}"
    return outcome, words, seconds, held


def apart(action, printed):
    """What an action returns in a process of its own, or WRONG and what ended it; with seconds and bytes, as for `judged`.

    printed: the file of what it prints.
    """
    sys.stdout.flush()
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        base = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        with open(printed, "ab") as file:
            os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        for number in ENDS:
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(WAITS)
        try:
            answer = action()
        except BaseException as error:
            answer = WRONG, f"{type(error).__name__} in {origin(error)}: {ascii(one_line(error))[:160]}"
        os.write(send, json.dumps((*answer, base)).encode())
        os._exit(0)
    os.close(send)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # whatever it has started, before its number can become another one's
    _, ending, usage = os.wait4(process, 0)
    with os.fdopen(receive, "rb") as answers:
        *found, base = json.loads(answers.read() or json.dumps((WRONG, ENDS.get(ending, f"is ended by signal {ending}"), 0)))
    return *found, usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024 - base, 0)


def in_child(case, folder, root):
    """(outcome, words) of the reader, in this process. Nothing is started here but git, and bash to check a script."""

    def only_bash(popen, words, *rest, init=subprocess.Popen.__init__, **options):  # not a job of 100,000 ranks
        assert words[0] in ("bash", "git"), f"it starts {words[0]}"
        init(popen, words, *rest, **options)

    subprocess.Popen.__init__ = only_bash
    os.chdir(folder)
    os.environ |= {"GRIDGRAD_CACHE": str(root / "cache"), "GRIDGRAD_DATA": str(folder)}
    os.environ |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # nothing is fetched
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (addresses + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    warnings.simplefilter("ignore")
    outcome, words = read(case, folder)
    if odd := {char for char in words + said(folder) if unicodedata.category(char) in ODD and char not in "\n\t\r\ufeff"}:
        outcome, words = WRONG, f"prints {ascii(min(odd))}"
    return outcome, words


def said(folder):
    """All that was printed so far."""
    sys.stdout.flush(), sys.stderr.flush()
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

    def read(folder):
        from gridgrad.experiments.common.command import main

        os.chdir(folder)
        sys.argv = ["gridgrad", *words]
        try:
            main()
        except SystemExit as ending:
            if ending.code:
                raise
        return said(folder)

    return read


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
