"""Two ranks of one thread against one rank and against PyTorch DistributedDataParallel with gloo, jobs in turn: for `bench`."""

import json
from collections import defaultdict

from tqdm import tqdm

from experiments.bench_serial import Case
from parallel.job import UserError
from parallel.launch import mpiexec

# bound: of 2 ranks over 1; best_bound: of 2 ranks over DistributedDataParallel on 2.
TWO_RANKS = [
    Case("1024-2048-1024-10 tanh, batch 128", "mlp:2048,1024,tanh", 1024, 10, 128, "cross-entropy", 1 / 1.5, 1.0),
    Case("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, "cross-entropy", 1 / 1.85, 1.0),
    Case("cifar-cnn, batch 64", "cifar-cnn", (32, 32, 3), 10, 64, "cross-entropy", 1 / 1.85, 1.0),
    Case("cifar-cnn, batch 128", "cifar-cnn", (32, 32, 3), 10, 128, "cross-entropy", 1 / 1.9, 1.0),
]
OWN_CORE = 0.97  # of a core, of which a rank that has one for itself has at least so much


def two_rank_ratios(case, rounds, steps):
    """{what: ratios of time of our 2 ranks to it} and how many rounds were dropped because a rank had to share its core.

    "1 rank", "DDP" (DistributedDataParallel on 2), "apart": two ranks with half of the batch each and nothing to say to
    each other, which is what these two cores can do. At most as many rounds are dropped as are kept.
    """
    ratios, dropped = defaultdict(list), 0
    with tqdm(total=rounds, unit=" rounds", delay=2, disable=None) as bar:
        while len(ratios["1 rank"]) < rounds:
            jobs = {
                "1 rank": job(1, "step_time", case, steps),
                "2 ranks": job(2, "step_time", case, steps),
                "apart": job(2, "step_time", case, steps, "--apart"),
            }
            if min(found["cores"] for found in jobs.values()) < OWN_CORE and dropped < rounds:
                dropped += 1
                continue
            # mpiexec only places the two processes; they talk through gloo.
            jobs["DDP"] = job(2, "torch_peer", case, steps)
            two = jobs.pop("2 ranks")["seconds"]
            for name, found in jobs.items():
                ratios[name].append(two / found["seconds"])
            bar.update()
    return ratios, dropped


def job(ranks, program, case, steps, *more):
    """What a job of `step_time` or `torch_peer` prints as JSON."""
    finished = mpiexec(ranks, ["-m", f"experiments.{program}", *options(case, steps), *more], timeout=300)
    if finished.status != 0:
        raise UserError(f"{program} on {case.name} ended with status {finished.status}: {finished.stderr.strip()[-300:]}")
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
