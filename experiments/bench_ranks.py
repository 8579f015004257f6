"""Two ranks of one thread against one rank and against PyTorch DistributedDataParallel with gloo, jobs in turn: for `bench`."""

import json

from tqdm import tqdm

from experiments.bench_serial import Case
from parallel.job import UserError
from parallel.launch import mpiexec

# bound: of 2 ranks over 1; best_bound: of 2 ranks over DistributedDataParallel on 2.
TWO_RANKS = [
    Case("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, "cross-entropy", 1 / 1.8, 1.0),
    Case("cifar-cnn, batch 64", "cifar-cnn", (32, 32, 3), 10, 64, "cross-entropy"),
    Case("cifar-cnn, batch 128", "cifar-cnn", (32, 32, 3), 10, 128, "cross-entropy"),
]


def two_rank_ratios(case, rounds, steps):
    """Round by round: (our 2 ranks over our 1, our 2 ranks over DistributedDataParallel on 2)."""
    over_one, over_peer = [], []
    for _ in tqdm(range(rounds), unit=" rounds", delay=2, disable=None):
        one = job_seconds(1, "step_time", case, steps)
        two = job_seconds(2, "step_time", case, steps)
        # mpiexec only places the two processes; they talk through gloo.
        peer = job_seconds(2, "torch_peer", case, steps)
        over_one.append(two / one)
        over_peer.append(two / peer)
    return over_one, over_peer


def job_seconds(ranks, program, case, steps):
    """The seconds a step that a job of `step_time` or `torch_peer` prints as JSON."""
    finished = mpiexec(ranks, ["-m", f"experiments.{program}", *options(case, steps)], timeout=300)
    if finished.status != 0:
        raise UserError(f"{program} on {case.name} ended with status {finished.status}: {finished.stderr.strip()[-300:]}")
    return json.loads(finished.stdout.strip().splitlines()[-1])["seconds"]


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
