"""Figures over the number of ranks: speedup, efficiency, time, bytes, memory and throughput of scaling studies.

A panel for each network, data set and kind of scaling; a line for each series. Points are medians over the runs, with the
interval of the median as a bar (`experiments/scaling/median.py`). Hollow points had more ranks than cores, crosses mark runs
beside other programs, and dashed lines are predicted.

Speedups and efficiencies are over one rank. A line without a run on one rank is left out, and named: a speedup over a parallel
run would hide what those ranks already lose, and be over another time for each line. Its time and throughput need no such run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.plots import paper
from gridgrad.experiments.plots.curves import of_measurement
from gridgrad.experiments.plots.figures import plt
from gridgrad.experiments.scaling.busy import is_busy_alone
from gridgrad.experiments.scaling.median import FEWEST, Median
from gridgrad.parallel.prediction import machine as machines

ROW_INCHES = {1: 2.3, 2: 2.1, 3: 1.95}  # the height of a row of so many panels
NARROWEST = 2.2  # inches of a panel, at least
STRONG, WEAK = "strong", "weak"
LONG = 10.0  # seconds of a step from which on a figure counts in seconds


@dataclass(frozen=True)
class Measure:
    """A quantity over the ranks. label: of its axis.

    value: a function of a Row that returns a Median or None. base: of its logarithmic axis; None for one from 0 on. ideal: a
    function of (Line, ranks) that returns the ideal value, or None.
    """

    label: str
    value: Callable
    base: int | None = None
    ideal: Callable | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of figure. words: what it shows. missing: what to do where no run has it. scalings: which it is of.

    measures: a function of (Lines, name of a machine or None) that returns its Measures, which stand one below the other.
    """

    words: str
    measures: Callable
    missing: str
    scalings: tuple = (STRONG, WEAK)


ALONE = "add 1 to the ranks of the sweep, or draw time or throughput, which need no run on 1 rank"
ANEW = "measure again, with this version"


def exact(value):
    """A number that is no median, as a Median without an interval; None for None."""
    return None if value is None else Median(value, value, value, 1, 1.0)


def ideal_time(line, ranks):
    """The time with which the first point of a line would scale perfectly."""
    first = line.rows[0]
    return first.seconds and first.seconds.value * (first.ranks / ranks if line.panel.scaling == STRONG else 1)


def ideal_rate(line, ranks):
    """Samples a second with which the first point of a line would scale perfectly."""
    first = line.rows[0]
    return first.seconds and first.samples_a_second.value * ranks / first.ranks


def share_of_peak(machine):
    """A function: the share in per cent that a Row has of the peak of its ranks, on a Machine."""

    def share(row):
        rate = row.flops_a_second
        return exact(rate and 100 * rate / (row.ranks * machine.peak))

    return share


def of_time(lines, _):
    """The Measure of a step's time, in milliseconds unless there are long steps."""
    longest = max((row.seconds.value for line in lines for row in line.rows if row.seconds), default=0.0)
    name, unit = ("s", 1.0) if longest >= LONG else ("ms", 1e3)
    return [Measure(f"{name} a step", lambda row: row.seconds and row.seconds.times(unit), 10,
                    lambda line, ranks: (ideal := ideal_time(line, ranks)) and unit * ideal)]  # fmt: skip


def of_throughput(_, machine):
    """The Measures of a throughput. machine: the name of one, or None."""
    found = [Measure("samples a second", lambda row: row.samples_a_second, 10, ideal_rate)]
    if machine:
        known = machines.read(machine)
        found.append(Measure(f"% of the peak of\n{known.name}", share_of_peak(known)))
    return found


EFFICIENCY = Measure("efficiency", lambda row: row.efficiency, None, lambda *_: 1.0)
KINDS = {
    "speedup": Kind("the speedup over one rank", lambda *_: [
        Measure("speedup over 1 rank", lambda row: row.speedup, 2, lambda _, ranks: ranks)], ALONE),
    "efficiency": Kind("the parallel efficiency of strong scaling", lambda *_: [EFFICIENCY], ALONE, (STRONG,)),
    "weak": Kind("the efficiency of weak scaling", lambda *_: [EFFICIENCY], ALONE, (WEAK,)),
    "time": Kind("the time of a step, beside ideal scaling", of_time, "give more --steps to the sweep"),
    "bytes": Kind("the bytes and the collectives of a step", lambda *_: [
        Measure("MB sent by all ranks\nin a step", lambda row: exact(row.bytes / 1e6 if row.bytes else None), 10),
        Measure("collectives and messages\nof a rank in a step", lambda row: exact(row.calls or None), 10)], ANEW),
    "memory": Kind("the memory of the rank that needs most", lambda *_: [
        Measure("MiB of memory of a rank", lambda row: exact(row.memory and row.memory / 2**20))], ANEW),
    "throughput": Kind("samples a second, and the share of a machine's peak", of_throughput, "give more --steps to the sweep"),
}  # fmt: skip


