"""Compare our training steps with those of PyTorch and PyDTNN, measured alternately in one run.

    make bench
    make bench BENCH=--quick

| in `experiments/benchmarks/` | what                                                                                    |
|------------------------------|-----------------------------------------------------------------------------------------|
| `bench_limits.py`            | the BLAS of both sides, and how fast products and copies can be here                    |
| `bench_serial.py`            | serial training steps and inference against PyTorch eager, one thread each              |
| `bench_conv.py`              | single convolutions, forward and backward, against PyTorch's, one thread each           |
| `bench_ranks.py`             | 2 ranks of one thread against one, and against DistributedDataParallel with gloo        |
| `bench_sums.py`              | sums in shared memory against the MPI library's all-reduce and the limit of memory      |
| `bench_pydtnn.py`            | serial training steps against PyDTNN's, where its environment is                        |
| `peak_memory.py`             | the memory of training steps against that of PyTorch's, for every network of the zoo    |

Every figure of time is a ratio of two times that were measured alternately: the median over the rounds, and their spread. In
serial comparisons it is the time that the processor worked, since there is one thread, and the time that passed beside it.
Rounds in which others compute on the machine are made again and do not count; where there is none without, the comparison is
not judged. The run ends after `--minutes`, also on a busy machine: comparisons then have fewer rounds or are missing, and the
table says so. Writes DIR/bench.json and DIR/bench.md.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gridgrad.experiments.benchmarks import bench_pydtnn
from gridgrad.experiments.benchmarks.bench_conv import SHAPES
from gridgrad.experiments.benchmarks.bench_pydtnn import pydtnn_ratios
from gridgrad.experiments.benchmarks.bench_ranks import TWO_RANKS, two_rank_ratios
from gridgrad.experiments.benchmarks.bench_ranks import options as case_options
from gridgrad.experiments.benchmarks.bench_sums import CASES
from gridgrad.experiments.benchmarks.bench_table import median_of, row, table
from gridgrad.experiments.benchmarks.cases import MEMORY, SERIAL
from gridgrad.experiments.benchmarks.rounds import (
    SharedTime,
    add_comparison,
    comparison_options,
    in_minutes,
    seconds_until,
    selected,
)
from gridgrad.experiments.common import report
from gridgrad.experiments.common.jobs import printed_json
from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.launching.start_ranks import mpiexec, slots
from gridgrad.parallel.job.run import UserError, run_launcher

RETAINED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
SERIAL_MEDIAN_BOUND = 0.8  # of the median of all networks, with PyTorch as its users run it
CONV_BOUND, CONV_MEDIAN_BOUND = 1.3, 1.0  # bounds for each shape and for the median of all shapes
SUM_BOUND, LIMIT_BOUND = 0.5, 2.0  # bounds for sums in shared memory
STEPS = 10  # that a job times in a round
TOLD = 0.9  # the part of its time that a program is told: it is ended at the end of the whole
QUICK_ROUNDS, QUICK_MINUTES = 3, 3.0


@dataclass
class BenchPart:
    """A part of the run. cases: what it compares. weight: its share of the time, in minutes of a whole run.

    measure: a function of the options and of the moment when it has to end, which returns rows of the table named `table`.
    """

    name: str
    cases: list
    weight: float
    measure: Callable
    table: str = "ratios"


def serial_rows(args, end):
    cases, clock = selected(SERIAL, args), SharedTime(end, [2, 3])  # at its best PyTorch runs in two layouts
    usual = measured("bench_serial", args, clock.share())
    best = measured("bench_serial", args, clock.share(), "--best", env=RETAINED)
    rows = {f"serial / PyTorch: {case.name}": row(usual.get(case.name), case.bound) for case in cases}
    rows |= {f"serial / PyTorch at its best: {case.name}": row(best.get(case.name), case.best_bound) for case in cases}
    if cases == SERIAL:
        rows["serial / PyTorch: median of the networks"] = row(median_of(usual, cases), SERIAL_MEDIAN_BOUND)
        rows["serial / PyTorch at its best: median of the networks"] = row(median_of(best, cases), None)
    return rows


def conv_rows(args, end):
    cases, found = selected(SHAPES, args), measured("bench_conv", args, end, env=RETAINED)
    rows = {f"convolution / PyTorch at its best: {case.name}": row(found.get(case.name), CONV_BOUND) for case in cases}
    if cases == SHAPES:
        rows["convolutions: median of the shapes"] = row(median_of(found, cases), CONV_MEDIAN_BOUND)
    return rows


def rank_rows(args, end):
    rows, cases = {}, selected(TWO_RANKS, args)
    clock = SharedTime(end, [1] * len(cases))
    for case in cases:
        ratios, marks, dropped = two_rank_ratios(case, args.rounds, STEPS, clock.share())
        note = {"dropped": dropped} if dropped else {}
        rows[f"2 ranks / 1 rank: {case.name}"] = row({"wall": ratios["1 rank"]} | marks, case.bound) | note
        rows[f"2 ranks / 2 ranks with nothing to say: {case.name}"] = row({"wall": ratios["apart"]} | marks, None)
        rows[f"2 ranks / PyTorch DDP gloo on 2: {case.name}"] = row({"wall": ratios["DDP"]} | marks, case.best_bound)
    return rows


def sum_rows(args, end):
    program = [*as_module("benchmarks.bench_sums"), "--rounds", str(args.rounds)]
    finished = mpiexec(2, program, timeout=seconds_until(end))
    if finished.status is None:  # a busy machine: the other comparisons are still worth their time
        found = {case.name: {} for case in CASES}
    else:
        found = printed_json(finished, "bench_sums")
    others = {"the MPI library's": ("mpi", SUM_BOUND), "adding and copying": ("limit", LIMIT_BOUND)}
    return {
        f"{name} / {other}": row(ratios | {"wall": ratios.get(entry)}, bound)
        for other, (entry, bound) in others.items()
        for name, ratios in found.items()
    }


def pydtnn_rows(args, end, python):
    rows, cases = {}, selected(bench_pydtnn.CASES, args)
    clock = SharedTime(end, [1] * len(cases))
    for case in cases:
        ratios = pydtnn_ratios(case, python, args.rounds, STEPS, clock.share())
        rows[f"serial / PyDTNN: {case.name}"] = row(ratios, case.bound)
    return rows


def memory_rows(args, end):
    rows, cases = {}, selected(MEMORY, args)
    clock = SharedTime(end, [4 if case.large else 1 for case in cases])
    for case in cases:
        case_end = clock.share()
        rows[case.name] = {"bound": case.bound}
        for side, more in (("ours", []), ("peer", ["--peer"])):
            for found in printed("peak_memory", [*case_options(case), *more], case_end):
                rows[case.name][side] = found["bytes"]
    return rows


def measured(program, args, end, *more, env=None):
    """{name: ratios} of the comparisons that a program has made by the moment `end`, with these of our options and `more`."""
    minutes = TOLD * max(0.0, end - time.monotonic()) / 60
    lines = printed(program, [*comparison_options(args, minutes), *more], end, env)
    return {name: ratios for line in lines for name, ratios in line.items()}


def printed(program, options, end, env=None):
    """The lines of JSON that a program prints, run in a process of its own: those until the moment `end`, when it is killed."""
    command = [sys.executable, *as_module(f"benchmarks.{program}"), *options]
    try:
        finished = subprocess.run(command, env=os.environ | (env or {}), stdout=subprocess.PIPE, timeout=seconds_until(end))
        if finished.returncode:
            raise UserError(f"{program} failed, see above")
        output = finished.stdout
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
    return [json.loads(line) for line in output.split(b"\n")[:-1]]


def options():
    parser = Parser(prog="bench", description="Compare training steps with PyTorch's and PyDTNN's.")
    add_comparison(parser)
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for bench.json and bench.md")
    python = f"interpreter that has PyDTNN; default: {bench_pydtnn.PYTHON} if it is there, else PyDTNN is skipped"
    parser.add_argument("--pydtnn", metavar="PATH", help=python)
    return parser


def main():
    args = options().parse_args()
    if args.quick:
        args.rounds, args.minutes = min(args.rounds, QUICK_ROUNDS), min(args.minutes, QUICK_MINUTES)
    end = in_minutes(args.minutes)
    with user_input():
        check_writable(Path(args.out) / "bench.json")
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in RETAINED:  # whatever this shell says, malloc is as usual where it is not at its best
        os.environ.pop(name, None)
    try:
        import torch
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make bench`, which installs it") from None
    python = args.pydtnn or (bench_pydtnn.PYTHON if bench_pydtnn.PYTHON.exists() else None)
    parts = [
        BenchPart("serial", SERIAL, 7.5, serial_rows),
        BenchPart("conv", SHAPES, 2.5, conv_rows),
        BenchPart("rank", TWO_RANKS, 4.0, rank_rows),
        BenchPart("sum", CASES, 0.3, sum_rows),
        BenchPart("pydtnn", bench_pydtnn.CASES if python else [], 1.0, partial(pydtnn_rows, python=python)),
        BenchPart("memory", MEMORY, 1.2, memory_rows, "memory"),
    ]
    cases = [case for part in parts for case in part.cases]
    names = {case.name for case in selected(cases, args)}
    results = {
        "versions": report.versions(),
        "torch": torch.__version__,
        "pydtnn": bench_pydtnn.version(python) if python else None,
        "slots": slots(),
        "busy_cores": report.busy_cores(),
        "rounds": args.rounds,
        "left_out": sorted({case.name for case in cases if args.quick and case.large and args.only in case.name}),
        "limits": next(iter(printed("bench_limits", [], end)), None),
        "ratios": {},
        "memory": {},
    }
    parts = [part for part in parts if any(case.name in names for case in part.cases)]
    clock = SharedTime(end, [part.weight for part in parts])
    for number, part in enumerate(parts, 1):
        left = max(0.0, end - time.monotonic()) / 60
        print(f"part {number} of {len(parts)}, {part.name}: {left:.1f} minutes are left", file=sys.stderr, flush=True)
        results[part.table] |= part.measure(args, clock.share())
    report.write_json(Path(args.out) / "bench.json", results)
    text = table(results)
    report.write_text(Path(args.out) / "bench.md", text)
    print(f"{terminal(text)}\nwritten to {args.out}: bench.json and bench.md")


if __name__ == "__main__":
    run_launcher(main)
