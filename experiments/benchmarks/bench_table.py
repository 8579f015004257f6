"""The results of `bench` as rows, and these as Markdown."""

from statistics import median
from textwrap import wrap

from gridgrad.experiments.benchmarks.rounds import CLOCKS
from gridgrad.experiments.common.machine_load import QUIET
from gridgrad.experiments.common.tables import counted

WIDTH = 124  # characters of a line of text


def median_of(found, cases):
    """{"cpu", "wall": round by round, the median of the ratios of all these cases}; None if one of them is missing.

    Cases beside which others computed do not count, and "marked" says how many these are.
    """
    if not all(case.name in found for case in cases):
        return None
    quiet = [found[case.name] for case in cases if not found[case.name].get("busy")]
    medians = {clock: [median(values) for values in zip(*(one[clock] for one in quiet))] for clock in CLOCKS}
    return medians | {"marked": len(cases) - len(quiet)}


def row(ratios, bound):
    """A row of the table of times. ratios: {"cpu", "wall": a ratio a round}, or one of them, or None if they are missing.

    bound: of the median of the first; None where nothing is promised. "left_out", "busy" and "marked" of `ratios` are entries
    of the row, too, where there is something to say.
    """
    ratios = ratios or {}
    times = {clock: ratios[clock] for clock in CLOCKS if ratios.get(clock)}
    spreads = {name: {"median": median(values), "min": min(values), "max": max(values)} for name, values in times.items()}
    marks = {name: ratios[name] for name in ("left_out", "busy", "marked") if ratios.get(name)}
    return spreads | {"bound": bound, "rounds": max(map(len, times.values()), default=0)} | marks


def table(results):
    """The results as Markdown."""
    lines = [
        "# Training steps against PyTorch and PyDTNN",
        "",
        "Written by `make bench`. Ratios of time, below 1 is faster: the median over the rounds and their spread. Serial",
        "comparisons count the time that the processor worked (CPU time), others the time that passed; one thread a rank.",
        f"{results['versions']['processor']}, {results['slots']} cores, NumPy {results['versions']['numpy']} "
        f"({results['versions']['blas']}), PyTorch {results['torch']}, {results['versions']['mpi']}.",
        *limit_words(results["limits"]),
        "PyTorch is run as its users run it; at its best, glibc's malloc is told to keep the pages of large arrays, and images",
        "have their channels first or last, whichever is faster.",
        peer_words(results["pydtnn"]),
        idleness(results["busy_cores"]),
        *quick_words(results),
        "",
        "| what | CPU time | wall time | bound | |",
        "|---|---|---|---|---|",
        *(time_line(name, found, results["rounds"]) for name, found in results["ratios"].items()),
    ]
    if results["memory"]:
        lines += [
            "",
            "Peak memory of two training steps, above what the process held before the network was made: the interpreter and",
            "the libraries, loaded and warmed up, do not count.",
            "",
            "| what | gridgrad, MiB | PyTorch, MiB | ratio | bound | |",
            "|---|---|---|---|---|---|",
            *(memory_line(name, found) for name, found in results["memory"].items()),
        ]
    return "\n".join(lines) + "\n"


def limit_words(limits):
    if limits:
        for name, side in (("gridgrad", limits["ours"]), ("PyTorch", limits["peer"])):
            yield f"Large float32 products by {name}: {side['flops'] / 1e9:.0f} GFLOP/s on one thread ({side['blas']})."
        yield f"Copying a large array reads and writes {limits['copy'] / 1e9:.1f} GB/s."


def peer_words(version):
    return f"PyDTNN {version}, in the faster of its layouts." if version else "PyDTNN: skipped, needs Python 3.13."


def idleness(busy):
    if busy is None:
        return "Whether the machine was idle before the run is not known."
    return f"Before the run {busy:.2f} cores were busy: the machine was {'idle' if busy <= QUIET else '**not idle**'}."


def quick_words(results):
    if results["left_out"]:
        yield from wrap(f"A quick run of {results['rounds']} rounds, without: {'; '.join(results['left_out'])}.", WIDTH)


def time_line(name, found, rounds):
    """The line of a `row` in a run of so many rounds."""
    cells = [spread_words(found.get(clock)) for clock in CLOCKS]
    counts = next((found[clock]["median"] for clock in CLOCKS if clock in found), None)
    words = f"**not judged**: {found['busy']}" if found.get("busy") else verdict(counts, found["bound"])
    if 0 < found["rounds"] < rounds:
        words += f", {found['rounds']} of {rounds} rounds in the time"
    if left_out := found.get("left_out"):
        words += f", {counted(left_out, 'round')} left out in which others computed"
    if marked := found.get("marked"):
        words += f", {counted(marked, 'comparison')} left out beside which others computed"
    if dropped := found.get("dropped"):
        words += f", {dropped} rounds dropped in which a rank had to share its core"
    return f"| {name} | {' | '.join(cells)} | {bound_words(found['bound'])} | {words.removeprefix(', ')} |"


def memory_line(name, found):
    sides = [found.get(side) for side in ("ours", "peer")]
    ratio = None if None in sides else sides[0] / sides[1]
    cells = ["-" if side is None else f"{side / 2**20:.0f}" for side in sides] + ["-" if ratio is None else f"{ratio:.3f}"]
    return f"| {name} | {' | '.join(cells)} | {bound_words(found['bound'])} | {verdict(ratio, found['bound'])} |"


def spread_words(spread):
    return f"{spread['median']:.3f} ({spread['min']:.3f} to {spread['max']:.3f})" if spread else "-"


def bound_words(bound):
    return "-" if bound is None else f"{bound:.3f}"


def verdict(ratio, bound):
    """Whether a ratio, None if there is none, is within its bound, None if nothing is promised."""
    if ratio is None:
        return "**missing**: not measured in the time"
    return "" if bound is None else "within" if ratio <= bound else "**above**"
