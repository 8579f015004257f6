"""Two ranks of one thread against one rank and against PyTorch DistributedDataParallel with gloo, jobs in turn: for `bench`."""

from tqdm import tqdm

from gridgrad.experiments.benchmarks.cases import CIFAR, StepCase
from gridgrad.experiments.benchmarks.rounds import OutOfTime, rounds_until, seconds_until, sorted_out, watched
from gridgrad.experiments.common.jobs import printed_json
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.launching.start_ranks import mpiexec

# bound: of 2 ranks over 1; best_bound: of 2 ranks over DistributedDataParallel on 2.
TWO_RANKS = [
    StepCase("1024-2048-1024-10 tanh, batch 128", "mlp:2048,1024,tanh", 1024, 10, 128, bound=1 / 1.5),
    StepCase("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, bound=1 / 1.85, large=True),
    StepCase("cifar-cnn, batch 64", "cifar-cnn", CIFAR, 10, 64, bound=1 / 1.85, large=True),
    StepCase("cifar-cnn, batch 128", "cifar-cnn", CIFAR, 10, 128, bound=1 / 1.9, large=True),
]
CALM = 0.92  # a rank below this share of the highest rate must have shared its core: see `step_time`


def two_rank_ratios(case, rounds, steps, end):
    """{what: ratios of time of our 2 ranks to it}, the marks of `Rounds`, and how many more rounds were dropped.

    "1 rank", "DDP" (DistributedDataParallel on 2), "apart": two ranks with half of the batch each that do not communicate,
    which is what these two cores can do. Rounds in which others computed here, or a core was slower, are repeated, up to three
    times `rounds` in all. A core may be slower for what no counter here shows, such as another virtual machine on it; if still
    too few rounds are at the full rate, the fastest ones count. end: the moment, of `time.monotonic`, at which it is over: what
    has then not ended is ended and does not count, so that there may be fewer rounds, or none.
    """

    def one_round():
        return {
            "1 rank": job(1, "step_time", case, steps, end),
            "2 ranks": job(2, "step_time", case, steps, end),
            "apart": job(2, "step_time", case, steps, end, "--apart"),
            # mpiexec only places the two processes; they talk through gloo.
            "DDP": job(2, "torch_peer", case, steps, end),
        }

    found = []
    with tqdm(total=rounds, unit=" rounds", delay=2, disable=None) as bar:
        for _ in rounds_until(end, 3 * rounds):
            try:
                found.append(watched(one_round))
            except OutOfTime:
                break
            best = max(pace(jobs) for jobs, _ in found)
            calm = sum(not busy and pace(jobs) >= CALM * best for jobs, busy in found)
            bar.update(calm - bar.n)
            if calm >= rounds:
                break
    quiet = sorted_out(found)
    kept = sorted(quiet.counted, key=pace)[-rounds:]
    ratios = {
        name: [jobs["2 ranks"]["seconds"] / jobs[name]["seconds"] for jobs in kept] for name in ("1 rank", "apart", "DDP")
    }
    return ratios, quiet.marks(), len(quiet.counted) - len(kept)


def pace(jobs):
    """The rate of the matrix product of `step_time` on the slowest rank in the jobs of one round."""
    return min(found["pace"] for found in jobs.values() if "pace" in found)


def job(ranks, program, case, steps, end, *more):
    """What a job of `step_time` or `torch_peer` prints as JSON. Raises OutOfTime if it has not ended at the moment `end`."""
    arguments = [*as_module(f"benchmarks.{program}"), *options(case), "--steps", str(steps), *more]
    finished = mpiexec(ranks, arguments, timeout=seconds_until(end))
    if finished.status is None:
        raise OutOfTime(f"{program} on {case.name} has not ended in the time: try again when the machine is not busy")
    return printed_json(finished, f"{program} on {case.name}")


def options(case):
    """A case as the command line of the programs that measure it."""
    shape = (case.shape,) if isinstance(case.shape, int) else case.shape
    values = {
        "net": case.net,
        "shape": ",".join(map(str, shape)),
        "outputs": case.outputs,
        "batch-size": case.batch_size,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]
