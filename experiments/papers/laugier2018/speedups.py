"""Speedups over one rank that bear on claims of Laugier et al. 2018, and the rule by which they decide one.

They are of runs on the cores of one machine, of runs on hosts (`sweep laugier2018-hosts.toml`), and of the logs of the code
that the paper names. The paper does not say how deep its networks are, and which way to be parallel gains most changes with the
depth. So a claim is decided only where all agree that say anything of it, with three hidden layers and with one, as the logs.
"""

from dataclasses import dataclass
from statistics import median

from gridgrad.experiments.common.parallel_schemes import scheme_of
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import FOLLOWS, MEASURED, found, undecided
from gridgrad.experiments.papers.items import KEPT
from gridgrad.experiments.papers.laugier2018 import formulas, kept
from gridgrad.parallel.grid.process_grid import parse_grid

LOGS = published("laugier2018_logs")
DISAGREE = "these disagree, and the paper leaves out the depth"
UNCLEAR = "none of this is clear"


@dataclass(frozen=True)
class Speedup:
    """The median of several runs, the least and the most of them; of a single run all three are one."""

    median: float
    least: float
    most: float

    def over(self, other):
        """The ratio of both, with the widest range that they allow."""
        return Speedup(self.median / other.median, self.least / other.most, self.most / other.least)

    def above(self, limit):
        """Whether it is more than a number; None where the runs differ on that."""
        return True if self.least > limit else False if self.most <= limit else None

    def below(self, limit):
        """Whether it is at most a number; None where the runs differ on that."""
        return {True: False, False: True}.get(self.above(limit))

    def between(self, low, high):
        """Whether it lies between two numbers; None where the runs differ on that."""
        if low <= self.least and self.most <= high:
            return True
        return False if self.most < low or self.least > high else None

    def __str__(self):
        return f"{self.median:.3g}" + (f" ({self.least:.3g} to {self.most:.3g})" if self.least < self.most else "")


