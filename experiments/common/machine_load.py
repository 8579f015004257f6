"""How busy a machine was with other things while something was measured, and whether the measurement counts all the same.

A Watch reads the counters of the system at its start and at its end, in each rank. What the cores of the job did beyond the
ranks' own computing was for others. So ranks that share cores with each other do not count as others, nor does an MPI library
that spins while it waits, nor do the processes that started the ranks, such as the switch between emulated hosts. Cores that
the job may not use do not count at all.
"""

import os
import platform
import re
import resource
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import mean

import psutil

from gridgrad.parallel.calibration.timing import machine

PROC, SYS = Path("/proc"), Path("/sys")
QUIET = 0.15  # cores that may be taken from a quiet machine; of many cores more:
EACH, LIMIT = 0.005, 0.5  # this share of each core, for the system's own work, but less than one loop of another program takes
TICK, ROUNDED = 0.01, 4.0  # seconds of a tick of /proc/stat; how many standard deviations of its rounding are allowed for


@dataclass(frozen=True)
class Counters:
    """What a rank has counted until a moment, or `between` two: mostly seconds, and None where the system does not say."""

    seconds: float  # of the machine's clock
    own: float  # CPU time of the process with all its threads, and of its children that have ended
    above: dict  # {process: CPU time} of those that started it, such as launchers and the switch of emulated hosts
    cores: dict  # {core: (seconds not busy, seconds taken by the host of a virtual machine)} of those that it may use
    throttled: float | None = None  # for which a limit held back its cgroup
    host: str = platform.node()
    machine: str = machine()


def counters_now():
    """The Counters of this moment; None where the system does not count so. It takes some milliseconds."""
    cores = core_seconds()
    if not cores:
        return None
    children, above = resource.getrusage(resource.RUSAGE_CHILDREN), {}
    own = time.process_time() + children.ru_utime + children.ru_stime
    with suppress(psutil.Error):  # one has ended meanwhile, or is not to be seen
        for process in psutil.Process().parents():
            above[process.pid] = sum(process.cpu_times()[:2])
    return Counters(time.monotonic(), own, above, cores, throttled_seconds())


def text_of(path):
    """The text of a file; empty if it can not be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def core_seconds():
    """{core: (seconds not busy, seconds stolen)} of the cores that this process may use; empty where that is not known."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    mine, times = os.sched_getaffinity(0), psutil.cpu_times(percpu=True)
    online, whole = text_of(SYS / "devices/system/cpu/online").strip(), f"0-{len(times) - 1}" if len(times) > 1 else "0"
    if max(mine) >= len(times) or online not in ("", whole):  # psutil leaves out cores that are off, and tells no numbers
        return {}
    # interrupts often are this job's messages, so they are no work of others
    return {core: (of.idle + of.iowait + of.irq + of.softirq, of.steal) for core, of in enumerate(times) if core in mine}


def throttled_seconds():
    """Seconds for which a limit held back the cgroup of this process, or one above it, the most of these; None if none says."""
    found, units = [], {"usec": 1e-6, "time": 1e-9}  # of version 2 of cgroups, of version 1
    for controllers, path in re.findall(r"^\d+:(.*?):/(.*)$", text_of(PROC / "self/cgroup"), re.MULTILINE):
        if not controllers or "cpu" in controllers.split(","):
            folder = SYS / "fs/cgroup" / ("cpu" if controllers else "") / path
            for one in (folder, *folder.parents):
                said = re.findall(r"^throttled_(usec|time) (\d+)$", text_of(one / "cpu.stat"), re.MULTILINE)
                found += [units[unit] * int(number) for unit, number in said]
    return max(found, default=None)


class Watch:
    """Watches the machine of this rank from now on. It does not communicate, and does nothing between start and end."""

    def __init__(self):
        self._start = counters_now()

    def seen(self):
        """The Counters from the start of the watch until now; None where the system does not say."""
        return between(self._start, counters_now())


def between(start, end):
    """What was counted from one moment to another; None if one is not known, or if the rank may use other cores now."""
    if start is None or end is None or start.cores.keys() != end.cores.keys():
        return None
    return replace(
        end,
        above={process: difference(start.above.get(process), total) or 0.0 for process, total in end.above.items()},
        cores={core: tuple(map(difference, start.cores[core], counted)) for core, counted in end.cores.items()},
        **{name: difference(getattr(start, name), getattr(end, name)) for name in ("seconds", "own", "throttled")},
    )


def difference(before, after):
    """after - before, at least 0, since a thread that has ended takes its counters along; None if one of them is None."""
    return None if before is None or after is None else max(after - before, 0)


def seen_asleep(seconds=1.0):
    """The Counters of so many seconds in which this rank sleeps; None where the system does not say."""
    watch = Watch()
    time.sleep(seconds)
    return watch.seen()


