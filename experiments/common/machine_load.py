"""How busy a machine was with other things while something was measured, and whether the measurement counts all the same.

A Watch reads the counters of the system at its start and at its end, in each rank. What the cores of the job did beyond the
ranks' own computing was for others. So ranks that share cores with each other do not count as others, nor does an MPI library
that spins while it waits, nor do the processes that started the ranks, such as the switch between emulated hosts. Cores that
the job may not use do not count at all.

psutil tells most of it, and files of Linux the rest. The entry `load` of a report has the form LOAD; null: nothing is known.
"""

import os
import platform
import re
import resource
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path

import psutil

from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, WHOLE, Optional
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
    queued: float | None = None  # for which some process of the machine waited for a core
    waited: float | None = None  # for which its threads were ready to run but had no core
    preempted: int = 0  # how often they had to leave a core
    throttled: float | None = None  # for which a limit held back its cgroup
    mhz: float | None = None  # of the core on which it runs
    governor: str | None = None  # who sets that
    host: str = platform.node()
    machine: str = machine()


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
        seconds=time.monotonic(), own=time.process_time() + children.ru_utime + children.ru_stime, above=above(), cores=cores,
        queued=seconds_in(PROC / "pressure/cpu", r"^some .*total=(?P<usec>\d+)"),
        waited=1e-9 * sum(int(found[1]) for found in waits if found) if any(waits) else None,  # a thread may have ended
        preempted=usage.ru_nivcsw, throttled=throttled_seconds(),
        mhz=int(clock) / 1e3 if clock.isdecimal() and int(clock) else None, governor=governor or None,
    )  # fmt: skip


def text_of(path):
    """The text of a file; empty if it can not be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def core_seconds():
    """{core: (seconds not busy, seconds stolen)} of the cores that this process may use; empty where that is not known. Nobody
    knows for whom interrupts are: they often are this job's messages, so they are no work of others."""
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
    with suppress(psutil.Error):  # one has ended meanwhile
        for process in psutil.Process().parents():
            found[process.pid] = sum(process.cpu_times()[:2])
    return found


def throttled_seconds():
    """Seconds for which a limit held back the cgroup of this process, or one above it, the most of these; None if none says."""
    found = []
    for controllers, path in re.findall(r"^\d+:(.*?):/(.*)$", text_of(PROC / "self/cgroup"), re.MULTILINE):
        if not controllers or "cpu" in controllers.split(","):
            folder = SYS / "fs/cgroup" / ("cpu" if controllers else "") / path
            units = r"^throttled_(?:usec (?P<usec>\d+)|time (?P<nsec>\d+))$"  # of version 2, of version 1
            found += [seconds_in(one / "cpu.stat", units) for one in (folder, *folder.parents)]
    return most(found)


def seconds_in(path, pattern):
    """Seconds that a file tells, None if it does not. pattern: has a group `usec`, or one of `usec` and `nsec`."""
    found = re.search(pattern, text_of(path), re.MULTILINE)
    units = {"usec": 1e-6, "nsec": 1e-9}
    return next((units[name] * int(text) for name, text in found.groupdict().items() if text), None) if found else None


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
    summed = "seconds", "own", "queued", "waited", "preempted", "throttled"
    return replace(
        end,
        above={process: difference(start.above.get(process), total) or 0.0 for process, total in end.above.items()},
        cores={core: tuple(map(difference, start.cores[core], counted)) for core, counted in end.cores.items()},
        mhz=min((mhz for mhz in (start.mhz, end.mhz) if mhz is not None), default=None),
        **{name: difference(getattr(start, name), getattr(end, name)) for name in summed},
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
    """How busy the machine of a job was: the entries of a report and their forms, without the verdict, which follows from them.
    Of `queued` to `throttled` the greatest of all nodes or ranks is told, null where the system does not say."""

    seconds: AT_LEAST_0  # that were watched, the most of a rank
    nodes: WHOLE  # of the job
    host: TEXT  # the node of which most was taken: the next five are its own
    cores: WHOLE  # that the ranks of the job may use there
    ranks: WHOLE  # that are there
    ours: AT_LEAST_0  # cores that these ranks kept busy, a mean over the time like the next two
    others: AT_LEAST_0  # cores that other processes took
    stolen: AT_LEAST_0  # cores that the host of a virtual machine took
    queued: Optional(AT_LEAST_0)  # the share of the time in which a process of a node, also one of ours, waited for a core
    waited: Optional(AT_LEAST_0)  # seconds that a rank was ready to run without a core
    preempted: COUNT  # how often a rank had to leave a core
    throttled: Optional(AT_LEAST_0)  # seconds for which a limit of the cgroup held back a rank
    mhz: Optional(AT_LEAST_0)  # the lowest clock seen of a core of a rank, at the start or the end
    governor: Optional(TEXT)  # who sets it

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
        """The entry `load` of a report, see LOAD."""
        return asdict(self) | {"verdict": self.verdict}


LOAD = {**MachineLoad.__annotations__, "verdict": Optional(TEXT)}  # null if the machine was quiet, else why times do not count


def load_of_job(comm, seen):
    """The MachineLoad of all ranks of a job, that of the worst node; None if a rank knows nothing. Collective. seen: the
    Counters of a Watch of this rank, or None."""
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

    def rate(seconds, of):
        return seconds / max(of.seconds, 1e-9)

    def sum_of_means(watched):  # {thing: seconds} of each rank
        rates = {}
        for of, things in zip(ranks, watched, strict=True):
            for thing, seconds in things.items():
                rates.setdefault(thing, []).append(rate(seconds, of))
        return sum(sum(found) / len(found) for found in rates.values())

    busy = sum_of_means([{core: max(0.0, of.seconds - sum(two)) for core, two in of.cores.items()} for of in ranks])
    ours = sum(rate(of.own, of) for of in ranks) + sum_of_means([of.above for of in ranks])
    return MachineLoad(
        nodes=1, host=ranks[0].host, cores=len({core for of in ranks for core in of.cores}), ranks=len(ranks),
        ours=ours, others=max(0.0, busy - ours),
        stolen=sum_of_means([{core: taken for core, (_, taken) in of.cores.items()} for of in ranks]),
        queued=most(of.queued and rate(of.queued, of) for of in ranks),
        governor=next((of.governor for of in ranks if of.governor), None), **extremes(ranks),
    )  # fmt: skip


def load_of_nodes(loads):
    """The MachineLoad of a job from those of its nodes: the worst of them. See LOAD."""
    worst = max(loads, key=lambda load: load.taken - load.allowed)
    return replace(worst, nodes=len(loads), queued=most(load.queued for load in loads), **extremes(loads))


def extremes(found):
    """The entries of which that of the rank or node counts where it is the most or, of the clock, the least."""
    greatest = {name: most(getattr(one, name) for one in found) for name in ("seconds", "waited", "preempted", "throttled")}
    return greatest | {"mhz": min((one.mhz for one in found if one.mhz is not None), default=None)}


def most(values):
    """The largest of the values that are not None; None if there is none."""
    return max((value for value in values if value is not None), default=None)


def verdict_of(report):
    """Why the times of a report are not comparable, in words; None if the machine was quiet, or nothing is known of it."""
    return (report.get("load") or {}).get("verdict")
