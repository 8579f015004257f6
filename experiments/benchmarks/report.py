"""The rows of `bench`, and its page made from them."""

from statistics import median
from textwrap import wrap

from gridgrad.experiments.benchmarks.rounds import CLOCKS
from gridgrad.experiments.common.machine_load import QUIET
from gridgrad.experiments.common.tables import counted, range_of

MARKS = {  # of a row, with the words for them
    "left_out": ("round", "left out in which others computed"),
    "marked": ("comparison", "left out beside which others computed"),
    "dropped": ("round", "dropped in which a rank had to share its core"),
}
BEST = (
    "PyTorch is run as its users run it; at its best, glibc's malloc is told to keep the pages of large arrays, and images",
    "have their channels first or last, whichever is faster.",
)
PAGE = """\
# Training steps against PyTorch and PyDTNN

Written by `make bench`. Ratios of time, below 1 is faster: the median over the rounds and their spread. Serial
comparisons count the time that the processor worked (CPU time), others the time that passed; one thread a rank.
{about}
| what | CPU time | wall time | bound | |
|---|---|---|---|---|
"""
MEMORY = """
Peak memory of two training steps, above what the process held before the network was made: the interpreter and
the libraries, loaded and warmed up, do not count.

| what | gridgrad, MiB | PyTorch, MiB | ratio | bound | |
|---|---|---|---|---|---|
"""


def median_of(found, cases):
    """{"cpu", "wall": round by round, the median ratio of all these cases}; None if one is missing. Cases beside which others
    computed do not count; "marked" says how many these are."""
    if not all(case.name in found for case in cases):
        return None
    quiet = [found[case.name] for case in cases if not found[case.name].get("busy")]
    medians = {clock: [median(values) for values in zip(*(one[clock] for one in quiet))] for clock in CLOCKS}
    return medians | {"marked": len(cases) - len(quiet)}


def row(ratios, bound):
    """A row of the table of times. ratios: {"cpu", "wall": one a round} and marks, or None if they are missing. bound: of the
    median of the first clock; None where nothing is promised."""
    ratios = ratios or {}
    times = {clock: ratios[clock] for clock in CLOCKS if ratios.get(clock)}
    marks = {name: ratios[name] for name in ("busy", *MARKS) if ratios.get(name)}
    rounds = max(map(len, times.values()), default=0)
    return {clock: range_of(values) for clock, values in times.items()} | {"bound": bound, "rounds": rounds} | marks


def table(results):
    """The results as Markdown."""
    text = PAGE.format(about="\n".join(about(results)) + "\n")
    text += "".join(time_line(name, found, results["rounds"]) for name, found in results["ratios"].items())
    return text + (MEMORY + "".join(memory_line(*item) for item in results["memory"].items()) if results["memory"] else "")


def about(results):
    """The lines of what was compared and where."""
    versions, limits, busy = results["versions"], results["limits"], results["busy_cores"]
    yield (f"{versions['processor']}, {results['slots']} cores, NumPy {versions['numpy']} ({versions['blas']}), "
           f"PyTorch {results['torch']}, {versions['mpi']}.")  # fmt: skip
    if limits:
        for name, side in (("gridgrad", limits["ours"]), ("PyTorch", limits["peer"])):
            yield f"Large float32 products by {name}: {side['flops'] / 1e9:.0f} GFLOP/s on one thread ({side['blas']})."
        yield f"Copying a large array reads and writes {limits['copy'] / 1e9:.1f} GB/s."
    yield from BEST
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
    return f"| {name} | {' | '.join(cells)} | {number(found['bound'])} | {', '.join(filter(None, words))} |\n"


def memory_line(name, found):
    sides = [found.get(side) for side in ("ours", "peer")]
    ratio = None if None in sides else sides[0] / sides[1]
    cells = ["-" if side is None else f"{side / 2**20:.0f}" for side in sides] + [number(ratio), number(found["bound"])]
    return f"| {name} | {' | '.join(cells)} | {verdict(ratio, found['bound'])} |\n"


def number(ratio):
    return "-" if ratio is None else f"{ratio:.3f}"


def verdict(ratio, bound):
    """Whether a ratio, None if there is none, is within its bound, None if nothing is promised."""
    if ratio is None:
        return "**missing**: not measured in the time"
    return "" if bound is None else "within" if ratio <= bound else "**above**"
