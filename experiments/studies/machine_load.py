"""Measure how much programs that compute beside a training take of the machine, and whether that is noticed.

    gridgrad study machine-load --out results/machine_load.json

Trainings on each number of ranks take turns with each number of loops beside them, processes that do nothing but count. The
report of each training says what others took of the cores, and whether its times are comparable
(`experiments/common/machine_load.py`). Without loops this says how quiet the machine is, so let nothing else run.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median

from gridgrad.experiments.common import report
from gridgrad.experiments.common.jobs import check_ended
from gridgrad.experiments.common.machine_load import QUIET
from gridgrad.experiments.common.options import Parser, check_writable, position_list, user_input, whole, whole_list
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.experiments.launching.start_ranks import cores, mpiexec
from gridgrad.parallel.job.own_process import end_with_parent
from gridgrad.parallel.job.run import UserError, run_launcher

TIMEOUT = 600  # seconds of a training
PROBLEM = "--net", "mlp:512,512,tanh", "--batch-size", "256"


@contextlib.contextmanager
def loops_beside(number):
    """A `with` block beside which so many processes do nothing but count."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command, preexec_fn=end_with_parent) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def training(ranks, steps, folder):
    """{"seconds" of the median step, "load"} of a training on so many ranks, from its report."""
    path = Path(folder) / "report.json"
    words = [*as_module("train"), "--quiet", *PROBLEM, "--steps", str(steps), "--report", str(path)]
    check_ended(mpiexec(ranks, words, TIMEOUT), f"a training on {ranks} ranks")
    written = json.loads(path.read_text())
    if written["load"] is None:
        raise UserError("this system does not say how busy it is: nothing can be measured here")
    return {"seconds": written["seconds_per_step"]["median"], "load": written["load"]}


def rows_of(measured):
    """A row of the table for each number of ranks and of loops. measured: what the report has under that name."""
    quiet = {ranks: seconds_of(measured, ranks, 0) for ranks in dict.fromkeys(row["ranks"] for row in measured)}
    for ranks, loops in dict.fromkeys((row["ranks"], row["loops"]) for row in measured):
        loads = [row["load"] for row in measured if (row["ranks"], row["loops"]) == (ranks, loops)]
        seconds = seconds_of(measured, ranks, loops)
        yield {
            "ranks": ranks, "loops beside them": loops,
            "cores taken by others": in_cores([load["others"] for load in loads]),
            "by the host": in_cores([load["stolen"] for load in loads]),
            "ms a step": spread(range_of(seconds), 1e-3),
            "times as long": f"{median(seconds) / median(quiet[ranks]):.2f}" if quiet[ranks] else "",
            "marked": f"{sum(load['verdict'] is not None for load in loads)} of {len(loads)}",
        }  # fmt: skip


def in_cores(taken):
    """The median of some numbers of cores and their range, as text."""
    return f"{median(taken):.2f} ({min(taken):.2f} - {max(taken):.2f})"


def seconds_of(measured, ranks, loops):
    return [row["seconds"] for row in measured if (row["ranks"], row["loops"]) == (ranks, loops)]


def options():
    parser = Parser(prog="study machine-load", description="How much do programs beside a training take, and is that noticed?")
    add = parser.add_argument
    here = len(cores())
    words = "numbers of ranks; default: 1, as many as there are cores, and twice as many"
    add("--ranks", type=whole_list, default=sorted({1, here, 2 * here}), metavar="P,P,..", help=words)
    words = "numbers of loops; default: none, one, and as many as there are cores"
    add("--loops", type=position_list, default=tuple(sorted({0, 1, here})), metavar="N,N,..", help=words)
    add("--steps", type=whole(8), default=600, help="steps of a training")
    add("--rounds", type=whole(1), default=5, help="rounds, in each of which everything is measured once")
    add("--out", default="results/machine_load.json", metavar="FILE.json", help="the report")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        check_writable(args.out)
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for _, ranks, loops in progress(list(product(range(args.rounds), args.ranks, args.loops)), "machine-load: trainings"):
            with loops_beside(loops):
                measured.append({"ranks": ranks, "loops": loops} | training(ranks, args.steps, folder))
    content = {"settings": vars(args), "versions": report.versions(), "quiet": QUIET, "measured": measured}
    report.write_json(args.out, content)
    print(f"{table(list(rows_of(measured)))}\nwritten to {args.out}")


if __name__ == "__main__":
    run_launcher(main)
