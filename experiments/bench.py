"""Compare our training steps with those of PyTorch and PyDTNN, measured alternately in one run.

    make bench

| part                          | what                                                                             |
|-------------------------------|----------------------------------------------------------------------------------|
| `experiments/benchmarks/bench_serial.py` | serial steps against PyTorch eager, one thread each                              |
| `experiments/benchmarks/bench_conv.py`   | single convolutions, forward and backward, against PyTorch's, one thread each    |
| `experiments/benchmarks/bench_ranks.py`  | 2 ranks of one thread against one, and against DistributedDataParallel with gloo |
| `experiments/benchmarks/bench_sums.py` | sums in shared memory against the MPI library's all-reduce and the limit of memory |
| `experiments/benchmarks/bench_pydtnn.py` | serial steps against PyDTNN's, where its environment is                          |
| `experiments/benchmarks/peak_memory.py`  | the memory of training steps against that of PyTorch's                           |

Every figure is a ratio of two times that were measured alternately: the median over the rounds, and their spread. `--minutes`
limits the time; if it ends early, comparisons have fewer rounds, and the table says so. Writes
DIR/bench.json and DIR/bench.md.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

from experiments.benchmarks import bench_pydtnn
from experiments.benchmarks.bench_conv import SHAPES
from experiments.benchmarks.bench_pydtnn import pydtnn_ratios
from experiments.benchmarks.bench_ranks import TWO_RANKS, two_rank_ratios
from experiments.benchmarks.bench_serial import SERIAL, Case
from experiments.benchmarks.bench_sums import CASES
from experiments.benchmarks.rounds import Clock, add_comparison, selected
from experiments.common import report
from experiments.common.jobs import check_ended
from experiments.common.options import Parser, check_writable, user_input
from parallel.job.launch import mpiexec, slots
from parallel.job.run import UserError, run_launcher

RETAINED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
CONV_BOUND, CONV_MEDIAN_BOUND = 1.3, 1.0  # bounds for each shape and for the median of all shapes
SUM_BOUND, LIMIT_BOUND = 0.5, 2.0  # bounds for sums in shared memory
MEMORY = Case("vgg16, batch 8", "vgg16", (224, 224, 3), 1000, 8, "cross-entropy", 1.2)
STEPS = 25  # that a job times in a round


def serial_rows(only, rounds, minutes):
    options = "--rounds", rounds, "--only", only, "--minutes", minutes / 2
    usual = measured("bench_serial", *options)
    best = measured("bench_serial", *options, "--best", env=RETAINED)
    cases = selected(SERIAL, only)
    rows = {f"serial step / PyTorch: {case.name}": row(usual[case.name], case.bound) for case in cases}
    return rows | {f"serial step / PyTorch at its best: {case.name}": row(best[case.name], case.best_bound) for case in cases}


def conv_rows(only, rounds, minutes):
    ratios = measured("bench_conv", "--rounds", rounds, "--only", only, "--minutes", minutes, env=RETAINED)
    rows = {f"convolution / PyTorch at its best: {name}": row(values, CONV_BOUND) for name, values in ratios.items()}
    if len(ratios) == len(SHAPES):
        rows["convolutions: median of the shapes"] = row(
            [median(values) for values in zip(*ratios.values())], CONV_MEDIAN_BOUND
        )
    return rows


def rank_rows(only, rounds, minutes):
    rows, cases = {}, selected(TWO_RANKS, only)
    clock = Clock(minutes, len(cases))
    for case in cases:
        ratios, dropped = two_rank_ratios(case, rounds, STEPS, clock.share())
        note = {"dropped": dropped} if dropped else {}
        rows[f"2 ranks / 1 rank: {case.name}"] = row(ratios["1 rank"], case.bound) | note
        rows[f"2 ranks / 2 ranks with nothing to say: {case.name}"] = row(ratios["apart"], None)
        rows[f"2 ranks / PyTorch DDP gloo on 2: {case.name}"] = row(ratios["DDP"], case.best_bound)
    return rows


def sum_rows(only, rounds, minutes):
    finished = mpiexec(2, ["-m", "experiments.benchmarks.bench_sums", "--rounds", str(rounds)], timeout=max(60, 60 * minutes))
    if finished.status is None:  # a busy machine: the other comparisons are still worth their time
        return {}
    check_ended(finished, "bench_sums")
    found = json.loads(finished.stdout.strip().splitlines()[-1])
    rows = {f"{name} / the MPI library's": row(ratios["mpi"], SUM_BOUND) for name, ratios in found.items()}
    return rows | {f"{name} / adding and copying": row(ratios["limit"], LIMIT_BOUND) for name, ratios in found.items()}


def pydtnn_rows(only, rounds, minutes, python):
    rows, cases = {}, selected(bench_pydtnn.CASES, only)
    clock = Clock(minutes, len(cases))
    for case in cases:
        ratios = pydtnn_ratios(case, python, rounds, STEPS, clock.share())
        rows[f"serial step / PyDTNN: {case.name}"] = row(ratios, case.bound)
    return rows


def measured(program, *options, env=None):
    """What one of our programs prints as JSON, run in a process of its own."""
    arguments = [sys.executable, "-m", f"experiments.benchmarks.{program}", *map(str, options)]
    finished = subprocess.run(arguments, env=os.environ | (env or {}), stdout=subprocess.PIPE, text=True)
    if finished.returncode:
        raise UserError(f"{program} failed, see above")
    return json.loads(finished.stdout)


def row(ratios, bound):
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios), "bound": bound, "rounds": len(ratios)}


def table(results):
    """The results as Markdown."""
    lines = [
        "# Training steps against PyTorch and PyDTNN",
        "",
        "Written by `make bench`. Ratios of time, below 1 is faster; median and spread over the rounds; one thread a rank.",
        f"{results['versions']['processor']}, {results['slots']} cores, NumPy {results['versions']['numpy']} "
        f"({results['versions']['blas']}), PyTorch {results['torch']}, {results['versions']['mpi']}.",
        "PyTorch is run as its users run it; at its best, glibc's malloc is told to keep the pages of large arrays, and images",
        "have their channels first or last, whichever is faster.",
        peer_words(results.get("pydtnn")),
        *memory_words(results.get("peak_memory")),
        idleness(results["busy_cores"]),
        "",
        "| what | median | min | max | bound | |",
        "|---|---|---|---|---|---|",
    ]
    for name, r in results["ratios"].items():
        bound = "-" if r["bound"] is None else f"{r['bound']:.3f}"
        kept = "" if r["bound"] is None else "within" if r["median"] <= r["bound"] else "**above**"
        if r.get("rounds", 0) < results.get("rounds", 0):
            kept += f", {r['rounds']} of {results['rounds']} rounds in the time"
        if dropped := r.get("dropped"):
            kept += f", {dropped} rounds dropped in which a rank had to share its core"
        lines.append(f"| {name} | {r['median']:.3f} | {r['min']:.3f} | {r['max']:.3f} | {bound} | {kept} |")
    return "\n".join(lines) + "\n"


def peer_words(version):
    return f"PyDTNN {version}, in the faster of its layouts." if version else "PyDTNN: skipped, needs Python 3.13."


def memory_words(peak):
    if peak:
        ours, peer = (peak[side] / 2**30 for side in ("ours", "peer"))
        yield f"Two training steps of {MEMORY.name}, hold {ours:.2f} GiB at the most, PyTorch's {peer:.2f} GiB."


def idleness(busy):
    if busy is None:
        return "Whether the machine was idle before the run is not known."
    return f"Before the run {busy:.2f} cores were busy: the machine was {'idle' if busy < 0.1 else '**not idle**'}."


def main():
    parser = Parser(prog="bench", description="Compare training steps with PyTorch's and PyDTNN's.")
    add_comparison(parser)
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for bench.json and bench.md")
    python = f"interpreter that has PyDTNN; default: {bench_pydtnn.PYTHON} if it is there, else PyDTNN is skipped"
    parser.add_argument("--pydtnn", metavar="PATH", help=python)
    args = parser.parse_args()
    with user_input():
        check_writable(Path(args.out) / "bench.json")
    for name in RETAINED:  # whatever this shell says, malloc is as usual where it is not at its best
        os.environ.pop(name, None)
    try:
        import torch
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make bench`, which installs it") from None
    python = args.pydtnn or (bench_pydtnn.PYTHON if bench_pydtnn.PYTHON.exists() else None)
    results = {
        "versions": report.versions(),
        "torch": torch.__version__,
        "pydtnn": bench_pydtnn.version(python) if python else None,
        "slots": slots(),
        "busy_cores": report.busy_cores(),
        "rounds": args.rounds,
        "ratios": {},
    }
    parts = [
        ("serial", SERIAL, serial_rows),
        ("conv", SHAPES, conv_rows),
        ("rank", TWO_RANKS, rank_rows),
        ("sum", CASES, sum_rows),
        ("pydtnn", bench_pydtnn.CASES if python else [], partial(pydtnn_rows, python=python)),
    ]
    selected([case for _, cases, _ in parts for case in cases] + [MEMORY], args.only)
    parts = [(name, measure) for name, cases, measure in parts if any(args.only in case.name for case in cases)]
    clock = Clock(args.minutes, len(parts))
    for number, (name, measure) in enumerate(parts, 1):
        print(f"part {number} of {len(parts)}, {name}: {clock.minutes:.0f} minutes are left",
              file=sys.stderr, flush=True)  # fmt: skip
        results["ratios"] |= measure(args.only, args.rounds, (clock.share() - time.monotonic()) / 60)
    if args.only in MEMORY.name:
        peak = {side: measured("peak_memory", *options)["bytes"] for side, options in (("ours", []), ("peer", ["--peer"]))}
        results["peak_memory"] = peak
        results["ratios"][f"peak memory / PyTorch: {MEMORY.name}"] = row([peak["ours"] / peak["peer"]], MEMORY.bound)
    report.write_json(Path(args.out) / "bench.json", results)
    text = table(results)
    report.write_text(Path(args.out) / "bench.md", text)
    print(text)


if __name__ == "__main__":
    run_launcher(main)
