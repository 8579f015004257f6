"""Two ranks of one thread against one rank and against PyTorch DistributedDataParallel with gloo, jobs in turn: for `bench`."""

import json
import math
import time

from tqdm import tqdm

from experiments.benchmarks.bench_serial import Case
from experiments.common.jobs import check_ended
from parallel.job.launch import mpiexec

# bound: of 2 ranks over 1; best_bound: of 2 ranks over DistributedDataParallel on 2.
TWO_RANKS = [
    Case("1024-2048-1024-10 tanh, batch 128", "mlp:2048,1024,tanh", 1024, 10, 128, "cross-entropy", 1 / 1.5, 1.0),
    Case("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, "cross-entropy", 1 / 1.85, 1.0),
    Case("cifar-cnn, batch 64", "cifar-cnn", (32, 32, 3), 10, 64, "cross-entropy", 1 / 1.85, 1.0),
    Case("cifar-cnn, batch 128", "cifar-cnn", (32, 32, 3), 10, 128, "cross-entropy", 1 / 1.9, 1.0),
]
CALM = 0.92  # a rank below this share of the highest rate must have shared its core: see `step_time`


def two_rank_ratios(case, rounds, steps, end=math.inf):
    """{what: ratios of time of our 2 ranks to it} and how many rounds were dropped because a rank had to share its core.

    "1 rank", "DDP" (DistributedDataParallel on 2), "apart": two ranks with half of the batch each that do not communicate,
    which is what these two cores can do. Rounds in which a rank shared its core are repeated, up to
    three times `rounds` in all; if still too few are undisturbed, the least disturbed ones count. end: the moment, of
    `time.monotonic`, after which no round begins.
    """
    found = []
    with tqdm(total=rounds, unit=" rounds", delay=2, disable=None) as bar:
        while len(found) < 3 * rounds and bar.n < rounds and (not found or time.monotonic() < end):
            found.append({
                "1 rank": job(1, "step_time", case, steps),
                "2 ranks": job(2, "step_time", case, steps),
                "apart": job(2, "step_time", case, steps, "--apart"),
                # mpiexec only places the two processes; they talk through gloo.
                "DDP": job(2, "torch_peer", case, steps),
            })  # fmt: skip
            best = max(pace(jobs) for jobs in found)
            bar.update(sum(pace(jobs) >= CALM * best for jobs in found) - bar.n)
    kept = sorted(found, key=pace)[-rounds:]
    names = [name for name in kept[0] if name != "2 ranks"]
    ratios = {name: [jobs["2 ranks"]["seconds"] / jobs[name]["seconds"] for jobs in kept] for name in names}
    return ratios, len(found) - len(kept)


def pace(jobs):
    """The rate of the matrix product of `step_time` on the slowest rank in the jobs of one round."""
    return min(found["pace"] for found in jobs.values() if "pace" in found)


def job(ranks, program, case, steps, *more):
    """What a job of `step_time` or `torch_peer` prints as JSON."""
    finished = mpiexec(ranks, ["-m", f"experiments.benchmarks.{program}", *options(case, steps), *more], timeout=300)
    check_ended(finished, f"{program} on {case.name}")
    return json.loads(finished.stdout.strip().splitlines()[-1])


def options(case, steps):
    """A case as the command line of the programs that time it."""
    shape = (case.shape,) if isinstance(case.shape, int) else case.shape
    values = {
        "net": case.net,
        "shape": ",".join(map(str, shape)),
        "outputs": case.outputs,
        "batch-size": case.batch_size,
        "steps": steps,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]