def draw(lines, kind, width=None, machine=None):
    """(figure, what to say on the terminal) of Lines. kind: a name of KINDS. width: in inches. machine: a name, for throughput.

    ValueError if none of the lines has what is to be drawn.
    """
    of_kind = KINDS[kind]
    mine = [line for line in lines if line.panel.scaling in of_kind.scalings]
    if not mine:
        raise ValueError(f"there is no run of {' or '.join(of_kind.scalings)} scaling: {kind} shows it alone")
    measures = of_kind.measures(mine, machine)
    drawn = [line for line in mine if points_of(line, measures[0])]
    left = [line for line in mine if line not in drawn and (line.is_predicted or any(row.seconds for row in line.rows))]
    if not drawn:
        raise ValueError(f"no run has {of_kind.words}: {of_kind.missing}")
    panels = sorted({line.panel for line in drawn}, key=[line.panel for line in drawn].index)
    width = width or (paper.COLUMN if len(panels) == 1 else paper.PAGE)
    columns = min(len(panels), max(1, int(width / NARROWEST)), 3 if len(panels) != 4 else 2)
    blocks = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    frame = paper.frame(len(blocks) * len(measures), columns, width, ROW_INCHES[columns])
    styles = paper.styles(line.name for line in drawn)
    for number, block in enumerate(blocks):
        for place, measure in enumerate(measures):
            row = frame.panels[number * len(measures) + place]
            for axes, panel in zip(row, block):
                of_panel = [line for line in drawn if line.panel == panel]
                draw_panel(frame, axes, of_panel, measure, styles)
                if place == 0:
                    frame.fits.append((axes, partial(paper.entitle, axes, panel.network, title_of(of_panel))))
                if place == len(measures) - 1:
                    axes.set_xlabel("ranks", fontsize=paper.NORMAL, labelpad=1)
            row[0].set_ylabel(measure.label, fontsize=paper.NORMAL)
            for axes in row[len(block) :]:
                axes.set_axis_off()
    same_axis(frame, measures, len(panels))
    frame.legend = legend_of(drawn, measures, styles)
    frame.words = words_of(drawn, left)
    return paper.finish(frame), [missing_words(left)] if left else []


def points_of(line, measure):
    """[(Row, Median)] of the points of a Line that a Measure has."""
    return [(row, found) for row in line.rows if (found := measure.value(row))]


def draw_panel(frame, axes, lines, measure, styles):
    """The lines of a panel of a Frame with their points."""
    everything = {line: found for line in lines if (found := points_of(line, measure))}
    if not everything:
        axes.text(0.5, 0.5, "no run says it", ha="center", va="center", transform=axes.transAxes, fontsize=paper.SMALL)
        return
    ranks = sorted({row.ranks for found in everything.values() for row, _ in found})
    values = [end for found in everything.values() for _, one in found for end in (one.low, one.value, one.high)]
    if measure.ideal:
        values += draw_ideal(axes, list(everything), measure, ranks)
    for line, found in everything.items():
        (draw_predicted if line.is_predicted else draw_measured)(axes, line, found, styles[line.name])
    for node in sorted({line.rows[0].runs[0].get("ranks_per_node") or 1 for line in everything if line.is_predicted}):
        if 1 < node < ranks[-1]:
            axes.axvline(node, color=paper.GREY, ls=":", lw=0.8, zorder=1)
    frame.fits.append((axes, partial(paper.ranks_axis, axes, ranks)))
    if measure.base:
        paper.log_axis(axes, values, measure.base)
    else:
        axes.set_ylim(0, 1.08 * max(values))


def draw_ideal(axes, lines, measure, ranks):
    """The ideal line of a panel, from the point on the fewest ranks, there the best one. Returns its values."""
    fewest = [line for line in lines if line.rows[0].ranks == ranks[0]] or lines
    found = [(measure.ideal(line, ranks[0]), [measure.ideal(line, number) for number in ranks]) for line in fewest]
    found = [values for first, values in found if first is not None]
    if not found:
        return []
    axes.plot(ranks, found[0], color=paper.GREY, lw=0.8, zorder=1)
    return found[0]


def draw_predicted(axes, line, found, style):
    """A predicted line, without marks but where the memory of the machine is too small."""
    x, y = [row.ranks for row, _ in found], [one.value for _, one in found]
    axes.plot(x, y, color=style.colour, ls=style.pattern, lw=1.2, zorder=2)
    short = [(row.ranks, one.value) for row, one in found if not row.fits]
    if short:
        axes.plot(*zip(*short), ls="", marker="v", ms=3.5, mfc="white", mec=style.colour, mew=0.8, zorder=3)


def draw_measured(axes, line, found, style):
    """A measured line: bars for the intervals, hollow points where ranks shared cores, crosses on a busy machine."""
    x, y = [row.ranks for row, _ in found], [one.value for _, one in found]
    bars = [[one.value - one.low for _, one in found], [one.high - one.value for _, one in found]]
    axes.errorbar(x, y, bars, color=style.colour, lw=1.1, elinewidth=0.9, capsize=2, capthick=0.8, zorder=4)
    for hollow in (False, True):
        mine = [(row.ranks, one.value) for row, one in found if row.oversubscribed == hollow]
        if mine:
            fill = "white" if hollow else style.colour
            axes.plot(*zip(*mine), ls="", marker=style.marker, ms=4.5, mfc=fill, mec=style.colour, mew=0.9, zorder=5)
    busy = [(row.ranks, one.value) for row, one in found if is_busy_alone(row)]
    if busy:
        axes.plot(*zip(*busy), ls="", marker="x", ms=7, color="black", mew=0.9, zorder=6)


