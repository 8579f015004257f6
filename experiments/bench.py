"""Compare our training steps with those of PyTorch and PyDTNN, measured alternately in one run.

    make bench
    make bench BENCH=--quick
    gridgrad bench --device gpu --out results/gpu.json

Processes of one thread are `benchmarks/serial.py`, jobs of ranks `benchmarks/ranks.py`; the others' side is in
`torch_peer.py` and `pydtnn_peer.py`. With `--device` nothing of this runs, but steps on a GPU: `benchmarks/gpu.py`.

Every figure of time is a ratio of two times that were measured alternately: the median over the rounds, and their spread; how
rounds count is in `benchmarks/rounds.py`. In serial comparisons it is the time that the processor worked, since there is one
thread, and the time that passed beside it. The run ends after `--minutes`, also on a busy machine: comparisons then have fewer
rounds or are missing, and the table says so. Writes DIR/bench.json and DIR/bench.md.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from textwrap import wrap

import numpy as np

from gridgrad.experiments.benchmarks import gpu
from gridgrad.experiments.benchmarks.cases import GPU, MEMORY, PYDTNN, SERIAL, SHAPES, TWO_RANKS
from gridgrad.experiments.benchmarks.rounds import AGAIN, CLOCKS, OutOfTime, in_minutes, quiet_rounds, shares
from gridgrad.experiments.common import report
from gridgrad.experiments.common.machine_load import QUIET
from gridgrad.experiments.common.options import Parser, add_device, check_writable, number, user_input, whole
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.tables import counted, range_of, terminal
from gridgrad.experiments.launching.start_ranks import mpiexec, printed_json, slots
from gridgrad.parallel.job.run import UserError, one_line, run, run_launcher

RETAINED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
SERIAL_MEDIAN_BOUND = 0.8  # of the median of all networks, with PyTorch as its users run it
CONV_BOUND, CONV_MEDIAN_BOUND = 1.3, 1.0  # for each shape and for the median of all shapes
STEPS = 10  # that a job times in a round
CALM = 0.92  # a rank whose core is below this share of the highest rate must have shared it: see `benchmarks/ranks.py`
TOLD = 0.9  # the part of its time that a program is told: it is ended at the end of the whole
QUICK_ROUNDS, QUICK_MINUTES = 3, 3.0
PYTHON = Path(".venv-pydtnn/bin/python")  # that `make peers` sets up: PyDTNN needs Python 3.13 and is under the GPL
MARKS = {  # of a row, with the words for them
    "left_out": ("round", "left out in which others computed"),
    "marked": ("comparison", "left out beside which others computed"),
    "dropped": ("round", "dropped in which a rank had to share its core"),
}
PAGE = """\
# Training steps against PyTorch and PyDTNN

Written by `make bench`. Ratios of time, below 1 is faster: the median over the rounds and their spread. Serial
comparisons count the time that the processor worked (CPU time), others the time that passed; one thread a rank.
{about}
| what | CPU time | wall time | bound | |
|---|---|---|---|---|
"""
PAGE_OF_MEMORY = """
Peak memory of two training steps, above what the process held before the network was made: the interpreter and
the libraries, loaded and warmed up, do not count.

