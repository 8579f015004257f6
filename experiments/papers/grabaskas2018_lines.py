"""The lines of the Appendices C and D of Grabaskas 2018, and for each of them the runs of our program that repeat it.

Lines of one appendix share runs: its "manual" and "auto" versions are the same program here, and so are its GPU and CPU. A line
has two runs: a whole one, which also has the accuracy, and a short one, from which its time is scaled.
"""

import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache, partial
from operator import attrgetter

from gridgrad import datasets
from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.experiments.papers.cited import NOT_PRINTED
from gridgrad.experiments.papers.paper import printed
from gridgrad.experiments.papers.parts import LONG, SHORT, PaperPart, run_job
from gridgrad.nn.zoo import network_names

KNOWN = printed("grabaskas2018")
CNNS = {"mnist": "mnist-cnn", "cifar10": "cifar-cnn"}
PLANS = {  # section 3.2.2: a layer is split by its inputs; every node computes all of the others
    "MLP2": "in,in",
    "MLP3": "in,in,in",
    "MLP3-half": "in,redundant,in",
    "MLP3-first": "in,redundant,redundant",
    "CNN": "conv=redundant,linear=in",
}
LEARNING_RATE = 0.01
# lines that are run whole even in a measurement of usual size
WHOLE = "C.33", "C.37", "C.40", "C.44", "C.53", "C.56", "C.59", "D.94", "D.97", "D.106"
STEPS = {"Train()": 1000, "Backward()": 8, "model": 300}  # of a node in a short run
WORK = 1e9  # parameters times steps of a short run of a dense network
TIMEOUT = 4 * 3600
SHORT_LINES = "C.3", "C.8", "C.18", "C.21", "C.53", "C.56", "D.71", "D.72", "D.94", "D.95", "D.106", "D.107"


@dataclass(frozen=True)
class GrabaskasRun:
    """One job: its options, as `grabaskas2018_job.py` has them. read: it only reads the data."""

    dataset: str
    nodes: int
    samples: int
    read: bool = False
    net: str = ""
    passes: int = 1
    batch_size: int = 1
    period: int = 0
    grid: str = ""
    plan: str = "fewest-bytes"
    lr: float = LEARNING_RATE
    test: bool = False

    @property
    def key(self):
        """The name of the run in the JSON of a measurement."""
        return " ".join(f"{name}={value}" for name, value in asdict(self).items() if value)

    @property
    def steps(self):
        """How many steps a node takes."""
        return self.samples * self.passes // (self.nodes if self.period else self.batch_size)

    @property
    def seconds(self):
        """About how long the run takes, on a processor of 2020 or so, and with the job's start."""
        if self.read:
            return 3.0
        dense = 2.6e-9 * parameters(self.net) * self.steps if self.net.startswith("mlp") else 0.0
        return 2.0 + max(1.6e-3 * self.steps, 2.5e-4 * self.samples * self.passes / self.nodes, dense / self.nodes)

    def start(self, data_dir):
        """Start the job; returns what it printed and whether ranks had to share cores."""
        options = {name: value or None for name, value in asdict(self).items() if name != "nodes"}
        found = run_job("grabaskas2018_job", self.nodes, TIMEOUT, f"the run {self.key}", data_dir=data_dir, **options)
        return found | {"oversubscribed": self.nodes > slots()}


