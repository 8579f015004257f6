"""The constants of the cost model for one machine, published or measured, and the seconds that they predict.

A machine file is JSON. docs/prediction.md has the entries that people write; where the machine was measured there are also

| entry                                          | meaning                                                           |
|------------------------------------------------|-------------------------------------------------------------------|
| `core`: `calm`                                 | seconds of the reference product on the unloaded core             |
| `core`: `step`, `wait`                         | extra seconds of a step and of a collective                       |
| `core`: `crowd`                                | how many ranks shared a core while it was measured, 1 if absent   |
| `core`: `uncertainty`                          | of a probe: relative difference from which predictions differ     |
| `tables`: operation: `axes`, `seconds`         | seconds of an operation on a lattice of its sizes                 |
| `collectives`: kind: ranks: [[bytes, seconds]] | seconds in groups of so many ranks, all groups at once            |

What the last two lack comes from the constants: an operation takes the longer of its arithmetic and its memory traffic (a
roofline); a collective takes alpha for each of its rounds and beta for each byte that a rank sends (Thakur et al. 2005;
Gholami et al. 2018).
"""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from pathlib import Path

import numpy as np

from gridgrad.nn.files.documents import WHOLE, Each, Kind, check, content_of, is_number
from gridgrad.nn.files.limits import read_limited
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import GroupDescription

SHIPPED = Path(__file__).parent / "machines"
ACCESSES = 3  # to memory for each byte that goes from rank to rank within a node: read, write, read again
TABLES = re.compile(
    r"linear\.(forward|gradients|input_gradient)|conv[35]\.(forward|gradients|backward)|[a-z0-9]+(\.(forward|backward))?"
)
AXES = {"linear": 3, "conv3": 4, "conv5": 4, "maxpool2d": 2, "avgpool2d": 2, "pooled": 2, "pack": 2}  # those of others have 1


@dataclass
class Machine:
    """The contents of a machine file, see the table above. Times are of float32; wider numbers take proportionally longer."""

    name: str
    source: str
    core: dict
    node: dict
    links: dict
    tables: dict = field(default_factory=dict)
    collectives: dict = field(default_factory=dict)

    def __post_init__(self):
        self._tables = self.tables | input_gradients(self.tables)
        self._curves = {kind: {int(p): tuple(zip(*curve)) for p, curve in of.items()} for kind, of in self.collectives.items()}
        self.operation_seconds = lru_cache(maxsize=1 << 16)(self._operation_seconds)
        self.collective_seconds = lru_cache(maxsize=1 << 16)(self._collective_seconds)

    @cached_property
    def peak(self):
        """The highest rate of any product in operations per second, of Winograd convolutions perhaps above `core.flops`."""
        rates = [self.core["flops"]]
        for name, table in self.tables.items():
            kind, _, phase = name.partition(".")
            if kind == "linear" or kind.startswith("conv"):
                times = 2 * (2 if phase == "backward" else 1) * (int(kind[4:]) ** 2 if kind != "linear" else 1)
                found = np.ravel(table["seconds"]).tolist()
                rates += [times * prod(sizes) / seconds for sizes, seconds in zip(product(*table["axes"]), found)]
        return max(rates)

    @property
    def sharing(self):
        """(how many ranks share a node, how many shared a core while operations were measured)."""
        return self.node["ranks"], self.core.get("crowd", 1)

    @property
    def uncertainty(self):
        """The relative difference from which predicted times count as different; 0 unless the machine was only probed."""
        return self.core.get("uncertainty", 0.0)

    def bandwidth(self, ranks):
        """Bytes per second of memory traffic for each of `ranks` ranks that run at the same time."""
        return min(self.core["bandwidth"], self.node["bandwidth"] / min(ranks, self.node["ranks"]))

    def memory(self, ranks):
        """Bytes of memory for each of so many ranks."""
        return self.node["memory"] / min(ranks, self.node["ranks"])

    def _operation_seconds(self, operation, sizes, scale, flops, nbytes, itemsize, ranks):
        """Seconds of one operation while `ranks` ranks compute. operation, sizes: the table that has its time, and where in it.
        scale: a factor on that time. flops, nbytes: for the roofline where there is no table. itemsize: bytes of a number."""
        if not all(sizes):
            return self.core["call"]
        if operation in self._tables:
            return scale * on_lattice(**self._tables[operation], sizes=sizes) * itemsize / 4
        rate = self.core["flops"] * 4 / itemsize
        return self.core["call"] + max(flops / rate, nbytes / self.bandwidth(ranks))

    def _collective_seconds(self, kind, group, ranks, sent):
        """Seconds of one collective of a group (a GroupDescription) in a job of `ranks` ranks. sent: bytes from this rank."""
        if group.size == 1:
            return 0.0
        if curves := self._curves.get(kind):
            known = max((p for p in curves if p <= group.size), default=min(curves))
            nbytes, seconds = curves[known]
            more_rounds = seconds[0] * (math.log2(group.size) / math.log2(known) - 1)
            return on_lattice([nbytes], seconds, (sent,)) + more_rounds
        within, between = self.links["node"], self.links["network"]
        through_memory, rounds = max(within["beta"], ACCESSES / self.bandwidth(ranks)), COLLECTIVES[kind].rounds(group.size)
        if group.size <= group.on_node:
            return rounds * within["alpha"] + sent * through_memory
        # What the groups of a node send goes through its one connection; what they send each other, through its memory.
        beta = between["beta"] * min(self.node["ranks"], ranks) / group.on_node
        if group.on_node > 1:
            beta = max(beta, through_memory)
        return rounds * between["alpha"] + sent * beta

    def message_seconds(self, near, nbytes, ranks):
        """(latency, seconds on the links) of an exchange between two ranks in a job of so many. near: whether on one node."""
        pair = GroupDescription(2, 0, 2 if near else 1)
        latency, whole = (self.collective_seconds("exchange", pair, ranks, sent) for sent in (0, nbytes))
        return latency, max(0.0, whole - latency)


