"""What a machine takes for the parts of a training step: the constants of a cost model, published or measured.

A machine file is JSON. `name` and `source` say what it is of and where its numbers come from. Then there is

| entry                                          | what it says                                                      |
|------------------------------------------------|-------------------------------------------------------------------|
| `core`: `flops`, `bandwidth`, `call`           | what a rank computes and moves alone, a second; seconds of a call |
|       `calm` | measured: the pace of its times, see `parallel/calibration/core_speed.py` |
|       `step`, `wait` | measured: what steps take beyond, see `parallel/calibration/step_overhead.py` |
| `node`: `ranks`, `bandwidth`, `memory`         | ranks on a node; bytes a second and bytes that they share         |
| `links`: `node`, `network`: `alpha`, `beta`    | seconds of a message, and of each byte: of a rank within a node   |
|                                                | (if memory is no slower), of all that a node sends to others      |
| `tables`: operation: `axes`, `seconds`         | measured: the seconds of an operation on a lattice of its sizes   |
| `collectives`: kind: ranks: [[bytes, seconds]] | measured: of a collective in groups of so many ranks, all at once |

The last two are what `experiments.calibrate` measures; where they say nothing, the constants do: an operation takes the longer
of its arithmetic and its traffic (a roofline), a collective alpha for each of its rounds and beta for each byte that a rank
sends (Thakur et al. 2005; Gholami et al. 2018).
"""

import json
import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from pathlib import Path

from parallel.grid.collectives import COLLECTIVES

SHIPPED = Path(__file__).parent / "machines"
ACCESSES = 3  # of a byte that goes from rank to rank through the memory of a node: read, written, read again
TABLES = re.compile(
    r"linear\.(forward|gradients|input_gradient)|conv[35]\.(forward|gradients|backward)|[a-z0-9]+(\.(forward|backward))?"
)


@dataclass
class Machine:
    """See the module's text. Times are of float32; of larger numbers they are in proportion."""

    name: str
    source: str
    core: dict
    node: dict
    links: dict
    tables: dict = field(default_factory=dict)
    collectives: dict = field(default_factory=dict)

    def __post_init__(self):
        self._tables = {name: Table(**table) for name, table in self.tables.items()}
        self._curves = {
            kind: {int(ranks): [tuple(point) for point in curve] for ranks, curve in curves.items()}
            for kind, curves in self.collectives.items()
        }
        self.operation_seconds = lru_cache(maxsize=1 << 16)(self._operation_seconds)
        self.collective_seconds = lru_cache(maxsize=1 << 16)(self._collective_seconds)

    @cached_property
    def peak(self):
        """The most operations a second of any product; more than the core has where an algorithm saves some."""
        rates = [self.core["flops"]]
        for name, table in self.tables.items():
            kind, _, phase = name.partition(".")
            if kind == "linear" or kind.startswith("conv"):
                times = 2 * (2 if phase == "backward" else 1) * (int(kind[4:]) ** 2 if kind != "linear" else 1)
                found = values(table["seconds"], [len(axis) for axis in table["axes"]])
                rates += [times * prod(sizes) / seconds for sizes, seconds in zip(product(*table["axes"]), found)]
        return max(rates)

    def bandwidth(self, ranks):
        """Bytes a second that each of so many ranks moves at the same time."""
        return min(self.core["bandwidth"], self.node["bandwidth"] / min(ranks, self.node["ranks"]))

    def memory(self, ranks):
        """Bytes of memory for each of so many ranks."""
        return self.node["memory"] / min(ranks, self.node["ranks"])

    def _operation_seconds(self, operation, sizes, scale, flops, nbytes, itemsize, ranks):
        """Of one operation on a rank while `ranks` are at work.

        operation, sizes: of a table, and how many times what it says. flops, nbytes: its arithmetic, and its traffic in bytes.
        """
        if not all(sizes):
            return self.core["call"]
        if operation in self._tables:
            return scale * self._tables[operation].seconds(sizes) * itemsize / 4
        rate = self.core["flops"] * 4 / itemsize
        return self.core["call"] + max(flops / rate, nbytes / self.bandwidth(ranks))

    def _collective_seconds(self, kind, group, ranks, sent):
        """Of one collective of a group (`GroupDescription`) among `ranks` in all, of which this rank sends so many bytes."""
        if group.size == 1:
            return 0.0
        if kind in self._curves:
            return self._measured(self._curves[kind], group.size, sent)
        within, between = self.links["node"], self.links["network"]
        through_memory = max(within["beta"], ACCESSES / self.bandwidth(ranks))
        if group.size <= group.on_node:
            return COLLECTIVES[kind].rounds(group.size) * within["alpha"] + sent * through_memory
        # What the groups of a node send goes through its one connection; what they send each other, through its memory.
        beta = between["beta"] * min(self.node["ranks"], ranks) / group.on_node
        if group.on_node > 1:
            beta = max(beta, through_memory)
        return COLLECTIVES[kind].rounds(group.size) * between["alpha"] + sent * beta

    def _measured(self, curves, ranks, sent):
        if ranks in curves:
            return on_curve(curves[ranks], sent)
        known = max((p for p in curves if p <= ranks), default=min(curves))
        latency = curves[known][0][1]
        return latency * math.log2(ranks) / math.log2(known) + on_curve(curves[known], sent) - latency