| what | gridgrad, MiB | PyTorch, MiB | ratio | bound | |
|---|---|---|---|---|---|
"""


def serial_rows(args, cases, end):
    usual_end, best_end = shares(end, [2, 3])  # at its best PyTorch runs in two layouts
    usual, best = printed(args, "steps", usual_end, cases), printed(args, "best", best_end, cases, RETAINED)
    rows = {f"serial / PyTorch: {case.name}": row(usual.get(case.name), case.bound) for case in cases}
    rows |= {f"serial / PyTorch at its best: {case.name}": row(best.get(case.name), case.best_bound) for case in cases}
    if cases == SERIAL:
        rows["serial / PyTorch: median of the networks"] = row(median_of(usual, cases), SERIAL_MEDIAN_BOUND)
        rows["serial / PyTorch at its best: median of the networks"] = row(median_of(best, cases), None)
    return rows


def conv_rows(args, cases, end):
    found = printed(args, "convolutions", end, cases, RETAINED)
    rows = {f"convolution / PyTorch at its best: {case.name}": row(found.get(case.name), CONV_BOUND) for case in cases}
    if cases == SHAPES:
        rows["convolutions: median of the shapes"] = row(median_of(found, cases), CONV_MEDIAN_BOUND)
    return rows


def rank_rows(args, cases, end):
    rows = {}
    for case, case_end in zip(cases, shares(end, [1] * len(cases))):
        found, marks = two_rank_ratios(case, args.rounds, STEPS, case_end)
        for (name, ratios), bound in zip(found.items(), (case.bound, None, case.best_bound)):
            rows[f"2 ranks / {name}: {case.name}"] = row({"wall": ratios} | marks, bound)
            marks = marks | {"dropped": 0}  # said once
    return rows


def two_rank_ratios(case, rounds, steps, end):
    """({what: ratios of time of our 2 ranks to it, a round each}, marks). "2 ranks with nothing to say" have half of the
    batch each: what these cores can do. Rounds in which a core was slower, for what no counter shows, are made again, up to
    three times `rounds` in all; if there are still too few, the fastest count."""
    sides = {
        "1 rank": partial(job, 1, "ranks", case, steps, end),
        "2 ranks with nothing to say": partial(job, 2, "ranks", case, steps, end, "--apart"),
        "PyTorch DDP gloo on 2": partial(job, 2, "torch_peer", case, steps, end),  # mpiexec only places the two processes
    }
    trials = [partial(job, 2, "ranks", case, steps, end), *sides.values()]
    core = lambda turn: np.nanmax(turn[:, 2])  # noqa: E731 # seconds on the slowest core
    calm = lambda turns: sum(CALM * core(turn) <= min(map(core, turns)) for turn in turns)  # noqa: E731
    quiet, marks = quiet_rounds(trials, rounds, 3 * rounds, end, calm=calm)
    kept = sorted(quiet, key=core)[:rounds]
    ratios = {name: [float(turn[0, 1] / turn[i, 1]) for turn in kept] for i, name in enumerate(sides, 1)}
    return ratios, marks | {"dropped": len(quiet) - len(kept)}


def job(ranks, program, case, steps, end, *more):
    """[CPU seconds, seconds, core seconds] of a step in a job of `ranks.py`, or NaN where the program has none. OutOfTime at
    `end`."""
    words = [*as_module(f"benchmarks.{program}"), "--case", case.name, "--times", str(steps), *more]
    finished = mpiexec(ranks, words, timeout=max(0.1, end - time.monotonic()))
    if finished.status is None:
        raise OutOfTime(f"{program} on {case.name} has not ended in the time: try again when the machine is not busy")
    found = printed_json(finished, f"{program} on {case.name}")
    return [found.get(name, np.nan) for name in ("cpu_seconds", "seconds", "core")]


def pydtnn_rows(args, cases, end, python):
    rows = {}
    for case, case_end in zip(cases, shares(end, [1] * len(cases))):
        sides = partial(job, 1, "ranks", case, STEPS, case_end), partial(pydtnn_job, python, case, case_end)
        turns, marks = quiet_rounds(sides, args.rounds, AGAIN * args.rounds, case_end)
        ratios = {clock: [float(turn[0, i] / turn[1, i]) for turn in turns] for i, clock in enumerate(CLOCKS)}
        rows[f"serial / PyDTNN: {case.name}"] = row(ratios | marks, case.bound)
    return rows


def pydtnn_job(python, case, end):
    """The same of PyDTNN, which has no core seconds."""
    words = ["-P", Path(__file__).parent / "benchmarks/pydtnn_peer.py", "--net", case.net, "--batch-size", case.batch_size]
    found = json.loads(by_pydtnn(python, max(0.1, end - time.monotonic()), *words, "--steps", STEPS).splitlines()[-1])
    return [found["cpu_seconds"], found["seconds"], np.nan]


def by_pydtnn(python, seconds, *arguments):
    """What a run of PyDTNN's interpreter prints. Raises OutOfTime if it has not ended after so many seconds."""
    advice = f"PyDTNN does not run in {python}, see `make peers`"
    try:
        finished = subprocess.run([str(python), *map(str, arguments)], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"PyDTNN has not ended in {seconds:.0f} s: try again when the machine is not busy") from None
    except OSError as error:
        raise UserError(f"{advice}: {one_line(error)}") from None
    if finished.returncode:
        raise UserError(f"{advice}: {(finished.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return finished.stdout


def memory_rows(args, cases, end):
    rows = {}
    for case, case_end in zip(cases, shares(end, [4 if case.large else 1 for case in cases])):
        sides = {"ours": "memory", "peer": "peer-memory"}
        found = {side: printed(args, what, case_end, [case]).get(case.name) for side, what in sides.items()}
        rows[case.name] = {"bound": case.bound} | {side: size for side, size in found.items() if size is not None}
    return rows


def printed(args, what, end, cases=(), env=None):
    """{case: what `serial.py` has found by the moment `end`}, run in a process of its own, which is killed then."""
    minutes = TOLD * max(0.0, end - time.monotonic()) / 60
    words = [what, *(case.name for case in cases), "--rounds", str(args.rounds), "--minutes", str(minutes)]
    command = [sys.executable, *as_module("benchmarks.serial"), *words]
    try:
        seconds = max(0.1, end - time.monotonic())
        finished = subprocess.run(command, env=os.environ | (env or {}), stdout=subprocess.PIPE, timeout=seconds)
        if finished.returncode:
            raise UserError(f"{what} failed, see above")
        output = finished.stdout
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
    return {name: found for line in output.split(b"\n")[:-1] for name, found in json.loads(line).items()}


def median_of(found, cases):
    """{clock: round by round, the median ratio of these cases}; None if one is missing. Cases beside which others computed do
    not count; "marked" says how many these are."""
    if not all(case.name in found for case in cases):
        return None
    quiet = [found[case.name] for case in cases if not found[case.name].get("busy")]
    medians = {clock: [median(values) for values in zip(*(one[clock] for one in quiet))] for clock in CLOCKS}
    return medians | {"marked": len(cases) - len(quiet)}


def row(ratios, bound):
    """A row of the table of times. ratios: of each clock, and marks, or None. bound: of the median of the first clock, or
    None."""
    ratios = ratios or {}
    times = {clock: ratios[clock] for clock in CLOCKS if ratios.get(clock)}
    marks = {name: ratios[name] for name in ("busy", *MARKS) if ratios.get(name)}
    rounds = max(map(len, times.values()), default=0)
    return {clock: range_of(values) for clock, values in times.items()} | {"bound": bound, "rounds": rounds} | marks


def table(results):
    """The results as Markdown."""
    text = PAGE.format(about="\n".join(about(results)) + "\n")
    text += "".join(time_line(name, found, results["rounds"]) for name, found in results["ratios"].items())
    text += PAGE_OF_MEMORY if results["memory"] else ""
    for name, found in results["memory"].items():
        sides = [found.get(side) for side in ("ours", "peer")]
        ratio, bound = None if None in sides else sides[0] / sides[1], found["bound"]
        cells = [*("-" if side is None else f"{side / 2**20:.0f}" for side in sides), ratio_text(ratio), ratio_text(bound)]
        text += f"| {name} | {' | '.join(cells)} | {verdict(ratio, bound)} |\n"
    return text


def about(results):
    """The lines of what was compared and where."""
    versions, limits, busy = results["versions"], results["limits"], results["busy_cores"]
    yield (f"{versions['processor']}, {results['slots']} cores, NumPy {versions['numpy']} ({versions['blas']}), "
           f"PyTorch {results['torch']}, {versions['mpi']}.")  # fmt: skip
    if limits:
        for name, side in (("gridgrad", limits["ours"]), ("PyTorch", limits["peer"])):
            yield f"Large float32 products by {name}: {side['flops'] / 1e9:.0f} GFLOP/s on one thread ({side['blas']})."
        yield f"Copying a large array reads and writes {limits['copy'] / 1e9:.1f} GB/s."
    yield "PyTorch is run as its users run it; at its best, glibc's malloc is told to keep the pages of large arrays, "\
          "and images\nhave their channels first or last, whichever is faster."  # fmt: skip
    pydtnn = results["pydtnn"]
    yield f"PyDTNN {pydtnn}, in the faster of its layouts." if pydtnn else "PyDTNN: skipped, needs Python 3.13."
    if busy is None:
        yield "Whether the machine was idle before the run is not known."
    else:
        yield f"Before the run {busy:.2f} cores were busy: the machine was {'idle' if busy <= QUIET else '**not idle**'}."
    if results["left_out"]:
        yield from wrap(f"A quick run of {results['rounds']} rounds, without: {'; '.join(results['left_out'])}.", 124)


def time_line(name, found, rounds):
    """The line of a `row` in a run of so many rounds."""
    spreads = [found.get(clock) for clock in CLOCKS]
    cells = [f"{of['median']:.3f} ({of['min']:.3f} to {of['max']:.3f})" if of else "-" for of in spreads]
    first = next((of["median"] for of in spreads if of), None)
    words = [f"**not judged**: {found['busy']}" if found.get("busy") else verdict(first, found["bound"])]
    if 0 < found["rounds"] < rounds:
        words.append(f"{found['rounds']} of {rounds} rounds in the time")
    words += [f"{counted(found[mark], thing)} {why}" for mark, (thing, why) in MARKS.items() if found.get(mark)]
    return f"| {name} | {' | '.join(cells)} | {ratio_text(found['bound'])} | {', '.join(filter(None, words))} |\n"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio:.3f}"


