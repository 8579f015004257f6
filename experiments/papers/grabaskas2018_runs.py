"""The lines of the Appendices C and D of Grabaskas 2018, and for each of them the run of our program that repeats it.

Lines of one appendix share runs: its "manual" and "auto" versions are the same program here, and so are its GPU and CPU.
"""

import json
import os
import tomllib
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path

from gridgrad import datasets
from gridgrad.experiments.common.jobs import check_ended
from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.papers.parts import LONG, SHORT, Part
from gridgrad.nn import network_names
from gridgrad.nn.processor import processor
from gridgrad.parallel.job.launch import mpiexec, slots

PUBLISHED = Path(__file__).parent / "published" / "grabaskas2018.toml"
SAMPLES = {"mnist": 60_000, "cifar10": 32_000}  # section 4.1.1
FEWER = {4: 16_000, 5: 8_000}  # lines of Table 4.17: a part of the data on one node
PASSES = {"mnist": 1, "cifar10": 5}  # section 4.2.2; of Appendix D the thesis does not say: one
CNNS = {"mnist": "mnist-cnn", "cifar10": "cifar-cnn"}
PLANS = {  # section 3.2.2: a layer is split by its inputs; the others are whole on every node
    "MLP2": "in,in",
    "MLP3": "in,in,in",
    "MLP3-half": "in,replicate,in",
    "MLP3-first": "in,replicate,replicate",
    "CNN": "conv=replicate,linear=in",
}
LEARNING_RATE = 0.01
# lines that are run whole even in a short measurement
WHOLE = "C.33", "C.37", "C.40", "C.44", "C.53", "C.56", "C.59", "D.94", "D.97", "D.106"
STEPS = {"Train()": 1000, "Backward()": 8, "model": 300}  # of a node in a short run
WORK = 1e9  # parameters times steps of a short run of a dense network
TIMEOUT = 4 * 3600
SHORT_LINES = "C.3", "C.8", "C.18", "C.21", "C.53", "C.56", "D.71", "D.72", "D.94", "D.95", "D.106", "D.107"


@dataclass(frozen=True)
class Run:
    """One job: its options, as `experiments/papers/grabaskas2018_job.py` has them. read: it only reads the data."""

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
        arguments = as_module("papers.grabaskas2018_job")
        for name, value in (asdict(self) | {"data_dir": data_dir}).items():
            if value and name != "nodes":
                arguments += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        job = mpiexec(self.nodes, arguments, TIMEOUT)
        check_ended(job, f"the run {self.key}")
        return json.loads(job.stdout.splitlines()[-1]) | {"oversubscribed": self.nodes > slots()}