def on_lattice(axes, seconds, sizes):
    """Seconds of an operation or collective of these sizes, from those measured on a lattice: multilinear on logarithmic axes,
    below the lattice constant, above it proportional. axes: increasing sizes. seconds: nested lists, a level for each axis."""
    corners, factor = [], 1.0
    for axis, size in zip(axes, sizes):
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
        value, weight = seconds, 1.0
        for i, share in corner:
            value, weight = value[i], weight * share
        total += weight * math.log(value)
    return factor * math.exp(total)


def input_gradients(tables):
    """{operation: table} of the input gradients of convolutions: what backward takes beyond the gradient of the kernel."""
    # An input gradient can take several times as long as the kernel's, where there are few channels, and depends on padding and
    # stride. Both tables are measured one by one, so that the difference is uncertain: it counts at least a tenth of backward.
    found = {}
    for name in {name.partition(".")[0] for name in tables if name.startswith("conv")}:
        whole, kernel = tables.get(f"{name}.backward"), tables.get(f"{name}.gradients")
        if whole and kernel and list(whole["axes"]) == list(kernel["axes"]):
            seconds = np.array(whole["seconds"])
            rest = np.maximum(seconds - np.array(kernel["seconds"]), seconds / 10)
            found[f"{name}.input_gradient"] = {"axes": whole["axes"], "seconds": rest.tolist()}
    return found


HELP = "a file that calibrate wrote, one of those that come with the project, or numbers, see gridgrad help machine"
NUMBERS = {"flops": "Gflop/s", "latency": "us", "bandwidth": "Gbit/s", "ranks": "ranks a node"}  # and their units
INTENSITY, CALL, NEAR, MEMORY = 10, 5e-6, 1e-6, 16 * 2**30  # of a machine of numbers alone: see `of_numbers`


def names():
    """Of the machine files that come with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def read(name):
    """The Machine of a shipped name, of a file, or of either with other numbers, such as cori-haswell:latency=2, or of numbers
    alone, such as flops=60,latency=1.5,bandwidth=100. ValueError if there is no such file, or it is no machine file."""
    if "=" in name and not Path(name).is_file():
        base, _, text = name.rpartition(":")
        return with_numbers(read(base), numbers_of(text)) if base else of_numbers(numbers_of(text))
    path = SHIPPED / f"{name}.json" if name in names() else Path(name)
    if not path.is_file():
        raise ValueError(f"machine '{name}': no such file; use one that the program calibrate wrote, or {', '.join(names())}")
    try:
        return checked(content_of(read_limited(path)))
    except ValueError as error:
        raise ValueError(f"machine '{name}' is no machine file ({error}): make one with the program calibrate") from None


def numbers_of(text):
    """{name of NUMBERS: value} of a text such as flops=60,latency=1.5."""
    found = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            value = None
        if name.strip() not in NUMBERS or not value or not 0 < found[name.strip()] < math.inf:
            words = ", ".join(f"{one} ({unit})" for one, unit in NUMBERS.items())
            raise ValueError(f"machine '{text}': '{word}' is none of {words}, each with = and a number above 0")
    return found


def of_numbers(given):
    """A Machine of flops, latency and bandwidth, with a byte of memory traffic a second for INTENSITY operations, calls of CALL
    seconds, messages of NEAR seconds and the memory's bandwidth within a node, and MEMORY bytes a rank."""
    if missing := [name for name in ("flops", "latency", "bandwidth") if name not in given]:
        raise ValueError(
            f"numbers that describe a machine: {missing[0]} is missing, or a name before them, such as cori-haswell:"
        )
    traffic, near = 1e9 * given["flops"] / INTENSITY, {"alpha": NEAR, "beta": 1e-15}
    core, node = {"bandwidth": traffic, "call": CALL}, {"ranks": 1, "bandwidth": traffic, "memory": MEMORY}
    return with_numbers(Machine("a cluster", "numbers", core, node, {"node": near, "network": near}), given)


