"""The runs of `reproduce marques2016`: every network and batch size on one rank, as master and slaves, and without a master."""

import json
import os
from dataclasses import dataclass
from statistics import median

from tqdm import tqdm

from experiments.common.jobs import check_ended
from parallel.job.launch import mpiexec, slots
from parallel.job.run import UserError

NETWORKS = ("50:500", "150:800", "300:1000", "500:1500")
BATCH_SIZES = (64, 128, 256, 512, 1024)
MASTER, MASTERLESS = "master/slave", "masterless"
PLANS = {MASTER: "marques", MASTERLESS: "out"}
PARTS = ("communication", "convolution", "computation")
ROUNDS, MANY_ROUNDS = 3, 7
LARGE, LARGE_ROUNDS = 512, 1  # batches of so many samples and more, whose steps take up to a minute, have fewer rounds
TIMEOUT = 3600


@dataclass(frozen=True)
class Run:
    """What one job measures. network: kernels of the two convolutions, such as "50:500". form: a key of PLANS, or empty."""

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

    def start(self, seconds):
        """Start the job and return what it printed. seconds: about how long it times steps."""
        arguments = ["-m", "experiments.papers.marques2016_job", "--net", self.net, "--batch-size", self.batch_size]
        arguments += ["--seconds", seconds, "--grid", f"model={self.ranks}"]
        arguments += ["--plan", PLANS[self.form]] if self.form else []
        job = mpiexec(self.ranks, list(map(str, arguments)), TIMEOUT)
        check_ended(job, f"the run {self.key}")
        return json.loads(job.stdout.splitlines()[-1])


def runs(network, batch_size, ranks):
    """All Runs of a network and batch size: on one rank, and in each form on every other number of `ranks`."""
    several = [Run(network, batch_size, p, form) for p in ranks if p > 1 for form in PLANS]
    return [Run(network, batch_size), *several]


def measure(out, ranks, rounds, networks=NETWORKS, batch_sizes=BATCH_SIZES, seconds=3.0):
    """Start all runs: {"runs": {key: [what each round printed]}, "machine": words}.

    The runs of one network and batch size take turns, so that a machine whose speed drifts drifts for all alike. Each is
    noted in `out`, a file with a line of JSON a run, from which an interrupted measurement goes on. A run that fails, such as
    for lack of memory, is left out, with a message.
    ranks: numbers of ranks; those that exceed the cores are left out. rounds: of each run, at most LARGE_ROUNDS of large ones.
    seconds: for about how long each run times steps. UserError if all runs fail, and for runs in `out` of another machine.
    """
    ranks = [p for p in ranks if p <= slots()]
    found = {}
    for line in out.read_text().splitlines() if out.exists() else ():
        run = json.loads(line)
        found.setdefault(run.pop("key"), []).append(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    cases = [(net, size) for size in batch_sizes for net in networks]  # those that need the most time and memory at the end
    rounds_of = {case: min(rounds, LARGE_ROUNDS) if case[1] >= LARGE else rounds for case in cases}
    total = sum(number * len(runs(*case, ranks)) for case, number in rounds_of.items())
    with tqdm(total=total, unit=" runs", disable=None) as bar:
        for case in cases:
            for number in range(rounds_of[case]):
                for run in runs(*case, ranks):
                    bar.update()
                    if len(found.get(run.key, ())) > number:
                        continue
                    try:
                        result = run.start(seconds)
                    except UserError as error:
                        bar.write(f"left out: {error}")
                        continue
                    found.setdefault(run.key, []).append(result)
                    with out.open("a") as file:
                        file.write(json.dumps({"key": run.key} | result) + "\n")
    return {"runs": found, "machine": machine_of(found, out)}


def machine_of(found, out):
    """Where the runs were measured, in words. UserError if they are of several machines. out: the file that they are in."""
    versions = [result["versions"] for results in found.values() for result in results]
    machines = {f"{v['processor']}, {v['mpi']}, {v['threads']} BLAS thread a rank" for v in versions}
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