def verdict(ratio, bound):
    """Whether a ratio, None if there is none, is within its bound, None if nothing is promised."""
    if ratio is None:
        return "**missing**: not measured in the time"
    return "" if bound is None else "within" if ratio <= bound else "**above**"


def options():
    parser = Parser(prog="bench", description="Compare training steps with PyTorch's and PyDTNN's.")
    add = parser.add_argument
    add("--rounds", type=whole(1), default=9, help="rounds of each comparison, in each of which every side is timed")
    add("--only", default="", metavar="TEXT", help="compare only what has TEXT in its name ('%(default)s': all)")
    add("--quick", action="store_true", help="leave out what takes long: large networks and images")
    words = "stop after about so many minutes, if need be with fewer rounds"
    add("--minutes", type=number(least=0), default=15.0, metavar="M", help=words)
    words = "folder for bench.json and bench.md; with --device, DIR/gpu.json or FILE.json"
    add("--out", default="results", metavar="DIR", help=words)
    words = f"interpreter that has PyDTNN; default: {PYTHON} if it is there, else PyDTNN is skipped"
    add("--pydtnn", metavar="PATH", help=words)
    add_device(parser)
    return parser


def selected(cases, args):
    """The cases that --only and --quick leave; UserError if there are none."""
    found = [case for case in cases if args.only in case.name and not (args.quick and case.large)]
    if not found:
        kind = "comparison of a quick run" if args.quick else "comparison"
        raise UserError(f"--only: no {kind} has '{args.only}' in its name; they are called such as '{cases[0].name}'")
    return found


