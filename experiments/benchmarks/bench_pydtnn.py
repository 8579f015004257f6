"""Our training steps against PyDTNN's, one thread each, alternately: for `bench`.

PyDTNN needs Python 3.13 and is under the GPL: it is installed in an environment of its own, and only ever run there, as
the program `pydtnn_peer.py`.
"""

import json
import subprocess
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.benchmarks.bench_ranks import job
from gridgrad.experiments.benchmarks.cases import CIFAR, MNIST, StepCase
from gridgrad.experiments.benchmarks.rounds import AGAIN, OutOfTime, quiet_rounds, rounds_until, seconds_until
from gridgrad.parallel.job.run import UserError, one_line

PYTHON = Path(".venv-pydtnn/bin/python")  # that `make peers` sets up
CASES = [
    StepCase("mnist-cnn, batch 64", "mnist-cnn", MNIST, 10, 64, bound=0.5),
    StepCase("cifar-cnn, batch 64", "cifar-cnn", CIFAR, 10, 64, bound=0.5, large=True),
]


def version(python):
    """The version of PyDTNN that an interpreter has; UserError if it has none."""
    # The import is tried as well: without an MPI library PyDTNN 3.11 is there but does not load.
    printed = _run(python, 60, "-c", "import pydtnn.model, importlib.metadata as m; print(m.version('pydtnn'))")
    return printed.splitlines()[-1]


def pydtnn_ratios(case, python, rounds, steps, end):
    """{"cpu", "wall": round by round, the time of our step over that of PyDTNN's}, a process each, and the marks of `Rounds`.

    end: the moment, of `time.monotonic`, at which it is over: what has then not ended is ended and does not count, so that
    there may be fewer rounds, or none.
    """
    peer = ["-P", Path(__file__).with_name("pydtnn_peer.py"), "--net", case.net, "--batch-size", case.batch_size]

    def one_round():
        ours = job(1, "step_time", case, steps, end)
        theirs = json.loads(_run(python, seconds_until(end), *peer, "--steps", steps).splitlines()[-1])
        return {clock: ours[name] / theirs[name] for clock, name in (("cpu", "cpu_seconds"), ("wall", "seconds"))}

    most = AGAIN * rounds
    bar = tqdm(rounds_until(end, most), total=most, unit=" rounds", delay=2, disable=None)
    found = quiet_rounds(one_round, bar, rounds)
    return {clock: [ratio[clock] for ratio in found.counted] for clock in ("cpu", "wall")} | found.marks()


def _run(python, seconds, *arguments):
    """What a run of PyDTNN's interpreter prints. Raises OutOfTime if it has not ended after so many seconds."""
    try:
        command = [str(python), *map(str, arguments)]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"PyDTNN has not ended in {seconds:.0f} s: try again when the machine is not busy") from None
    except OSError as error:
        raise UserError(f"PyDTNN does not run in {python}, see `make peers`: {one_line(error)}") from None
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"PyDTNN does not run in {python}, see `make peers`: {last}")
    return finished.stdout
