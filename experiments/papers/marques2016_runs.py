"""The runs of `reproduce marques2016`: every network and batch size on one rank, as master and slaves, and without a master;
where CuPy finds GPUs, those with as many of them as the thesis had, too."""

import os
from dataclasses import dataclass
from statistics import median

from gridgrad.experiments.papers.parts import run_job
from gridgrad.experiments.plots.style import measured_on
from gridgrad.parallel.job.run import UserError

NETWORKS = ("50:500", "150:800", "300:1000", "500:1500")
BATCH_SIZES = (64, 128, 256, 512, 1024)
WITH_MASTER, MASTERLESS, BY_SAMPLES = "master/slave", "masterless", "data parallel"
PLANS = {WITH_MASTER: "marques", MASTERLESS: "out"}
PARTS = ("communication", "convolution", "computation")
ROUNDS, MANY_ROUNDS = 3, 7
LARGE, LARGE_ROUNDS = 512, 1  # batches of so many samples and more, whose steps take up to a minute, have fewer rounds
TIMEOUT = 3600
FAST = 6e10  # products that a core adds in a second, about
GPUS = 1, 2, 3  # of the thesis, one a rank
GPU_SECONDS = 15  # about how long a job on GPUs takes beside the steps that are timed


@dataclass(frozen=True)
class MarquesRun:
    """What one job measures. network: kernels of the two convolutions, such as "50:500". form: a key of PLANS, or empty on one
    rank. device: "cpu" or "gpu", of each rank."""

    network: str
    batch_size: int
    ranks: int = 1
    form: str = ""
    device: str = "cpu"

    @property
    def net(self):
        """The network's name in the zoo."""
        return "marques-" + self.network.replace(":", "-")

    @property
    def key(self):
        """The name of the run in the JSON of a measurement."""
        words = [f"{self.network} batch={self.batch_size} ranks={self.ranks}", self.form, "gpu" if self.device == "gpu" else ""]
        return " ".join(filter(None, words))

    def about(self, seconds):
        """About how many seconds the job takes. seconds: about how long it times steps."""
        if self.device == "gpu":
            return GPU_SECONDS + seconds
        first, second = map(int, self.network.split(":"))
        products = self.batch_size * (28**2 * 25 * 3 * first + 10**2 * 25 * first * second)  # of a forward pass
        step = 3 * products / FAST / self.ranks
        return 2 + 3 * step + max(seconds, 2 * step)

    def start(self, seconds):
        """Start the job, which times steps for about so many seconds, and return what it printed. UserError if it fails."""
        return run_job(
            "marques2016_job", self.ranks, TIMEOUT, f"the run {self.key}", net=self.net, batch_size=self.batch_size,
            seconds=seconds, grid=f"model={self.ranks}", device=self.device, plan=PLANS.get(self.form),
        )  # fmt: skip


def all_runs(ranks, rounds, batch_sizes, gpus):
    """[(MarquesRun, number of its round)] in the order in which they run: those of one network and batch size take turns. Each
    is run on one rank, in each form on every other number of `ranks`, and on each number of GPUS, as far as there are so many.
    rounds: of each run, at most LARGE_ROUNDS of large ones. gpus: how many there are."""
    ways = [(1, ""), *((p, form) for p in ranks if p > 1 for form in PLANS)]
    ways += [(p, WITH_MASTER if p > 1 else "", "gpu") for p in GPUS if p <= gpus]
    return [
        (MarquesRun(network, batch_size, *way), number)
        for batch_size in batch_sizes for network in NETWORKS  # those that need the most time and memory at the end
        for number in range(min(rounds, LARGE_ROUNDS) if batch_size >= LARGE else rounds) for way in ways
    ]  # fmt: skip


def machine_of(found):
    """Where the runs were measured, in words. UserError if they are of several machines."""
    machines = {measured_on(result["versions"]) for results in found.values() for result in results}
    if len(machines) != 1:
        raise UserError(f"the runs are of {' and of '.join(sorted(machines))}: measure all of them on one")
    launcher = os.environ.get("MPIEXEC", "")
    return machines.pop() + (f", started by `{launcher}`" if launcher else "")


def parts(results):
    """{part: [median, least, most]} of seconds a step, and the same of the whole "step", over the steps of all rounds. results:
    what a run printed in each round."""
    steps = {name: [value for result in results for value in result[name]] for name in PARTS}
    steps["step"] = [sum(values) for values in zip(*steps.values())]
    return {name: [median(values), min(values), max(values)] for name, values in steps.items()}


def ratios(results, others):
    """How many times as long as the `results` of one run the `others` of another take: of each round that both have."""
    step = lambda result: parts([result])["step"][0]  # noqa: E731
    seconds = {other["round"]: step(other) for other in others}
    return [seconds[result["round"]] / step(result) for result in results if result["round"] in seconds]