@dataclass(frozen=True)
class AppendixLine:
    """A line of an appendix. method: "Train()", "Backward()" or "model". n: samples of a node between synchronisations.
    seconds: as printed, or the words that are printed instead. passes: over the samples. widths: of FLS, SLS and TLS, the
    inputs of the dense layers."""

    ref: str
    dataset: str
    device: str
    method: str
    version: str
    nodes: int
    samples: int
    passes: int
    net: str
    seconds: float | str
    n: int = 1
    model: str = "CNN"
    widths: tuple = ()

    def cited(self, column, place=""):
        """The Cited of a column of the appendix, None where it prints nothing. place: of the table that repeats the line."""
        appendix = "Appendix D" if self.method == "model" else "Appendix C"
        found = KNOWN.cited(appendix, column, self.ref)
        return replace(found, place=f"{place}; {appendix}") if found and place else found

    @property
    def batch_size(self):
        """Samples of all nodes between two synchronisations."""
        return self.n * self.nodes if self.method != "model" else 1

    @property
    def grid(self):
        return f"{'model' if self.method == 'model' else 'batch'}={self.nodes}"

    @property
    def plan(self):
        return PLANS[self.model] if self.method == "model" else "fewest-bytes"

    def run(self, whole):
        """The GrabaskasRun of the line: whole, or a part of it from which the time is scaled."""
        if self.method == "Train()":
            period = self.n if self.nodes > 1 else 1  # on one node n has no effect
            part = self.nodes * max(STEPS[self.method], 2 * period)  # two averages
            options = {"batch_size": 1, "period": period}
        elif self.method == "Backward()":
            part = self.batch_size * max(STEPS[self.method], 100 * STEPS[self.method] // self.n)
            # `synchronizeGradients` sums the means of the nodes: P times that of all together.
            options = {"batch_size": self.batch_size, "grid": self.grid, "lr": LEARNING_RATE * self.nodes}
        else:
            part = min(STEPS[self.method], max(12, int(WORK / parameters(self.net))))
            options = {"grid": self.grid, "plan": self.plan}
        options |= (
            {"samples": self.samples, "passes": self.passes, "test": True} if whole else {"samples": min(self.samples, part)}
        )
        return GrabaskasRun(self.dataset, self.nodes, net=self.net, **options)

    @cached_property
    def single(self):
        """The line of a single node that it is compared with."""
        same = attrgetter("dataset", "device", "method", "samples", "net", "n")
        return next(other for other in lines().values() if other.nodes == 1 and same(other) == same(self))

    def reading(self):
        """The GrabaskasRun that times pre-processing, None where only a part of the data is used."""
        all_of = int(KNOWN.values[f"{self.dataset.removesuffix('10')}_samples"].value)
        return GrabaskasRun(self.dataset, self.nodes, all_of, read=True) if self.samples == all_of else None


@lru_cache
def parameters(net):
    return network_names.build(net, (32, 32, 1), 10).size


@lru_cache
def lines():
    """{reference: AppendixLine} of both appendices."""
    found = {}
    for row in KNOWN.lines("Appendix C"):
        data = row["dataset"]
        whole, passes = (int(KNOWN.values[f"{data.removesuffix('10')}_{name}"].value) for name in ("samples", "passes"))
        part = KNOWN.cited("4.17", "samples", row["ref"])
        common = {name: row[name] for name in ("ref", "dataset", "device", "method", "version", "nodes", "seconds", "n")}
        found[row["ref"]] = AppendixLine(**common, samples=part.value if part else whole, passes=passes, net=CNNS[data])
    for row in KNOWN.lines("Appendix D"):
        widths = tuple(row[name] for name in ("FLS", "SLS", "TLS"))
        hidden = [str(width) for width in widths[1:] if width != NOT_PRINTED]
        net = CNNS["mnist"] if row["model"] == "CNN" else f"mlp:{','.join(hidden)},tanh"
        common = {name: row[name] for name in ("ref", "device", "nodes", "samples", "seconds", "model")}
        common |= {"dataset": "mnist", "method": "model", "version": "auto" if row["nodes"] > 1 else "single"}
        # Of Appendix D the thesis does not say how many passes: one.
        found[row["ref"]] = AppendixLine(**common, passes=1, net=net, widths=widths)
    return found


def runs_of(some, full=False):
    """The GrabaskasRuns for some lines, each once: of every line a whole one if `full`. Otherwise most lines have a short one,
    and then their single node has one too, so that two of a kind are compared."""
    in_full, found = [lines()[ref].run(whole=True) for ref in WHOLE], []
    for line in some:
        whole = full or line.run(whole=True) in in_full
        found += [line.run(whole), line.single.run(whole), line.reading() if line.method != "model" else None]
    return list(dict.fromkeys(filter(None, found)))


def to_measure(size, ranks, data_dir):
    """The GrabaskasRuns as Parts, see `runs_of`; a short measurement has those of SHORT_LINES."""
    with user_input():
        for name in CNNS:
            datasets.prepare(name, data_dir)
    some = [lines()[ref] for ref in (SHORT_LINES if size == SHORT else lines()) if lines()[ref].nodes in ranks]
    wanted = runs_of(some, full=size == LONG)
    return [PaperPart(run.key, partial(run.start, data_dir), run.seconds, asdict(run)) for run in wanted]


def gathered(results, out):
    """What the tables take, of what the runs printed: {"runs": {key: what it printed}, "machine": words}. ValueError if they
    are of several processors. out: there is nothing to write there."""
    launcher = os.environ.get("MPIEXEC", "")
    machine = f"{slots()} cores of {processor_of(results)}" + (f", started by `{launcher}`" if launcher else "")
    return {"runs": results, "machine": machine}


def processor_of(runs):
    """The processor of all runs; ValueError if they are of several, since their times do not compare."""
    names = sorted({run.get("processor", "") for run in runs.values()})
    if len(names) > 1:
        raise ValueError(f"the runs are of several processors, {' and '.join(names)}: measure all of them on one")
    return names[0] if names else ""
