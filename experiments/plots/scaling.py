"""Figures over the number of ranks: speedup, efficiency, time, bytes, memory and throughput of scaling studies.

A panel for each network, data set and kind of scaling; a line for each series. Points are medians over the runs, with bars
(`experiments/plots/measures.py`). Hollow points had more ranks than cores, crosses mark runs beside other programs, and dashed
lines are predicted.

Speedups and efficiencies are over one rank. A line without a run on one rank is left out, and named: a speedup over a parallel
run would hide what those ranks already lose, and be over another time for each line. Its time and throughput need no such run.
"""

from functools import partial
from math import floor

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.plots import paper
from gridgrad.experiments.plots.curves import of_measurement
from gridgrad.experiments.plots.figures import plt
from gridgrad.experiments.plots.measures import ALONE, ANEW, KINDS, MOST_IDEALS, OF_RATIOS, OF_RUNS, WEAK, ideals, points_of
from gridgrad.experiments.scaling.statistics import CONFIDENCE, FEWEST
from gridgrad.experiments.scaling.summary import is_busy_alone
from gridgrad.experiments.scaling.table import UNLIKE

ROW_INCHES = {1: 2.3, 2: 2.1, 3: 1.95}  # the height of a row of so many panels
NARROWEST = 2.2  # inches of a panel, at least
MARKS = {"ls": "", "clip_on": False}  # of points: whole also where a line of an axis is
LEAST = "from the least to the greatest"


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
    left = [line for line in mine if line not in drawn and any(row.seconds for row in line.rows)]
    if of_kind.missing == ANEW:  # which predictions never have
        left = [line for line in left if not line.is_predicted]
    if not drawn:
        raise ValueError(f"no run has {of_kind.words}: {of_kind.missing}")
    empty = [measure for measure in measures if not any(points_of(line, measure) for line in drawn)]
    measures = [measure for measure in measures if measure not in empty]
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
                ranks = {point.ranks for line in of_panel for one in measures for point, _ in points_of(line, one)}
                draw_panel(frame, axes, of_panel, measure, styles, sorted(ranks))
                if place == 0:
                    frame.fits.append((axes, partial(paper.entitle, axes, panel.network, title_of(of_panel))))
                if place == len(measures) - 1:
                    axes.set_xlabel("ranks", fontsize=paper.NORMAL, labelpad=1)
            row[0].set_ylabel(measure.label, fontsize=paper.NORMAL)
            for axes in row[len(block) :]:
                axes.set_axis_off()
    same_axis(frame, measures, len(panels))
    frame.legend = legend_of(drawn, measures, styles)
    missing = [*missing_words(left, drawn, of_kind), *map(empty_words, empty)]
    frame.words = [words_of(drawn, measures), *missing]
    return paper.finish(frame), missing


def draw_panel(frame, axes, lines, measure, styles, ranks):
    """The lines of a panel of a Frame with their points. ranks: those of its axis, the same as in the panels below."""
    everything = {line: found for line in lines if (found := points_of(line, measure))}
    if not everything:
        axes.text(0.5, 0.5, "no run says it", ha="center", va="center", transform=axes.transAxes, fontsize=paper.SMALL)
        axes.set_yticks([])
        frame.fits.append((axes, partial(paper.ranks_axis, axes, ranks)))
        return
    values = [end for found in everything.values() for _, one in found for end in (one.low, one.value, one.high)]
    if measure.ideal:
        values += draw_ideals(axes, list(everything), measure)
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


def draw_ideals(axes, lines, measure):
    """The ideal lines of a panel, unless there are too many. Returns their values."""
    found = ideals(lines, measure)
    if len(found) > MOST_IDEALS:
        return []
    for points in found:
        axes.plot(*zip(*points), color=paper.GREY, lw=0.8, zorder=1)
    return [value for points in found for _, value in points]


def draw_predicted(axes, line, found, style):
    """A predicted line, without marks but where the memory of the machine is too small."""
    x, y = [row.ranks for row, _ in found], [one.value for _, one in found]
    axes.plot(x, y, color=style.colour, ls=style.pattern, lw=1.2, zorder=2)
    short = [(row.ranks, one.value) for row, one in found if not row.fits]
    if short:
        axes.plot(*zip(*short), marker="v", ms=3.5, mfc="white", mec=style.colour, mew=0.8, zorder=3, **MARKS)


