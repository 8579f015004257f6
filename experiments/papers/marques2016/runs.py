"""The runs of `reproduce marques2016`: every network and batch size on one rank, as master and slaves, and without a master."""

import json
import os
from dataclasses import dataclass
from statistics import median

from tqdm import tqdm

from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.launching.start_ranks import mpiexec, printed_json, slots
from gridgrad.experiments.plots.style import VERSIONS, measured_on
from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, check, content_of
from gridgrad.parallel.job.run import UserError

NETWORKS = ("50:500", "150:800", "300:1000", "500:1500")
BATCH_SIZES = (64, 128, 256, 512, 1024)
WITH_MASTER, MASTERLESS, BY_SAMPLES = "master/slave", "masterless", "data parallel"
PLANS = {WITH_MASTER: "marques", MASTERLESS: "out"}
PARTS = ("communication", "convolution", "computation")
RUN = {"key": TEXT, "round": COUNT, "versions": VERSIONS} | dict.fromkeys(PARTS, [AT_LEAST_0])  # a line of a file of runs
ROUNDS, MANY_ROUNDS = 3, 7
LARGE, LARGE_ROUNDS = 512, 1  # batches of so many samples and more, whose steps take up to a minute, have fewer rounds
TIMEOUT = 3600
FAST = 6e10  # products that a core adds in a second, about


@dataclass(frozen=True)
class MarquesRun:
    """What one job measures.

    network: kernels of the two convolutions, such as "50:500". form: a key of PLANS, or empty on one rank.
    """

    network: str
    batch_size: int
    ranks: int = 1
    form: str = ""

    @property
    def net(self):
        """The network's name in the zoo."""
        return "marques-" + self.network.replace(":", "-")

    @property
    def key(self):
        """The name of the run in the JSON of a measurement."""
        return f"{self.network} batch={self.batch_size} ranks={self.ranks}" + (f" {self.form}" if self.form else "")

    def about(self, seconds):
        """About how many seconds the job takes. seconds: about how long it times steps."""
        first, second = map(int, self.network.split(":"))
        products = self.batch_size * (28**2 * 25 * 3 * first + 10**2 * 25 * first * second)  # of a forward pass
        step = 3 * products / FAST / self.ranks
        return 2 + 3 * step + max(seconds, 2 * step)

    def start(self, seconds):
        """Start the job, which times steps for about so many seconds, and return what it printed. UserError if it fails."""
        arguments = [*as_module("papers.marques2016.job"), "--net", self.net, "--batch-size", self.batch_size]
        arguments += ["--seconds", seconds, "--grid", f"model={self.ranks}"]
        arguments += ["--plan", PLANS[self.form]] if self.form in PLANS else []
        return printed_json(mpiexec(self.ranks, list(map(str, arguments)), TIMEOUT), f"the run {self.key}")


def runs(network, batch_size, ranks):
    """All MarquesRuns of a network and batch size: on one rank, and in each form on every other number of `ranks`."""
    several = [MarquesRun(network, batch_size, p, form) for p in ranks if p > 1 for form in PLANS]
    return [MarquesRun(network, batch_size), *several]


def all_runs(ranks, rounds, networks=NETWORKS, batch_sizes=BATCH_SIZES):
    """[(MarquesRun, number of its round)] in the order in which they run: those of one network and batch size take turns.

    rounds: of each run, at most LARGE_ROUNDS of large ones.
    """
    cases = [(net, size) for size in batch_sizes for net in networks]  # those that need the most time and memory at the end
    rounds_of = {case: min(rounds, LARGE_ROUNDS) if case[1] >= LARGE else rounds for case in cases}
    return [(run, number) for case in cases for number in range(rounds_of[case]) for run in runs(*case, ranks)]


def measure(out, ranks, rounds, networks=NETWORKS, batch_sizes=BATCH_SIZES, seconds=3.0):
    """Start all runs: {"runs": {key: [what each round printed, and "round", its number]}, "machine": words}.

    The runs of one network and batch size take turns, so that a machine whose speed drifts drifts for all alike. Each is
    noted in `out`, a file with a line of JSON a run, from which an interrupted measurement goes on. A run that fails, such as
    for lack of memory, is left out, with a message.
    ranks: numbers of ranks; those that exceed the cores are left out. rounds: of each run, at most LARGE_ROUNDS of large ones.
    seconds: for about how long each run times steps. UserError if all runs fail, and if `out` has lines that are no runs, or
    runs of another machine.
    """
    found = read(out)
    wanted = all_runs([p for p in ranks if p <= slots()], rounds, networks, batch_sizes)
    with tqdm(wanted, unit=" runs", disable=None) as bar:
        for run, number in bar:
            if any(earlier["round"] == number for earlier in found.get(run.key, ())):
                continue
            try:
                result = run.start(seconds)
            except UserError as error:
                bar.write(f"left out: {error}")
                continue
            found.setdefault(run.key, []).append({"round": number} | result)
            write(out, found)
    return {"runs": found, "machine": machine_of(found, out)}


def read(path):
    """{key: [run]} of the runs that `write` wrote; empty if there is no such file. UserError for a line that is no run."""
    found = {}
    for number, line in enumerate(limits.read_limited(path).splitlines() if path.exists() else (), 1):
        try:
            run = content_of(line)
            check(run, RUN)
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not a run ({error}): delete it to measure that run again") from None
        found.setdefault(run.pop("key"), []).append(run)
    return found


def write(path, found):
    """Write all runs, a line of JSON each; the file appears whole or not at all."""
    write_text(path, "".join(json.dumps({"key": key} | run) + "\n" for key, several in found.items() for run in several))


def machine_of(found, out):
    """Where the runs were measured, in words. UserError if they are of several machines. out: the file that they are in."""
    machines = {measured_on(result["versions"]) for results in found.values() for result in results}
    if not machines:
        raise UserError("no run was successful")
    if len(machines) != 1:
        raise UserError(f"{out} has runs of {' and of '.join(sorted(machines))}: remove it to measure again")
    launcher = os.environ.get("MPIEXEC", "")
    return machines.pop() + (f", started by `{launcher}`" if launcher else "")


def parts(results):
    """{part: [median, least, most]} of seconds a step, and the same of the whole "step", over the steps of all rounds.

    results: what a run printed in each round.
    """
    steps = {name: [value for result in results for value in result[name]] for name in PARTS}
    steps["step"] = [sum(values) for values in zip(*steps.values())]
    return {name: [median(values), min(values), max(values)] for name, values in steps.items()}


def ratios(results, others):
    """How many times as long as the `results` of one run the `others` of another take: of each round that both have."""
    step = lambda result: parts([result])["step"][0]  # noqa: E731
    seconds = {other["round"]: step(other) for other in others}
    return [seconds[result["round"]] / step(result) for result in results if result["round"] in seconds]
