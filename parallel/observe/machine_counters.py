"""What the system counts of a process, of the cores that it may use and of its limits: the counters at one moment.

psutil tells most of it. Linux alone tells how long threads were ready to run but had no core (`schedstat`), for how
long some process waited for one (`pressure/cpu`) and a limit held back the cgroup (`cpu.stat`), and who sets the clock.
"""

import os
import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC, SYS = Path("/proc"), Path("/sys")


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


def counters_now():
    """The Counters of this moment; None where the system does not count so. It takes some milliseconds."""
    cores = core_seconds()
    if not cores:
        return None
    usage, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    folder = SYS / f"devices/system/cpu/cpu{psutil.Process().cpu_num()}/cpufreq"
    waits = [re.match(r"\d+ (\d+) ", text_of(path)) for path in PROC.glob("self/task/*/schedstat")]
    clock, governor = (text_of(folder / name).strip() for name in ("scaling_cur_freq", "scaling_governor"))
    return Counters(
        clock=time.monotonic(),
        own=time.process_time() + children.ru_utime + children.ru_stime,
        above=above(),
        waited=1e-9 * sum(int(found[1]) for found in waits if found) if any(waits) else None,  # a thread may have ended
        preempted=usage.ru_nivcsw,
        cores=cores,
        queued=seconds_in(PROC / "pressure/cpu", r"^some .*total=(?P<usec>\d+)"),
        throttled=throttled_seconds(),
        mhz=int(clock) / 1e3 if clock.isdecimal() and int(clock) else None,
        governor=governor or None,
    )


def machine():
    """An identifier of this machine. Emulated hosts on one machine share it."""
    return text_of(PROC / "sys/kernel/random/boot_id").strip() or platform.node()


def text_of(path):
    """The text of a file; empty if it can not be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def core_seconds():
    """{core: (seconds not busy, seconds stolen)} of the cores that this process may use; empty where that is not known.

    Nobody knows for whom interrupts are: they often are this job's messages, so they are no work of others.
    """
    if not hasattr(os, "sched_getaffinity"):
        return {}
    mine, times = os.sched_getaffinity(0), psutil.cpu_times(percpu=True)
    online, whole = text_of(SYS / "devices/system/cpu/online").strip(), f"0-{len(times) - 1}" if len(times) > 1 else "0"
    if max(mine) >= len(times) or online not in ("", whole):  # psutil leaves out cores that are off, and tells no numbers
        return {}
    return {core: (of.idle + of.iowait + of.irq + of.softirq, of.steal) for core, of in enumerate(times) if core in mine}


def above():
    """{process: CPU seconds} of the parent of this process, its parent, and so on, where they are to be seen."""
    found = {}
    try:
        for process in psutil.Process().parents():
            found[process.pid] = sum(process.cpu_times()[:2])
    except psutil.Error:  # it has ended meanwhile
        pass
    return found


def throttled_seconds():
    """Seconds for which a limit held back the cgroup of this process, or one above it, the most of these; None if none says."""
    found = []
    for controllers, path in re.findall(r"^\d+:(.*?):/(.*)$", text_of(PROC / "self/cgroup"), re.MULTILINE):
        if not controllers or "cpu" in controllers.split(","):
            folder = SYS / "fs/cgroup" / ("cpu" if controllers else "") / path
            units = r"^throttled_(?:usec (?P<usec>\d+)|time (?P<nsec>\d+))$"  # of version 2, of version 1
            found += [seconds_in(one / "cpu.stat", units) for one in (folder, *folder.parents)]
    return max((seconds for seconds in found if seconds is not None), default=None)


def seconds_in(path, pattern):
    """Seconds that a file tells, None if it does not. pattern: has a group `usec`, or one of `usec` and `nsec`."""
    found = re.search(pattern, text_of(path), re.MULTILINE)
    units = {"usec": 1e-6, "nsec": 1e-9}
    return next((units[name] * int(text) for name, text in found.groupdict().items() if text), None) if found else None