@dataclass(frozen=True)
class MachineLoad:
    """How busy the machine of a job was: the entries of a report, without the verdict, which follows from them."""

    seconds: float  # that were watched, the most of a rank
    nodes: int  # of the job
    host: str  # the node of which most was taken: the next five are its own
    cores: int  # that the ranks of the job may use there
    ranks: int  # that are there
    ours: float  # cores that these ranks kept busy, a mean over the time like the next two
    others: float  # cores that other processes took
    stolen: float  # cores that the host of a virtual machine took
    throttled: float | None  # seconds for which a limit of the cgroup held back a rank, the most of all; None: nobody knows

    @property
    def withheld(self):
        """How many cores a limit of the cgroup withheld, mean over the time."""
        return (self.throttled or 0.0) / max(self.seconds, 1e-9)

    @property
    def taken(self):
        """How many cores were taken, or withheld by a limit, mean over the time."""
        return self.others + self.stolen + self.withheld

    @property
    def allowed(self):
        """The most cores that may be taken from a quiet machine. The counters of cores are whole ticks: the difference of two
        rounded numbers deviates by a tick / sqrt(6), and that of the sum of all cores by sqrt(cores) times as much, so that of
        a short time less is known."""
        return max(QUIET, min(EACH * self.cores, LIMIT)) + ROUNDED * TICK * sqrt(self.cores / 6) / max(self.seconds, 1e-9)

    @property
    def words(self):
        """What was taken, for people, such as "of 2 cores 1.3 were taken by others"."""
        told = [f"{round(self.others, 2):.2g} were taken by others"]
        if self.stolen >= QUIET / 2:
            told.append(f"{self.stolen:.2g} by the host of this virtual machine")
        if self.withheld >= QUIET / 2:
            told.append(f"{self.withheld:.2g} withheld by the limit of the cgroup")
        where = f" of {self.host}" if self.nodes > 1 else ""
        return f"of {self.cores} core{'s' * (self.cores > 1)}{where} {', '.join(told)}"

    @property
    def verdict(self):
        """None if the machine was quiet; else words for people why times that were measured meanwhile do not count."""
        return f"{self.words}: not comparable" if self.taken > self.allowed else None

    def entry(self):
        """The entry `load` of a report. verdict: null if the machine was quiet, else why times do not count."""
        return asdict(self) | {"verdict": self.verdict}


def load_of_job(comm, seen):
    """The MachineLoad of the worst node of a job; None if a rank knows nothing. Collective. seen: of a Watch of this rank."""
    machines = comm.allgather(seen and seen.machine)
    if None in machines:
        return None
    node = comm.Split(machines.index(seen.machine), comm.rank)
    here = node.gather(seen)
    node.Free()
    return load_of_nodes([load for load in comm.allgather(here and load_of_node(here)) if load])


def load_of_process(seen):
    """The MachineLoad of a process that measures alone; None if it knows nothing. seen: Counters of a Watch, or None."""
    return seen and load_of_node([seen])


def load_of_node(ranks):
    """The MachineLoad of one node. ranks: the Counters of all ranks there. Ranks may start and end their watches at different
    moments: rates are added, and of what several ranks have watched, a core or a process that started them, the mean of the
    rates counts."""

    def sum_of_means(watched):  # {thing: seconds} of each rank
        rates = defaultdict(list)
        for of, things in zip(ranks, watched, strict=True):
            for thing, seconds in things.items():
                rates[thing].append(seconds / max(of.seconds, 1e-9))
        return sum(map(mean, rates.values()))

    busy = sum_of_means([{core: max(0.0, of.seconds - sum(two)) for core, two in of.cores.items()} for of in ranks])
    ours = sum(of.own / max(of.seconds, 1e-9) for of in ranks) + sum_of_means([of.above for of in ranks])
    return MachineLoad(
        seconds=max(of.seconds for of in ranks), nodes=1, host=ranks[0].host, ranks=len(ranks),
        cores=len({core for of in ranks for core in of.cores}), ours=ours, others=max(0.0, busy - ours),
        stolen=sum_of_means([{core: taken for core, (_, taken) in of.cores.items()} for of in ranks]),
        throttled=most_throttled(ranks),
    )  # fmt: skip


def load_of_nodes(loads):
    """The MachineLoad of a job from those of its nodes: the worst of them."""
    worst = max(loads, key=lambda load: load.taken - load.allowed)
    return replace(worst, nodes=len(loads), seconds=max(load.seconds for load in loads), throttled=most_throttled(loads))


def most_throttled(found):
    """The most seconds for which one of several ranks or nodes was held back; None if none knows."""
    return max((one.throttled for one in found if one.throttled is not None), default=None)


def verdict_of(report):
    """Why the times of a report are not comparable, in words; None if the machine was quiet, or nothing is known of it."""
    return (report.get("load") or {}).get("verdict")
