"""The peer comparison: our training steps against PyTorch's, side by side in one run.

    make bench

Serial steps against PyTorch eager, one thread each (`experiments/bench_serial.py`). Two ranks of one thread against one
rank and against PyTorch DistributedDataParallel with gloo, jobs in turn. Every figure is a ratio of times taken next
to each other, as the median and the spread over the rounds. Writes DIR/bench.json and DIR/bench.md.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from tqdm import tqdm

from datasets.files import written_whole
from experiments import report
from experiments.bench_serial import SERIAL, Case
from experiments.options import Parser, check_writable, user_input, whole
from parallel.job import UserError, run_launcher
from parallel.launch import mpiexec, slots

RETAINED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
TWO_RANKS = Case("1024-2048-1024-10 tanh, batch 1024", "mlp:2048,1024,tanh", 1024, 10, 1024, "cross-entropy", 1 / 1.8)


def serial_ratios(rounds, env=None):
    """{name of a case: [our time over PyTorch's, a round each]}, measured in a process of its own."""
    arguments = [sys.executable, "-m", "experiments.bench_serial", "--rounds", str(rounds)]
    finished = subprocess.run(arguments, env=os.environ | (env or {}), stdout=subprocess.PIPE, text=True)
    if finished.returncode:
        raise UserError("the comparison of serial steps failed, see above")
    return json.loads(finished.stdout)


def two_rank_ratios(case, rounds, steps):
    """Round by round: (our 2 ranks over our 1, our 2 ranks over DistributedDataParallel on 2)."""
    options = {
        "net": case.net,
        "features": case.features,
        "outputs": case.outputs,
        "batch-size": case.batch_size,
        "steps": steps,
    }
    shape = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    over_one, over_peer = [], []
    for _ in tqdm(range(rounds), unit=" rounds", delay=2, disable=None):
        one = _job(1, ["-m", "experiments.step_time", *shape])
        two = _job(2, ["-m", "experiments.step_time", *shape])
        # mpiexec only places the two processes; they talk through gloo.
        peer = _job(2, ["-m", "experiments.torch_peer", *shape])
        over_one.append(two / one)
        over_peer.append(two / peer)
    return over_one, over_peer


def _job(ranks, arguments):
    """The seconds a step that a job prints as JSON."""
    finished = mpiexec(ranks, arguments, timeout=300)
    if finished.status != 0:
        raise UserError(f"{' '.join(arguments)} ended with status {finished.status}: {finished.stderr.strip()[-300:]}")
    return json.loads(finished.stdout.strip().splitlines()[-1])["seconds"]


def row(ratios, bound):
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios), "bound": bound}


def table(results):
    """The results as Markdown."""
    lines = [
        "# Training steps against PyTorch",
        "",
        "Written by `make bench`. Ratios of time, below 1 is faster; median and spread over the rounds; one thread a rank.",
        f"{results['versions']['processor']}, {results['slots']} cores, NumPy {results['versions']['numpy']} "
        f"({results['versions']['blas']}), PyTorch {results['torch']}, {results['versions']['mpi']}.",
        "PyTorch is run as its users run it; at its best, glibc's malloc is told to keep the pages of large arrays.",
        idleness(results["busy_cores"]),
        "",
        "| what | median | min | max | bound | |",
        "|---|---|---|---|---|---|",
    ]
    for name, r in results["ratios"].items():
        bound = "-" if r["bound"] is None else f"{r['bound']:.3f}"
        kept = "" if r["bound"] is None else "within" if r["median"] <= r["bound"] else "**above**"
        lines.append(f"| {name} | {r['median']:.3f} | {r['min']:.3f} | {r['max']:.3f} | {bound} | {kept} |")
    return "\n".join(lines) + "\n"


def idleness(busy):
    if busy is None:
        return "Whether the machine was idle before the run is not known."
    return f"Before the run {busy:.2f} cores were busy: the machine was {'idle' if busy < 0.1 else '**not idle**'}."


def main():
    parser = Parser(prog="bench", description="Compare training steps with PyTorch's.")
    parser.add_argument("--rounds", type=whole(1), default=11, help="pairs of times of each comparison")
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for bench.json and bench.md")
    args = parser.parse_args()
    with user_input():
        check_writable(Path(args.out) / "bench.json")
    try:
        import torch
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make bench`, which installs it") from None
    busy = report.busy_cores()
    ratios = {}
    usual, retained = serial_ratios(args.rounds), serial_ratios(args.rounds, RETAINED)
    for case in SERIAL:
        ratios[f"serial step / PyTorch: {case.name}"] = row(usual[case.name], case.bound)
    for case in SERIAL:
        ratios[f"serial step / PyTorch at its best: {case.name}"] = row(retained[case.name], None)
    over_one, over_peer = two_rank_ratios(TWO_RANKS, args.rounds, steps=15)
    ratios[f"2 ranks / 1 rank: {TWO_RANKS.name}"] = row(over_one, TWO_RANKS.bound)
    ratios[f"2 ranks / PyTorch DDP gloo on 2: {TWO_RANKS.name}"] = row(over_peer, 1.0)
    results = {
        "versions": report.versions(),
        "torch": torch.__version__,
        "slots": slots(),
        "busy_cores": busy,
        "ratios": ratios,
    }
    report.write_json(Path(args.out) / "bench.json", results)
    with written_whole(Path(args.out) / "bench.md") as beside:
        beside.write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    run_launcher(main)
