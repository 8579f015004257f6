"""What Linux counts of a process, of the cores that it may use and of its limits: the counters at one moment.

| counter                                      | where it stands                                                           |
|----------------------------------------------|---------------------------------------------------------------------------|
| seconds that a core was not busy, was stolen | `/proc/stat`: idle, iowait, irq and softirq; steal (`man 5 proc_stat`)    |
| seconds ready to run but without a core      | `/proc/self/task/*/schedstat`, the second number, nanoseconds, of threads |
| seconds in which some process waited         | `/proc/pressure/cpu`, `some .. total`, microseconds                       |
| seconds held back by a limit                 | `cpu.stat` of the cgroup and those above it: `throttled_usec` (version 2) |
|                                              | or `throttled_time` in nanoseconds (version 1)                            |
| CPU seconds of processes above this one      | `/proc/PID/stat`: utime and stime, and the parent (`man 5 proc_pid_stat`) |
| clock of the core, and who sets it           | `/sys/devices/system/cpu/cpu*/cpufreq`, where the system tells it         |

The functions take a folder in place of `/`, so that tests can make up what stands there.
"""

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = 3, 4, 5, 6, 7  # the columns of a core in /proc/stat
PARENT, UTIME, STIME, CORE = 1, 11, 12, 36  # the words of /proc/PID/stat behind the name of the program
NOT_BUSY = IDLE, IOWAIT, IRQ, SOFTIRQ  # of interrupts nobody knows for whom they are: they often are this job's messages


@dataclass(frozen=True)
class Counters:
    """What was counted until a moment. Seconds, but for `preempted` (a count) and `mhz`; None where the system does not say.

    clock: of the machine, the same for all its processes. own: CPU time of this process with all its threads, and of its
    children that have ended. above: {process: CPU time} of those that started this one, such as launchers, and the switch of
    emulated hosts. waited: how long its threads were ready to run but had no core. preempted: how often they had to leave a
    core. cores: {core: (seconds not busy, seconds taken by the host of a virtual machine)} of the cores that this
    process may use. queued: how long some process of the machine waited for a core. throttled: how long the cgroup of this
    process was held back by a limit. mhz, governor: of the core on which the process runs.
    """

    clock: float
    own: float
    above: dict
    waited: float | None
    preempted: int
    cores: dict
    queued: float | None
    throttled: float | None
    mhz: float | None
    governor: str | None


def counters_now(root=ROOT):
    """The Counters of this moment; None where the system does not count so. It takes about a millisecond.

    root: the folder in which `proc` and `sys` lie.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    usage, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = time.process_time() + children.ru_utime + children.ru_stime
    ticks = os.sysconf("SC_CLK_TCK")
    cores = core_seconds(text_of(root / "proc/stat"), os.sched_getaffinity(0), ticks)
    if not cores:
        return None
    folder = root / f"sys/devices/system/cpu/cpu{own_core(text_of(root / 'proc/self/stat'))}/cpufreq"
    queued, governor = queued_seconds(text_of(root / "proc/pressure/cpu")), text_of(folder / "scaling_governor").strip() or None
    return Counters(
        time.monotonic(), own, above(root / "proc", ticks), waited_seconds(root), usage.ru_nivcsw, cores, queued,
        throttled_seconds(root), clock_of(folder), governor,
    )  # fmt: skip


def machine(root=ROOT):
    """An identifier of this machine. Emulated hosts on one machine share it. root: see `counters_now`."""
    return text_of(root / "proc/sys/kernel/random/boot_id").strip() or platform.node()


def text_of(path):
    """The text of a file; empty if it can not be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def core_seconds(text, cores, ticks):
    """{core: (seconds not busy, seconds stolen)} of these cores, from the text of /proc/stat.

    Empty unless all of them stand there. ticks: of a second.
    """
    found = {}
    for line in text.splitlines():
        name, *numbers = line.split() or [""]
        core = name.removeprefix("cpu")
        if name.startswith("cpu") and core.isdecimal() and int(core) in cores and len(numbers) > STEAL:
            found[int(core)] = sum(int(numbers[column]) for column in NOT_BUSY) / ticks, int(numbers[STEAL]) / ticks
    return found if len(found) == len(cores) else {}


def waited_seconds(root):
    """Seconds for which threads of this process were ready to run but had no core; None where the system does not say."""
    texts = [text_of(path).split() for path in (root / "proc/self/task").glob("*/schedstat")]
    waits = [int(words[1]) for words in texts if len(words) == 3]  # a thread may end while this is read
    return 1e-9 * sum(waits) if waits else None


def queued_seconds(text):
    """Seconds for which some process waited for a core, from the text of /proc/pressure/cpu; None where there is none."""
    for line in text.splitlines():
        kind, *words = line.split()
        totals = [word.removeprefix("total=") for word in words if word.startswith("total=")]
        if kind == "some" and totals:
            return 1e-6 * int(totals[0])
    return None


def throttled_seconds(root):
    """Seconds for which a limit held back the cgroup of this process, or one above it, the most of these; None if none says."""
    found = [throttled(text_of(path)) for path in cpu_stats(text_of(root / "proc/self/cgroup"), root / "sys/fs/cgroup")]
    return max((seconds for seconds in found if seconds is not None), default=None)


def cpu_stats(text, mounted):
    """The paths where `cpu.stat` of a cgroup and those above it may lie, in both versions, from /proc/self/cgroup."""
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        folders = ("cpu", "cpu,cpuacct") if controllers else (".", "unified")
        parts = [part for part in path.split("/") if part not in ("", "..")]  # those above a namespace are not to be seen
        for folder in folders:
            for depth in range(len(parts) + 1):
                yield mounted.joinpath(folder, *parts[:depth], "cpu.stat")


def throttled(text):
    """Seconds for which a cgroup was held back by its limit, from the text of its `cpu.stat`; None if that is not told."""
    entries = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
        if name in entries:
            return unit * int(entries[name])
    return None


def words_of(text):
    """The words of /proc/PID/stat behind the name of the program, which is in parentheses and may have some, and blanks."""
    return text.rpartition(")")[2].split()


def above(folder, ticks):
    """{process: CPU seconds} of the parent of this process, its parent, and so on. folder: /proc. ticks: of a second."""
    found, words = {}, words_of(text_of(folder / "self/stat"))
    while len(words) > CORE and (parent := int(words[PARENT])) > 0 and parent not in found:
        words = words_of(text_of(folder / f"{parent}/stat"))
        if len(words) > CORE:
            found[parent] = (int(words[UTIME]) + int(words[STIME])) / ticks
    return found


def own_core(text):
    """The core on which a process runs, from the text of its /proc/PID/stat; 0 if that is not told."""
    words = words_of(text)
    return int(words[CORE]) if len(words) > CORE else 0


def clock_of(folder):
    """The clock of a core in MHz, from its folder `cpufreq`; None if it is not told."""
    text = text_of(folder / "scaling_cur_freq").strip()
    return int(text) / 1e3 if text.isdecimal() and int(text) else None