def on_curve(points, x):
    """Between (x, y) of increasing x: straight lines on logarithmic axes; outside, flat below and in proportion above."""
    xs = [point[0] for point in points]
    i = bisect_right(xs, x)
    if i == 0:
        return points[0][1]
    if i == len(points):
        return points[-1][1] * max(x, 1) / max(xs[-1], 1)
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    share = math.log(x / x0) / math.log(x1 / x0)
    return y0 * (y1 / y0) ** share


class Table:
    """Seconds of an operation on a lattice: multilinear on logarithmic axes; below it flat, above it in proportion.

    axes: increasing sizes, a list an axis. seconds: nested lists, one level an axis.
    """

    def __init__(self, axes, seconds):
        self.axes = axes
        self.values = seconds

    def seconds(self, sizes):
        corners, factor = [], 1.0
        for axis, size in zip(self.axes, sizes):
            if size >= axis[-1]:
                factor *= size / axis[-1]
                corners.append(((len(axis) - 1, 1.0),))
            elif size <= axis[0]:
                corners.append(((0, 1.0),))
            else:
                i = bisect_right(axis, size)
                share = math.log(size / axis[i - 1]) / math.log(axis[i] / axis[i - 1])
                corners.append(((i - 1, 1 - share), (i, share)))
        total = 0.0
        for corner in product(*corners):
            value, weight = self.values, 1.0
            for i, share in corner:
                value, weight = value[i], weight * share
            total += weight * math.log(value)
        return factor * math.exp(total)


HELP = "a file that experiments.calibrate wrote, or one of those that come with the project"