def main():
    args = options().parse_args()
    if args.quick:
        args.rounds, args.minutes = min(args.rounds, QUICK_ROUNDS), min(args.minutes, QUICK_MINUTES)
    end = in_minutes(args.minutes)
    if args.device != "cpu" or args.tf32:
        return run(partial(gpu.compare, selected(GPU, args), args, end))
    with user_input():
        check_writable(Path(args.out) / "bench.json")
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in RETAINED:  # whatever this shell says, malloc is as usual where it is not at its best
        os.environ.pop(name, None)
    try:
        import torch
    except ImportError:
        raise UserError("PyTorch is not installed here: run `make bench`, which installs it") from None
    python, pydtnn = args.pydtnn or (PYTHON if PYTHON.exists() else None), None
    if python:  # the import is tried, too: without an MPI library PyDTNN 3.11 is there but does not load
        words = "import pydtnn.model, importlib.metadata as m; print(m.version('pydtnn'))"
        pydtnn = by_pydtnn(python, 60, "-c", words).splitlines()[-1]
    parts = {  # {name: (what is compared, its share of the time in minutes of a whole run, what measures it)}
        "serial": (SERIAL, 7.5, serial_rows),
        "conv": (SHAPES, 2.5, conv_rows),
        "rank": (TWO_RANKS, 4.0, rank_rows),
        "pydtnn": (PYDTNN if python else [], 1.0, partial(pydtnn_rows, python=python)),
        "memory": (MEMORY, 1.2, memory_rows),
    }
    cases = [case for of_part, *_ in parts.values() for case in of_part]
    chosen = selected(cases, args)
    results = {
        "versions": report.versions(), "torch": torch.__version__, "pydtnn": pydtnn,
        "slots": slots(), "busy_cores": report.busy_cores(), "rounds": args.rounds,
        "left_out": sorted({case.name for case in cases if args.quick and case.large and args.only in case.name}),
        "limits": printed(args, "limits", end) or None, "ratios": {}, "memory": {},
    }  # fmt: skip
    found = {name: mine for name, (of_part, *_) in parts.items() if (mine := [case for case in of_part if case in chosen])}
    ends = shares(end, [parts[name][1] for name in found])
    for i, ((name, of_part), part_end) in enumerate(zip(found.items(), ends), 1):
        left = max(0.0, end - time.monotonic()) / 60
        print(f"part {i} of {len(found)}, {name}: {left:.1f} minutes are left", file=sys.stderr, flush=True)
        results["memory" if name == "memory" else "ratios"] |= parts[name][2](args, of_part, part_end)
    report.write_json(Path(args.out) / "bench.json", results)
    text = table(results)
    report.write_text(Path(args.out) / "bench.md", text)
    print(f"{terminal(text)}\nwritten to {args.out}: bench.json and bench.md")


if __name__ == "__main__":
    run_launcher(main)