@dataclass(frozen=True)
class Line:
    """A line of an appendix. method: "Train()", "Backward()" or "model". n: samples of a node between synchronisations.

    seconds, accuracy, efficiency, preprocessing: as published, "-" or a word where there is no number. widths: of FLS, SLS
    and TLS, the inputs of the dense layers.
    """

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
    accuracy: float | str
    efficiency: float | str
    n: int = 1
    model: str = "CNN"
    widths: tuple = ()
    preprocessing: float | str = "-"

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

    @property
    def work(self):
        """What distinguishes lines that need different runs. On one node of `Train()`, n has no effect."""
        n = 1 if self.method == "Train()" and self.nodes == 1 else self.n
        return self.dataset, self.method, self.nodes, self.samples, self.net, self.plan, n

    def run(self, full=False):
        """The Run of the line: in full, or a part of it from which the time is scaled."""
        whole = full or any(self.work == lines()[ref].work for ref in WHOLE)
        if self.method == "Train()":
            period = self.n if self.nodes > 1 else 1
            part = self.nodes * max(STEPS[self.method], 2 * period)  # two averages
            options = {"batch_size": 1, "period": period}
        elif self.method == "Backward()":
            part = self.batch_size * max(STEPS[self.method], 100 * STEPS[self.method] // self.n)
            # `synchronizeGradients` sums the means of the nodes: P times that of all together.
            options = {"batch_size": self.batch_size, "grid": self.grid, "lr": LEARNING_RATE * self.nodes}
        else:
            part = min(STEPS[self.method], max(12, int(WORK / parameters(self.net))))
            options = {"grid": self.grid, "plan": self.plan}
        taken = (
            {"samples": self.samples, "passes": self.passes, "test": True} if whole else {"samples": min(self.samples, part)}
        )
        return Run(self.dataset, self.nodes, net=self.net, **taken, **options)

    def reading(self):
        """The Run that times pre-processing, None where only a part of the data is used."""
        return (
            Run(self.dataset, self.nodes, SAMPLES[self.dataset], read=True) if self.samples == SAMPLES[self.dataset] else None
        )

    def is_single_of(self, other):
        """Whether this is the single-node line that another one is compared with."""
        same = all(
            getattr(self, name) == getattr(other, name) for name in ("dataset", "device", "method", "samples", "net", "n")
        )
        return self.nodes == 1 and same


@lru_cache
def parameters(net):
    return network_names.build(net, (32, 32, 1), 10).size


@lru_cache
def published():
    """The published numbers: the content of `published/grabaskas2018.toml`."""
    return tomllib.loads(PUBLISHED.read_text())


@lru_cache
def lines():
    """{reference: Line} of both appendices."""
    found = {}
    for group in published()["appendix_c"]:
        data = group["dataset"]
        common = {name: group[name] for name in ("dataset", "device", "method", "version")}
        for number, nodes, n, preprocessing, seconds, accuracy, *_, efficiency in group["lines"]:
            samples = FEWER.get(number, SAMPLES[data])
            found[f"C.{number}"] = Line(
                f"C.{number}", nodes=nodes, samples=samples, passes=PASSES[data], net=CNNS[data], seconds=seconds,
                accuracy=accuracy, efficiency=efficiency, n=n, preprocessing=preprocessing, **common,
            )  # fmt: skip
    for group in published()["appendix_d"]:
        for number, model, nodes, samples, device, *widths, seconds, accuracy, efficiency in group["lines"]:
            hidden = [str(width) for width in widths[1:] if width != "-"]
            net = CNNS["mnist"] if model == "CNN" else f"mlp:{','.join(hidden)},tanh"
            found[f"D.{number}"] = Line(
                f"D.{number}", "mnist", device, "model", "auto" if nodes > 1 else "single", nodes, samples, 1, net, seconds,
                accuracy, efficiency, model=model, widths=tuple(widths),
            )  # fmt: skip
    return found


def single(line):
    """The single-node line that `line` is compared with."""
    return next(other for other in lines().values() if other.is_single_of(line))


def runs(ranks, full=False):
    """The Runs for all lines on these numbers of nodes, each once."""
    chosen = [line for line in lines().values() if line.nodes in ranks]
    wanted = [line.run(full) for line in chosen] + [line.reading() for line in chosen if line.method != "model"]
    return list(dict.fromkeys(filter(None, wanted)))


def to_measure(size, ranks, data_dir):
    """The Runs as Parts, see `runs`; a short measurement has those of SHORT_LINES."""
    with user_input():
        for name in SAMPLES:
            datasets.prepare(name, data_dir)
    wanted = runs(ranks, full=size == LONG)
    if size == SHORT:
        few = [lines()[ref] for ref in SHORT_LINES]
        few = [run for line in few for run in (line.run(), line.reading() if line.method != "model" else None)]
        wanted = [run for run in wanted if run in few]
    return [Part(run.key, partial(run.start, data_dir), run.seconds, asdict(run)) for run in wanted]


def gathered(results, full=False):
    """What the tables take, of what the runs printed: {"runs": {key: what it printed}, "machine": words, "full": bool}."""
    launcher = os.environ.get("MPIEXEC", "")
    machine = f"{slots()} cores of {processor().name}" + (f", started by `{launcher}`" if launcher else "")
    return {"runs": results, "machine": machine, "full": full}
