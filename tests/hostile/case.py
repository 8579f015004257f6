"""A case, and its judge: the reader runs in a child process that may compute, hold, write and wait only so much."""

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import time
import unicodedata
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from gridgrad.experiments.common.options import user_input
from gridgrad.parallel.job.run import UserError, one_line
from tests.fuzz.target import LONGEST, origin

SECONDS, IDLE = 4, 3  # of the processor; in which nothing happens
MEMORY, ALLOWED = 2 << 30, 512 << 20  # bytes beyond those of this process: of addresses, where it ends; that may be touched
WRITTEN = 256 << 20  # bytes of a file
ENDS = {signal.SIGPROF: f"computes for more than {SECONDS} s", signal.SIGXFSZ: f"writes more than {WRITTEN >> 20} MiB"}
READ, REFUSED, WRONG = "read right", "refused in one line", "wrong"


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
    """(READ or REFUSED or WRONG, words) of a case. root: an empty folder for it, in which all of it happens."""
    folder, outside = root / "work", root / "outside"
    folder.mkdir()
    outside.mkdir()
    case.make(folder)
    before, base = snapshot(root), int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receive)
        in_child(case, folder, root, send)
    os.setpgid(process, process)
    os.close(send)
    status, usage = waited(process)
    with os.fdopen(receive, "rb") as answers:
        answer = answers.read()
    printed = (root / "printed").read_text(errors="replace")
    if status is None:
        return WRONG, "hangs"
    if os.WIFSIGNALED(status):
        return WRONG, ENDS.get(os.WTERMSIG(status), f"is ended by signal {os.WTERMSIG(status)}")
    verdict, words = json.loads(answer) if answer else of_program(os.WEXITSTATUS(status), printed)
    if verdict != WRONG:
        held = usage.ru_maxrss * 1024 - base
        harm = f"touches {held >> 20} MiB" if held > ALLOWED else odd_characters(printed) or changes(before, root, case.goes)
        verdict, words = (WRONG, harm) if harm else (verdict, words)
    if verdict == REFUSED and not case.may_refuse:
        return WRONG, f"refused: {words}"
    return verdict, words


def in_child(case, folder, root, send):
    """Read, tell the parent what became of it, and end. Nothing is started here but bash, to check a script, and git."""
    subprocess.Popen.__init__ = only_bash
    verdict = None
    try:
        os.chdir(folder)
        os.environ |= {"GRIDGRAD_CACHE": str(root / "cache"), "GRIDGRAD_DATA": str(folder)}
        os.environ |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # nothing is fetched
        with open(root / "printed", "ab") as printed:
            for number in (1, 2):
                os.dup2(printed.fileno(), number)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        warnings.simplefilter("ignore")
        verdict = outcome(case, folder)
    except SystemExit as ending:  # a program has said what is wrong
        verdict = of_program(ending.code or 0, (root / "printed").read_text(errors="replace"))
    finally:
        os.write(send, json.dumps(verdict or (WRONG, "the judge fails")).encode())
        os._exit(0)


def only_bash(popen, words, *rest, init=subprocess.Popen.__init__, **options):
    """In the place of Popen's: a case that starts a job of 100,000 ranks is wrong, and the machine must outlive it."""
    if words[0] not in ("bash", "git"):
        raise AssertionError(f"it starts {words[0]}")
    init(popen, words, *rest, **options)


def outcome(case, folder):
    """(READ or REFUSED or WRONG, words) of a reader in this process."""
    try:
        with user_input():
            value = case.read(folder)
    except UserError as error:
        line, cause = one_line(error), error
        while cause is not None:
            if isinstance(cause, MemoryError):
                return WRONG, f"is refused only where memory is limited, in {origin(error)}: {line[:120]}"
            cause = cause.__cause__ or cause.__context__
        if strange := odd_characters(line) or len(line) > LONGEST and "too long a line":
            return WRONG, f"{strange}: {ascii(line)[:120]}"
        return REFUSED, line
    except (Exception, KeyboardInterrupt) as error:
        return WRONG, f"{type(error).__name__} in {origin(error)}: {ascii(one_line(error))[:120]}"
    if case.right is None:
        return WRONG, f"is read{'' if value is None else f' as {value}'[:120]}"
    return (READ, "") if case.right(value, folder) else (WRONG, f"reads {value!r}"[:160])


def of_program(status, printed):
    """The same of a program in this process that has ended with a status; a refusal is status 2 and one line of an error."""
    errors = [line for line in printed.splitlines() if ": error:" in line]
    if "Traceback" in printed or status not in (0, 2) or (status == 2) != (len(errors) == 1):
        return WRONG, f"ends with status {status}: {' | '.join(printed.splitlines()[-3:])[-300:]}"
    return (READ, "") if status == 0 else (REFUSED, errors[0])


def waited(process):
    """(status, usage) of a child process; None for both if it had to be killed, with all that it has started.

    It hangs if nothing of its group runs or wants to for IDLE seconds: a busy machine does not look like a hang.
    """
    last, idle, began = None, 0, time.monotonic()
    while idle < IDLE:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            os.killpg(process, signal.SIGKILL)  # whatever it has started, before its number can become another one's
            return os.wait4(process, 0)[1:]
        if time.monotonic() - began < 1:
            time.sleep(0.004)
            continue
        time.sleep(0.1)
        now = work(process)
        idle, last = 0 if now != last or "R" in now else idle + 0.1, now
    os.killpg(process, signal.SIGKILL)
    os.wait4(process, 0)
    return None, None


def work(group):
    """The states and the ticks of the processor of all processes of a group."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
            if words[2] == str(group):
                found += words[0], words[11], words[12]
    return found


def odd_characters(text):
    """Words if a text has what a terminal takes for more than a letter."""
    odd = {char for char in text if unicodedata.category(char) in ("Cc", "Cs", "Cf", "Zl", "Zp") and char not in "\n\t\r\ufeff"}
    return f"prints {ascii(sorted(odd)[0])}" if odd else ""


def snapshot(root):
    """{path: what is there} of all in a folder but what the child prints and caches. Links are not followed."""
    found = {}
    for path, folders, files in os.walk(root):
        if path == str(root):
            folders[:] = ["work", "outside"]
            files = []
        for name in folders + files:
            at = os.path.join(path, name)
            mode, size = os.lstat(at).st_mode, os.lstat(at).st_size
            content = os.readlink(at) if stat.S_ISLNK(mode) else None
            if stat.S_ISREG(mode) and size < 1 << 22:
                content = Path(at).read_bytes()
            found[os.path.relpath(at, root)] = stat.S_IFMT(mode), content
    return found


def changes(before, root, goes):
    """Words about the first path that is changed or gone against the rules, or that is hidden and was left behind."""
    after = snapshot(root)
    for path, what in before.items():
        if after.get(path) != what and not any(fnmatch(path, pattern) for pattern in goes):
            return f"{'changes' if path in after else 'deletes'} {ascii(path)}"
    hidden = [path for path in after.keys() - before.keys() if Path(path).name.startswith(".")]
    return f"leaves {ascii(sorted(hidden)[0])} behind" if hidden else ""


def emptied(root):
    """Make a folder empty again, also where names and permissions are odd."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