def names():
    """Of the machines that come with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def read(name):
    """The machine of a name, or of a file. ValueError if there is none, or it is no machine file."""
    path = SHIPPED / f"{name}.json" if name in names() else Path(name)
    if not path.is_file():
        shipped = ", ".join(names())
        raise ValueError(f"machine '{name}': no such file; use one that experiments.calibrate wrote, or {shipped}")
    try:
        return checked(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"machine '{name}' is no machine file ({error}): make one with experiments.calibrate") from None


NUMBERS = {  # the numbers that a machine file must have, by where they are
    ("core",): ("flops", "bandwidth", "call"),
    ("node",): ("ranks", "bandwidth", "memory"),
    ("links", "node"): ("alpha", "beta"),
    ("links", "network"): ("alpha", "beta"),
}
MEASURED = ("calm", "step", "wait")  # numbers that core may have


def checked(content):
    """A Machine of what a file holds. ValueError that names the entry which is missing or wrong."""
    known = ("name", "source", "core", "node", "links", "tables", "collectives")
    if unknown := set(mapping(content, "the file")) - set(known):
        raise ValueError(f"there is an unknown entry {sorted(unknown)[0]}: a machine file has {', '.join(known)}")
    for name in ("name", "source"):
        if not isinstance(content.get(name), str):
            raise ValueError(f"the entry {name} must be a text")
    for place, names in NUMBERS.items():
        inner = content
        for depth, key in enumerate(place, 1):
            inner = mapping(inner.get(key), ".".join(place[:depth]))
        for name in names:
            positive(inner.get(name), ".".join((*place, name)))
    for name in MEASURED:
        positive(content["core"].get(name, 1), f"core.{name}")
    if type(content["node"]["ranks"]) is not int:
        raise ValueError(f"the entry node.ranks must be a whole number, not {content['node']['ranks']!r}")
    for name, table in mapping(content.get("tables", {}), "tables").items():
        check_table(name, mapping(table, f"tables.{name}"))
    for kind, curves in mapping(content.get("collectives", {}), "collectives").items():
        check_curves(f"collectives.{kind}", mapping(curves, f"collectives.{kind}"))
    return Machine(**content)


def check_table(name, table):
    """Raise ValueError unless this is the table of an operation."""
    where, axes = f"tables.{name}", table.get("axes")
    if not TABLES.fullmatch(name):
        raise ValueError(f"the entry {where} is of no operation that is known")
    if set(table) != {"axes", "seconds"} or not isinstance(axes, list | tuple) or len(axes) != dimensions(name):
        raise ValueError(f"the entry {where} must have the seconds, and the sizes of {dimensions(name)} axes")
    for axis in axes:
        increasing(axis, f"{where}.axes")
    for number in values(table["seconds"], [len(axis) for axis in axes], f"{where}.seconds"):
        positive(number, f"{where}.seconds")


def check_curves(where, curves):
    """Raise ValueError unless these are the curves of a collective, by the number of ranks."""
    if not curves:
        raise ValueError(f"the entry {where} has no number of ranks")
    for ranks, curve in curves.items():
        if not str(ranks).isdecimal() or int(ranks) < 2:
            raise ValueError(f"the entry {where}.{ranks} must be named by a number of ranks of at least 2")
        if not isinstance(curve, list) or not all(isinstance(point, list) and len(point) == 2 for point in curve):
            raise ValueError(f"the entry {where}.{ranks} must be a list of [bytes, seconds]")
        increasing([sent for sent, _ in curve], f"{where}.{ranks}")
        for _, seconds in curve:
            positive(seconds, f"{where}.{ranks}")


def mapping(value, where):
    """The value; ValueError if it is no JSON object."""
    if not isinstance(value, dict):
        raise ValueError(
            f"{where} must be a JSON object" if where == "the file" else f"the entry {where} must be a JSON object"
        )
    return value


def positive(value, where):
    """Raise ValueError unless the value is a finite number above 0."""
    if type(value) not in (int, float) or not value > 0 or not math.isfinite(value):
        raise ValueError(f"the entry {where} must be a finite number above 0, not {value!r}")


def increasing(numbers, where):
    """Raise ValueError unless there are numbers, above 0 and each larger than the one before."""
    if not isinstance(numbers, list | tuple) or not numbers:
        raise ValueError(f"the entry {where} must be a list of numbers")
    for number in numbers:
        positive(number, where)
    if not all(a < b for a, b in zip(numbers, numbers[1:])):
        raise ValueError(f"the numbers of the entry {where} must increase")


def dimensions(name):
    """How many axes the table of an operation has."""
    kind = name.partition(".")[0]
    return {"linear": 3, "conv3": 4, "conv5": 4, "maxpool2d": 2, "avgpool2d": 2, "pooled": 2, "pack": 2}.get(kind, 1)


def values(nested, shape, where="seconds"):
    """The numbers of nested lists of a shape; ValueError if they have another one."""
    if not shape:
        yield nested
        return
    if not isinstance(nested, list) or len(nested) != shape[0]:
        raise ValueError(f"the numbers of {where} do not fit the axes of the table")
    for inner in nested:
        yield from values(inner, shape[1:], where)
