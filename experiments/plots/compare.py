"""Two studies of the same points: a table for the terminal, and a forest plot of the ratios with their intervals."""

from collections import Counter
from statistics import median

from gridgrad.experiments.common.tables import cell, counted, table
from gridgrad.experiments.plots import curves
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.scaling.comparison import BUSY, FASTER, FEW, FEWEST, NOISE, SLOWER, apart, compare, together
from gridgrad.experiments.scaling.environment import differences

STYLES = {SLOWER: ("#D55E00", "s"), FASTER: ("#0072B2", "o"), NOISE: (looks.GREY, "|")}  # colour and marker of a verdict
ROW, EDGES = 0.17, 0.55  # inches of the height of a point, and of what stands above and below all points
FURTHEST = 1000.0  # the greatest ratio whose interval is drawn whole


def read(one, other, across=None):
    """(Compared points, {file: its measured records}) of two files."""
    found = {}
    for path in (one, other):
        found[path] = [record for record in curves.records_of(path) if not record.get("predicted")]
        curves.refuse_mixed(path, found[path])
    if len(found) < 2:
        raise ValueError(f"{one} is named twice: name the files of two studies")
    return compare(*found.values(), across), found


def table_of(points):
    """The text of a table with a row for each point."""
    rows = []
    for point in points:
        ratio, middle = point.ratio, [median(of) for of in point.seconds]
        rows.append({
            "network": point.network, "series": point.series, "scaling": point.scaling or "-", "grid": point.grid,
            "ranks": point.ranks, "batch": point.batch, "A: ms": cell(1e3 * middle[0]), "B: ms": cell(1e3 * middle[1]),
            "runs": " and ".join(str(len(of)) for of in point.seconds), "B / A as measured": ratio and f"{point.measured:.3f}",
            "B / A": ratio and f"{ratio.value:.3f}", "95 % interval": ratio and f"{ratio.low:.3f} - {ratio.high:.3f}",
            "chance, corrected": None if point.chance is None else f"{point.chance:.2g}", "verdict": point.verdict,
        })  # fmt: skip
    return table(rows)


def words_of(points, found, across=None):
    """Lines below the table: which file is which, in what they differ, and how many points have which verdict."""
    (one, first), (other, second) = found.items()
    lines = []
    for letter, path, records in (("A", one, first), ("B", other, second)):
        commits = dict.fromkeys(str(record["environment"].get("commit") or "unknown") for record in records)
        values = dict.fromkeys(str(record["point"][across]) for record in records if across in record["point"])
        setting = f", {across} {', '.join(values) or 'none'}" if across else ""
        lines.append(f"{letter}: {path}, commit {', '.join(commits)}{setting}")
    of_points = "; ".join(dict.fromkeys(words for point in points for words in differences(*point.environments)))
    counts, normalised = Counter(point.verdict for point in points), sum(point.is_normalised for point in points)
    tested = counted(len(points) - counts[FEW] - counts[BUSY], "point")
    mean, above, count = together(points)
    lines += [
        f"They were measured with different {of_points}."
        if of_points
        else "They were measured on the same, with the same code.",
        *apart(first, second, across),
        f"Of {tested}, B is slower in {counts[SLOWER]}, faster in {counts[FASTER]}, and differs by no more than noise in "
        f"{counts[NOISE]}.",
    ]
    if counts[FEW] or counts[BUSY] or normalised:
        lines.append(f"Fewer than {FEWEST} runs: {counts[FEW]}; only beside other programs: {counts[BUSY]}; normalised to the "
                     f"speed of the cores in each run: {normalised}.")  # fmt: skip
    if count > 1:
        lines.append(f"All points together: B / A = {mean:.3f}, above 1 in {above} of {count}.")
    return lines


def draw(points, names, words, look=looks.FITTING):
    """A figure of Compared points, a row for each: the ratio with its interval. names: of A and B. words: of the caption."""
    shown = [point for point in points if point.ratio]
    if not shown:
        raise ValueError(f"no point was run {FEWEST} times in both studies: measure them more often")
    width = look.width or looks.PAGE
    figure, [[axes]] = looks.frame(1, 1, width, EDGES + ROW * len(shown))
    ends = [(max(point.ratio.low, 1 / FURTHEST), min(point.ratio.high, FURTHEST)) for point in shown]
    for place, (point, (low, high)) in enumerate(zip(shown, ends)):
        colour, marker = STYLES[point.verdict]
        axes.plot([low, high], [place, place], color=colour, lw=1.2, zorder=2)
        axes.plot(point.ratio.value, place, ls="", color=colour, marker=marker, ms=5, mew=1.2, zorder=3)
    axes.axvline(1, color="black", lw=0.8, zorder=1)
    inches = width * 0.4  # of the panel, and of the names
    looks.log_axis(axes, [0.99, 1.01, *(end for both in ends for end in both)], which="x", count=max(2, int(inches / 0.5)))
    axes.set_xlabel(looks.wrapped(f"time of a step, {names[1]} / {names[0]}", inches, looks.NORMAL))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), names_of(shown, looks.letters(inches, looks.SMALL)))
    beside = axes.secondary_yaxis("right")
    number = lambda end: f"{end:.3f}" if 0.01 < end < 100 else f"{end:.1e}"  # noqa: E731
    intervals = [f" ({number(point.ratio.low)}, {number(point.ratio.high)})" * (width > looks.COLUMN) for point in shown]
    beside.set_yticks(range(len(shown)), [f"{point.ratio.value:.3f}{words}" for point, words in zip(shown, intervals)])
    beside.tick_params(length=0, labelsize=looks.SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    verdicts = {SLOWER: f"{names[1]} is slower", FASTER: f"{names[1]} is faster", NOISE: NOISE}
    used = {point.verdict for point in shown}
    legend = [(looks.mark(color=colour, marker=marker, ms=5, mew=1.2, lw=1.2), verdicts[word])
              for word, (colour, marker) in STYLES.items() if word in used]  # fmt: skip
    note = ("Ratios of geometric means over the runs, with intervals of 95 % for each point alone; colours are verdicts "
            f"corrected for {counted(len(shown), 'point')} (Welch, Holm).")  # fmt: skip
    return looks.finish(figure, look, legend, [note, *words])


def names_of(points, most):
    """Names with no more than tells the points apart; without the beginning where they have more than `most` letters."""
    several = {name for name in ("network", "scaling", "batch") if len({getattr(point, name) for point in points} - {""}) > 1}
    found = []
    for point in points:
        words = [point.network] * ("network" in several) + [point.series] * (point.ranks > 1) + [counted(point.ranks, "rank")]
        words += [point.scaling] * ("scaling" in several and bool(point.scaling))
        name = ", ".join(words + [f"batch {point.batch}"] * ("batch" in several))
        found.append(name if len(name) <= most else f"..{name[2 - most :]}")
    return found