def with_numbers(machine, given):
    """The Machine with these numbers in place of its own, and without the tables that they contradict."""
    core, network = {}, {}
    if "flops" in given:
        core["flops"] = 1e9 * given["flops"]
    if "latency" in given:
        network["alpha"] = 1e-6 * given["latency"]
    if "bandwidth" in given:
        network["beta"] = 8e-9 / given["bandwidth"]
    node = node_of(machine, int(given["ranks"]), machine.source == "numbers") if "ranks" in given else machine.node
    links = machine.links | {"network": machine.links["network"] | network}
    tables, collectives = {} if core else machine.tables, {} if network else machine.collectives
    words = ", ".join(f"{value:g} {NUMBERS[one]}" for one, value in given.items())
    return replace(machine, name=f"{machine.name} with {words}", core=machine.core | core, node=node, links=links,
                   tables=tables, collectives=collectives)  # fmt: skip


def node_of(machine, ranks, has_own_memory):
    """The entry `node` of a Machine with so many ranks a node, each with a memory of its own or all with what there is."""
    scale = ranks / machine.node["ranks"] if has_own_memory else 1
    return {"ranks": ranks} | {name: machine.node[name] * scale for name in ("bandwidth", "memory")}


POSITIVE = Kind("a finite number above 1e-18", lambda value: is_number(value) and value > 1e-18)
INCREASING = Kind(
    "finite numbers above 1e-18, each larger than the one before",
    lambda value: isinstance(value, list | tuple) and len(value) > 0 and all(map(POSITIVE.accepts, value))
    and all(a < b for a, b in zip(value, value[1:])),
)  # fmt: skip
CURVE = Kind(
    "a list of [bytes, seconds], numbers above 1e-18, each with more bytes than the one before",
    lambda value: isinstance(value, list) and all(isinstance(point, list) and len(point) == 2 for point in value)
    and all(POSITIVE.accepts(seconds) for _, seconds in value) and INCREASING.accepts([sent for sent, _ in value]),
)  # fmt: skip
LINE = Kind("a text of one line", lambda value: isinstance(value, str) and value.isprintable())
LINK = {"alpha": POSITIVE, "beta": POSITIVE}
FORM = {
    "name": LINE,
    "source": LINE,
    "core": {"flops": POSITIVE, "bandwidth": POSITIVE, "call": POSITIVE},
    "node": {"ranks": WHOLE, "bandwidth": POSITIVE, "memory": POSITIVE},
    "links": {"node": LINK, "network": LINK},
}
MEASURED = ("calm", "step", "wait", "crowd", "uncertainty")  # numbers that core may have


def checked(content):
    """A Machine of what a file holds. ValueError that names the entry which is missing or wrong."""
    check(content, FORM)
    known = [entry.name for entry in fields(Machine)]
    if unknown := set(content).difference(known):
        raise ValueError(f"there is an unknown entry {sorted(unknown)[0]}: a machine file has {', '.join(known)}")
    check({name: content["core"][name] for name in MEASURED if name in content["core"]}, Each(POSITIVE), "core")
    tables, collectives = content.get("tables", {}), content.get("collectives", {})
    check(tables, Each({}), "tables")
    for name, table in tables.items():
        check_table(name, table)
    check(collectives, Each(Each(CURVE)), "collectives")
    for kind, curves in collectives.items():
        if not curves or not all(ranks.isdecimal() and int(ranks) > 1 for ranks in curves):
            raise ValueError(f"collectives.{kind} must have curves, each named by a number of ranks of at least 2")
    return Machine(**content)


def check_table(name, table):
    """Raise ValueError unless this is the table of an operation."""
    where, axes, dimensions = f"tables.{name}", table.get("axes"), AXES.get(name.partition(".")[0], 1)
    if not TABLES.fullmatch(name):
        raise ValueError(f"{where} is of no operation that is known")
    if set(table) != {"axes", "seconds"} or not isinstance(axes, list | tuple) or len(axes) != dimensions:
        raise ValueError(f"{where} must have the seconds, and the sizes of {dimensions} axes")
    for axis in axes:
        check(axis, INCREASING, f"{where}.axes")
    check_lattice(table["seconds"], axes, f"{where}.seconds")


def check_lattice(nested, axes, where):
    """Raise ValueError unless nested lists of numbers fit the axes of a table."""
    if not axes:
        check(nested, POSITIVE, where)
    elif not isinstance(nested, list) or len(nested) != len(axes[0]):
        raise ValueError(f"the numbers of {where} do not fit the axes of the table")
    else:
        for inner in nested:
            check_lattice(inner, axes[1:], where)