def same_axis(frame, measures, count):
    """Give the panels of a measure whose values compare, efficiencies and speedups, the same axis."""
    for place, measure in enumerate(measures):
        if measure.base is None or measure.base == 2:
            mine = [axes for row in frame.panels[place :: len(measures)] for axes in row][:count]
            least, most = min(axes.get_ylim()[0] for axes in mine), max(axes.get_ylim()[1] for axes in mine)
            if measure.base:
                for axes in mine:
                    paper.log_axis(axes, [least, most], measure.base)
            for axes in mine:
                axes.set_ylim(least, most)


def title_of(lines):
    """The small words in a title: scaling, batch and data set, so far as all lines share them."""
    panel, batches = lines[0].panel, {line.rows[0].batch // (line.rows[0].ranks if line.panel.scaling == WEAK else 1)
                                      for line in lines}  # fmt: skip
    words = [f"{panel.scaling} scaling"]
    if len(batches) == 1:
        words.append(f"batch {batches.pop()}" + (" a rank" if panel.scaling == WEAK else ""))
    return ", ".join([*words, panel.dataset] if panel.dataset else words)


def legend_of(lines, measures, styles):
    """[(handle, label)]: an entry a name, then what the marks mean."""
    mark = lambda **how: plt.Line2D([], [], **{"color": "black", "lw": 1.1, "ms": 4.5} | how)  # noqa: E731
    measured = {line.name for line in lines if not line.is_predicted}
    found = [
        (
            mark(color=style.colour, marker=style.marker) if name in measured else mark(color=style.colour, ls=style.pattern),
            name,
        )
        for name, style in styles.items()
    ]
    if measures[0].ideal:
        found.append((mark(color=paper.GREY, lw=0.8), "ideal"))
    if measured and any(line.is_predicted for line in lines):
        found.append((mark(color=paper.GREY, ls=paper.PATTERNS[0]), "dashed: predicted"))
    rows = [(line, row) for line in lines for row, _ in points_of(line, measures[0])]
    if any(row.oversubscribed for line, row in rows if not line.is_predicted):
        found.append((mark(ls="", marker="o", mfc="white"), "hollow: more ranks than cores"))
    if any(is_busy_alone(row) for line, row in rows if not line.is_predicted):
        found.append((mark(ls="", marker="x", ms=6), "measured on a busy machine"))
    if any(not row.fits for _, row in rows):
        found.append((mark(ls="", marker="v", mfc="white"), "needs more memory than a rank has"))
    nodes = {line.rows[0].runs[0].get("ranks_per_node") or 1 for line in lines if line.is_predicted}
    for node in sorted(nodes):
        if 1 < node < max(row.ranks for _, row in rows):
            found.append((mark(color=paper.GREY, ls=":", lw=0.8), f"a full node: {node} ranks"))
    return found


def words_of(drawn, left):
    """Lines for below the panels: where the points come from, what the bars are, and what is missing."""
    measured, predicted = ([line for line in drawn if line.is_predicted == kind] for kind in (False, True))
    words = [where_words(measured), bars_words(measured)] if measured else []
    if predicted:
        machines = dict.fromkeys(line.origin for line in predicted)
        words.append(
            f"Predicted by the cost model for {' and '.join(machines)}" + ("." if measured else ": nothing is measured.")
        )
    failed = [f"{line.name} on {row.ranks} ranks" for line in drawn for row in line.rows if row.failed and not row.seconds]
    if failed:
        words.append(f"Failed: {'; '.join(dict.fromkeys(failed))}.")
    return [" ".join(words), *([missing_words(left)] if left else [])]


def where_words(lines):
    """Where measured lines were measured."""
    where = {}
    for line in lines:
        where.setdefault(of_measurement(line), {}).setdefault(line.origin)
    several = len(where) > 1
    return " ".join(
        f"Measured on {place}" + (f" ({', '.join(origins)})." if several else ".") for place, origins in where.items()
    )


def bars_words(lines):
    """What the bars of measured lines are."""
    counts = {row.seconds.count for line in lines for row in line.rows if row.seconds}
    sure = {count >= FEWEST for count in counts}
    if sure == {True}:
        return "Points are medians, bars their 95 % confidence intervals."
    if sure == {False}:
        least, most = min(counts), max(counts)
        runs = f"{least} to {most} runs" if least < most else counted(most, "run")
        return f"Points are medians of {runs}, bars their range."
    return f"Points are medians, bars their 95 % confidence intervals or, of fewer than {FEWEST} runs, from least to greatest."


def missing_words(left):
    """A sentence about the lines that are not drawn."""
    names = dict.fromkeys(f"{line.name} of {line.panel.network}" for line in left)
    return f"Not drawn, as there is no run on 1 rank: {'; '.join(names)}."