ONE = Speedup(1.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Source:
    """Where speedups are from.

    name: in words. place: the same without data set and depth. kind: of a Finding. hidden: layers. own: whether each rank had a
    core of its own; without one only grids on as many ranks compare. speedups: {(model size, ranks along the batch, along the
    model): Speedup}, of more than one rank.
    """

    name: str
    place: str
    kind: str
    hidden: int
    own: bool
    speedups: dict

    def best(self, size, batch=False, model=False):
        """{ranks: Speedup} of the fastest grid of a model size that divides these axes and no other."""
        best = {}
        for (of, *axes), speedup in self.speedups.items():
            ranks = axes[0] * axes[1]
            if of == size and [axis > 1 for axis in axes] == [batch, model]:
                best[ranks] = max(best.get(ranks, speedup), speedup, key=lambda one: one.median)
        return dict(sorted(best.items()))

    def sizes(self, **axes):
        """The model sizes of which `best` has something."""
        return sorted({size for size, *_ in self.speedups if self.best(size, **axes)})


def sources(tables):
    """All Sources. tables: those of `laugier2018.tables`, of which ranks count that had a core of their own."""
    return of_runs(tables.get("speedups", [])) + of_hosts() + of_logs()


def of_runs(lines):
    """A Source for each data set and depth of a sweep."""
    speedups = {}
    for line in lines:
        if not line["oversubscribed"] and scheme_of(parse_grid(line["grid"])) != "serial":
            key = formulas.size_of(line["net"]), *formulas.sizes_of(line["grid"])
            one = Speedup(line["speedup"], line["min"], line["max"])
            speedups.setdefault((line["data"], formulas.hidden_of(line["net"])), {})[key] = one
    return [
        Source(f"{data}, {hidden} hidden", "on one machine", MEASURED, hidden, True, of)
        for (data, hidden), of in speedups.items()
    ]


def of_hosts():
    """A Source for each depth that was measured on hosts."""

    def choose(report):
        speedups = {}
        for row in report["rows"]:
            batch, model = formulas.sizes_of(row["grid"])
            one = Speedup(*(row["speedup"][name] for name in ("median", "min", "max")))
            if batch * model > 1:
                speedups.setdefault(row["hidden layers"], {})[row["model size"], batch, model] = one
        return report["cores"] >= report["ranks"], speedups

    own, speedups = kept.of("hosts", choose)[0] or (False, {})
    return [Source(f"hosts, {hidden} hidden", "on hosts", KEPT, hidden, own, of) for hidden, of in speedups.items()]


def of_logs():
    """A Source for each data set of the logs of the paper's code."""
    seconds = {"ethylene": {}, "airfoil": {}}
    for size, batch, model, once in LOGS.tables["seconds"].rows:
        seconds["ethylene"][size, batch, model] = Speedup(once, once, once)
    for size, batch, model, *epochs in LOGS.tables["epochs"].rows:
        seconds["airfoil"][size, batch, model] = Speedup(median(epochs), min(epochs), max(epochs))
    hidden = LOGS.values["hidden_layers"].value
    return [
        Source(f"{data} in the logs of its code, {hidden} hidden", "in the logs of its code", FOLLOWS, hidden, True,
               {key: of[key[0], 1, 1].over(one) for key, one in of.items() if key[1:] != (1, 1)})
        for data, of in seconds.items()
    ]  # fmt: skip


def agreed(known, numbers_of, holds, label, reason, missing, main=False):
    """The Finding of a claim.

    known: Sources. numbers_of: a function of a Source that gives {key, a tuple: Speedup, or a ratio of two}, empty where it has
    none. holds: a function of such a ratio and of what its key holds, see `Speedup.above`. label: words with a place for each
    part of a key. reason: what the verdict rests on. missing: the Finding if nothing was measured here. main: of a claim whose
    numbers have to be short: a range for each place.
    """
    numbers = {source: of for source in known if (of := numbers_of(source))}
    ours = {source for source in numbers if source.kind in (MEASURED, KEPT)}
    if not ours:
        return missing
    said = {source: all_of(holds(one, *key) for key, one in of.items()) for source, of in numbers.items()}
    clear = {source: verdict for source, verdict in said.items() if verdict is not None}
    of_main = clear if ours & clear.keys() else ours
    shown = {source: one for source, one in numbers.items() if not main or source in of_main}
    kinds = {source.kind for source in shown}
    kind = next(kind for kind in (MEASURED, KEPT) if kind in kinds)
    words, origin = ranges(shown) if main else listed(shown, label), f" ({kept.origin()})" if KEPT in kinds else ""
    if not main or kind == KEPT:
        words, origin = words + origin, ""
    if not why_not(clear):
        return found(all(clear.values()), words, reason + origin, kind)
    return undecided(f"{why_not(clear)}; {reason}{origin}", words, kind)


def why_not(clear):
    """Why verdicts decide nothing, "" if they do. clear: {Source: verdict}."""
    if not clear:
        return UNCLEAR
    if len(set(clear.values())) == 2:
        return DISAGREE
    lacking = sorted(set(formulas.DEPTHS) - {source.hidden for source in clear})
    return f"nothing is clear with {lacking[0]} hidden, and the paper leaves out the depth" if lacking else ""


def all_of(verdicts):
    """Whether all of several hold: not if one does not, and None if one is not clear."""
    verdicts = set(verdicts)
    return False if False in verdicts else None if None in verdicts else True


def listed(numbers, label):
    """All numbers in words. numbers: {Source: {key: Speedup}}. label: see `agreed`."""
    return "; ".join(
        f"{source.name}: {', '.join(f'{one} {label.format(*key)}' for key, one in of.items())}"
        for source, of in numbers.items()
    )


def ranges(numbers):
    """The least and the greatest median of each place, in words. numbers: see `listed`."""
    medians = {}
    for source, of in numbers.items():
        medians.setdefault(source.place, []).extend(one.median for one in of.values())
    ends = {place: dict.fromkeys(f"{end(values):.3g}" for end in (min, max)) for place, values in medians.items()}
    return ", ".join(f"{' to '.join(words)} {place}" for place, words in ends.items())
