"""How busy a machine was with other things while something was measured, and whether the measurement counts all the same.

A Watch reads the counters of the system at its start and at its end, in each rank. What the cores of the job did beyond the
ranks' own computing was for others. So ranks that share cores with each other do not count as others, nor does an MPI library
that spins while it waits, nor do the processes that started the ranks, such as the switch between emulated hosts. Cores that
the job may not use do not count at all.

The entry `load` of a report has the form LOAD, or is null where nothing is known:

| entry                 | what it says                                                                               |
|-----------------------|--------------------------------------------------------------------------------------------|
| `seconds`             | that were watched, the most of a rank                                                      |
| `nodes`, `host`       | how many nodes the job has; the one of which most was taken: the next five are its own     |
| `cores`, `ranks`      | cores that the ranks of the job may use there, and how many ranks these are                |
| `ours`                | cores that these ranks kept busy, a mean over the time like the next two                   |
| `others`, `stolen`    | cores that other processes took, and the host of a virtual machine                         |
| `queued`              | the share of the time in which a process of a node, also one of ours, waited for a core    |
| `waited`, `preempted` | seconds that a rank was ready to run without a core; how often it had to leave one         |
| `throttled`           | seconds for which a limit of the cgroup held back a rank                                   |
| `mhz`, `governor`     | the lowest clock seen of a core of a rank, at the start or the end; who sets it            |
| `verdict`             | null if the machine was quiet; else words why times are not comparable                     |

Of `queued` to `throttled` the greatest of all nodes or ranks is told, null where the system does not say. psutil tells most of
it. Linux alone tells how long threads were ready to run but had no core (`schedstat`), for how long some process waited for one
(`pressure/cpu`) and a limit held back the cgroup (`cpu.stat`), and who sets the clock.
"""

import os
import platform
import re
import resource
import time
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path

import psutil

from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, WHOLE, Optional
from gridgrad.parallel.calibration.timing import machine

PROC, SYS = Path("/proc"), Path("/sys")
QUIET = (
    0.15  # cores that may be taken from a quiet machine: results/machine_load.json has what was measured; of many cores more:
)
EACH, LIMIT = 0.005, 0.5  # this share of each core, for the system's own work, but less than one loop of another program takes
TICK, ROUNDED = 0.01, 4.0  # seconds of a tick of /proc/stat; how many standard deviations of its rounding are allowed for
LOAD = {
    "seconds": AT_LEAST_0, "nodes": WHOLE, "host": TEXT, "cores": WHOLE, "ranks": WHOLE,
    "ours": AT_LEAST_0, "others": AT_LEAST_0, "stolen": AT_LEAST_0,
    "queued": Optional(AT_LEAST_0), "waited": Optional(AT_LEAST_0), "preempted": COUNT, "throttled": Optional(AT_LEAST_0),
    "mhz": Optional(AT_LEAST_0), "governor": Optional(TEXT), "verdict": Optional(TEXT),
}  # fmt: skip


@dataclass(frozen=True)
class RankLoad:
    """What a rank has seen of its machine while it watched.

    machine: an identifier of the machine. host: its name. seconds: of the watch. own: CPU seconds of the rank. above:
    {process: CPU seconds} of those that started it. cores: {core: (seconds busy, seconds stolen)} of the cores that it may use.
    The others: see LOAD.
    """

    machine: str
    host: str
    seconds: float
    own: float
    above: dict
    cores: dict
    queued: float | None
    waited: float | None
    preempted: int
    throttled: float | None
    mhz: float | None
    governor: str | None


@dataclass(frozen=True)
class MachineLoad:
    """How busy the machine of a job was: the entries of LOAD but for the verdict, which follows from them."""

    seconds: float
    nodes: int
    host: str
    cores: int
    ranks: int
    ours: float
    others: float
    stolen: float
    queued: float | None
    waited: float | None
    preempted: int
    throttled: float | None
    mhz: float | None
    governor: str | None

    @property
    def taken(self):
        """How many cores were taken, or withheld by a limit, mean over the time."""
        return self.others + self.stolen + self._withheld

    @property
    def allowed(self):
        """The most cores that may be taken from a quiet machine.

        The counters of cores are whole ticks, so that of a short time less is known: the difference of two rounded numbers
        deviates by a tick / sqrt(6), and that of the sum of all cores by sqrt(cores) times as much.
        """
        return max(QUIET, min(EACH * self.cores, LIMIT)) + ROUNDED * TICK * sqrt(self.cores / 6) / max(self.seconds, 1e-9)

    @property
    def verdict(self):
        """None if the machine was quiet; else words for people why times that were measured meanwhile do not count."""
        return f"{self.words}: not comparable" if self.taken > self.allowed else None

    @property
    def words(self):
        """What was taken, for people, such as "of 2 cores 1.3 were taken by others"."""
        told = [f"{round(self.others, 2):.2g} were taken by others"]
        if self.stolen >= QUIET / 2:
            told.append(f"{self.stolen:.2g} by the host of this virtual machine")
        if self._withheld >= QUIET / 2:
            told.append(f"{self._withheld:.2g} withheld by the limit of the cgroup")
        where = f" of {self.host}" if self.nodes > 1 else ""
        return f"of {self.cores} core{'s' * (self.cores > 1)}{where} {', '.join(told)}"

    @property
    def _withheld(self):
        return (self.throttled or 0.0) / max(self.seconds, 1e-9)

    def entry(self):
        """The entry `load` of a report, see LOAD."""
        return asdict(self) | {"verdict": self.verdict}


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