def draw_measured(axes, line, found, style):
    """A measured line: bars for the intervals, hollow points where ranks shared cores, crosses on a busy machine."""
    x, y = [row.ranks for row, _ in found], [one.value for _, one in found]
    bars = [[one.value - one.low for _, one in found], [one.high - one.value for _, one in found]]
    axes.errorbar(x, y, bars, color=style.colour, lw=1.1, elinewidth=0.9, capsize=2, capthick=0.8, zorder=4)
    for hollow in (False, True):
        mine = [(row.ranks, one.value) for row, one in found if row.oversubscribed == hollow]
        if mine:
            fill = "white" if hollow else style.colour
            axes.plot(*zip(*mine), marker=style.marker, ms=4.5, mfc=fill, mec=style.colour, mew=0.9, zorder=5, **MARKS)
    busy = [(row.ranks, one.value) for row, one in found if is_busy_alone(row)]
    if busy:
        axes.plot(*zip(*busy), marker="x", ms=7, color="black", mew=0.9, zorder=6, **MARKS)


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
    if any(len(found) <= MOST_IDEALS for found in ideals_of_panels(lines, measures[0]).values()):
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


def words_of(drawn, measures):
    """A line for below the panels: where the points come from, what the bars are, and what failed."""
    measured, predicted = ([line for line in drawn if line.is_predicted == kind] for kind in (False, True))
    words = [where_words(measured), bars_words(measured, measures)] if measured else []
    if predicted:
        machines = dict.fromkeys(line.origin for line in predicted)
        words.append(
            f"Predicted by the cost model for {' and '.join(machines)}" + ("." if measured else ": nothing is measured.")
        )
    if any(len(found) > MOST_IDEALS for found in ideals_of_panels(drawn, measures[0]).values()):
        words.append(f"Where more than {MOST_IDEALS} ideal lines differ, none is drawn.")
    failed = [f"{line.name} on {row.ranks} ranks" for line in drawn for row in line.rows if row.failed and not row.seconds]
    if failed:
        words.append(f"Failed: {'; '.join(dict.fromkeys(failed))}.")
    return " ".join(words)


def ideals_of_panels(drawn, measure):
    """{panel: what `ideals` says of its Lines}; empty for a Measure without ideal values."""
    panels = dict.fromkeys(line.panel for line in drawn) if measure.ideal else ()
    return {panel: ideals([line for line in drawn if line.panel == panel], measure) for panel in panels}


def where_words(lines):
    """Where measured lines were measured."""
    where = {}
    for line in lines:
        where.setdefault(of_measurement(line), {}).setdefault(line.origin)
    several = len(where) > 1
    return " ".join(
        f"Measured on {place}" + (f" ({', '.join(origins)})." if several else ".") for place, origins in where.items()
    )


def bars_words(lines, measures):
    """What the points and the bars of measured lines are."""
    found = [one for measure in measures for line in lines for _, one in points_of(line, measure)]
    least, most = min(one.count for one in found), max(one.count for one in found)
    runs = f"{least} to {most} runs" if least < most else counted(most, "run")
    if most == 1:
        return "Points are of one run each."
    if measures[0].bars == OF_RUNS:
        spread = any(one.low < one.high for one in found)
        return f"Points are medians of {runs}, {f'bars {LEAST}' if spread else 'which agree'}."
    points, bars, of_few = "medians", f"their {100 * CONFIDENCE:.0f} % confidence intervals", LEAST
    if measures[0].bars == OF_RATIOS:
        sure = min((one.confidence for one in found if one.count >= FEWEST and one.low < one.high), default=CONFIDENCE)
        points, of_few = "ratios of medians", "between the extreme ratios"
        bars = f"intervals of at least {floor(100 * sure)} % confidence"
    if most < FEWEST:
        return f"Points are {points} of {runs}, bars {of_few}."
    return f"Points are {points}, bars {bars}" + ("." if least >= FEWEST else f" or, of fewer than {FEWEST} runs, {of_few}.")


def missing_words(left, drawn, kind):
    """Sentences about the lines and the points that are not drawn in a Kind of figure. drawn: the other lines."""
    of_speedups = kind.measures(drawn, None)[0].bars == OF_RATIOS
    unlike = [line for line in left if of_speedups and any(row.unlike for row in line.rows)]
    names = dict.fromkeys(f"{line.name} of {line.panel.network}" for line in left if line not in unlike)
    why = "there is no run on 1 rank" if kind.missing == ALONE else "no run says it"
    found = [f"Not drawn, as {why}: {'; '.join(names)}."] if names else []
    points = dict.fromkeys(f"{line.name} of {line.panel.network} on {counted(row.ranks, 'rank')}" for line in [*unlike, *drawn]
                           for row in line.rows if of_speedups and row.unlike)  # fmt: skip
    return found + ([f"Not drawn, {UNLIKE}: {'; '.join(points)}."] if points else [])


def empty_words(measure):
    """A sentence about a Measure that no line has."""
    return f"Not drawn, as no run says it: {' '.join(measure.label.split())}; {ANEW}."