class Watch:
    """Watches the machine of this rank from now on. It does not communicate, and does nothing between start and end."""

    def __init__(self):
        self._start = counters_now()

    def seen(self):
        """The RankLoad from the start of the watch until now; None where the system does not say."""
        return between(self._start, counters_now(), machine(), platform.node())


def between(start, end, identifier, host):
    """The RankLoad of a rank between two of its Counters; None if one of them is None. identifier, host: of the machine."""
    if start is None or end is None or start.cores.keys() != end.cores.keys():
        return None
    seconds = end.clock - start.clock
    cores = {}
    for core, (not_busy, stolen) in end.cores.items():
        before, stolen_before = start.cores[core]
        stolen = max(0.0, stolen - stolen_before)
        cores[core] = max(0.0, seconds - (not_busy - before) - stolen), stolen
    above = {process: difference(start.above.get(process), total) or 0.0 for process, total in end.above.items()}
    clocks = [mhz for mhz in (start.mhz, end.mhz) if mhz is not None]
    return RankLoad(
        identifier, host, seconds, difference(start.own, end.own), above, cores, difference(start.queued, end.queued),
        difference(start.waited, end.waited), end.preempted - start.preempted, difference(start.throttled, end.throttled),
        min(clocks, default=None), end.governor,
    )  # fmt: skip


def difference(before, after):
    """after - before, at least 0, since a thread that has ended takes its counters along; None if one of them is None."""
    return None if before is None or after is None else max(0.0, after - before)


def load_of_job(comm, seen):
    """The MachineLoad of all ranks of a job; None if a rank knows nothing. Collective, with a few small messages.

    seen: the RankLoad of this rank, or None.
    """
    machines = comm.allgather(seen and seen.machine)
    if None in machines:
        return None
    node = comm.Split(machines.index(seen.machine), comm.rank)
    here = node.gather(seen)
    node.Free()
    return load_of_nodes([load for load in comm.allgather(here and load_of_node(here)) if load])


def seen_asleep(seconds=1.0):
    """The RankLoad of so many seconds in which this rank sleeps; None where the system does not say."""
    watch = Watch()
    time.sleep(seconds)
    return watch.seen()


def load_of_process(seen):
    """The MachineLoad of a process that measures alone; None if it knows nothing. seen: its RankLoad, or None."""
    return seen and load_of_node([seen])


def load_of_node(ranks):
    """The MachineLoad of one node. ranks: the RankLoads of all ranks there.

    Ranks may start and end their watches at different moments: rates are added, and of what several ranks have watched, a core
    or a process that started them, the mean of the rates counts.
    """
    busy, stolen = (sum_of_means(ranks, lambda rank, i=i: {core: of[i] for core, of in rank.cores.items()}) for i in (0, 1))
    ours = sum(a_second(rank, rank.own) for rank in ranks) + sum_of_means(ranks, lambda rank: rank.above)
    governors = [rank.governor for rank in ranks if rank.governor]
    return MachineLoad(
        max(rank.seconds for rank in ranks), 1, ranks[0].host, len({core for rank in ranks for core in rank.cores}), len(ranks),
        ours, max(0.0, busy - ours), stolen, most(rank.queued and a_second(rank, rank.queued) for rank in ranks),
        most(rank.waited for rank in ranks), max(rank.preempted for rank in ranks), most(rank.throttled for rank in ranks),
        least(rank.mhz for rank in ranks), governors[0] if governors else None,
    )  # fmt: skip


def sum_of_means(ranks, seconds_of):
    """The sum of rates over all things that ranks have watched, of each its mean over those. seconds_of: {thing: seconds}."""
    rates = {}
    for rank in ranks:
        for thing, seconds in seconds_of(rank).items():
            rates.setdefault(thing, []).append(a_second(rank, seconds))
    return sum(sum(found) / len(found) for found in rates.values())


def a_second(rank, seconds):
    """Seconds of a RankLoad as a share of its time."""
    return seconds / max(rank.seconds, 1e-9)


def load_of_nodes(loads):
    """The MachineLoad of a job from those of its nodes: the worst of them. See LOAD."""
    worst = max(loads, key=lambda load: load.taken - load.allowed)
    return replace(
        worst,
        seconds=max(load.seconds for load in loads),
        nodes=len(loads),
        queued=most(load.queued for load in loads),
        waited=most(load.waited for load in loads),
        preempted=max(load.preempted for load in loads),
        throttled=most(load.throttled for load in loads),
        mhz=least(load.mhz for load in loads),
    )


def most(values):
    """The largest of the values that are not None; None if there is none."""
    return max((value for value in values if value is not None), default=None)


def least(values):
    """The smallest of the values that are not None; None if there is none."""
    return min((value for value in values if value is not None), default=None)


def verdict_of(report):
    """Why the times of a report are not comparable, in words; None if the machine was quiet, or nothing is known of it."""
    return (report.get("load") or {}).get("verdict")
