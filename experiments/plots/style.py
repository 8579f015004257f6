"""How every figure looks: as wide as a column of a paper or a page, text of 7 points or more, nothing cut off.

Sizes are in inches and, of text, in points (1/72 inch). Below the panels come the legend and a caption of what was measured
where. Colours are those of Okabe and Ito (2008), which people with any colour vision tell apart; every line also has a marker
and a pattern of its own, for prints without colour. Fonts in PDF files are TrueType, as publishers want them.
"""

import re
from collections import defaultdict
from itertools import count
from math import ceil, log2
from pathlib import Path
from textwrap import TextWrapper
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES
from gridgrad.nn.files.whole_files import written_whole

COLUMN, PAGE = 3.5, 7.16  # inches: the columns of a paper, and both together (IEEE)
SMALL, NORMAL, LARGE = 7.0, 7.5, 8.0  # points
PANEL = {"xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "axes.labelsize": NORMAL,
         "axes.linewidth": 0.6, "axes.grid": True, "grid.alpha": 0.3, "grid.linewidth": 0.5, "axes.axisbelow": True} | {
    f"{axis}tick.{which}.{name}": size for axis in "xy" for which in ("major", "minor")
    for name, size in (("width", 0.6), ("size", 2.5))}  # fmt: skip
plt.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42, "hatch.linewidth": 0.6})
DPI = 220  # of the pictures of `plot` that are made of pixels
COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"
MARKERS = "o", "s", "^", "D", "v", "P", "X", "p", "h"
PATTERNS = (0, (5, 2)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2.5)), (0, (4, 1.5, 1.2, 1.5, 1.2, 1.5))
COMPUTE, COMMUNICATE, WAIT = "#0072B2", "#E69F00", "#F0E442"  # what a rank does
FIRST = (*SCHEMES, AUTO)  # series that have the same style in all figures
GREY = "#777777"
ROW_INCHES = {1: 2.3, 2: 2.1, 3: 1.95}  # the height of a row of so many panels
NARROWEST_PANEL, BESIDE = 2.2, 0.7  # inches of a panel, and of what stands beside it
MARGIN = 1.02  # the least factor between what is drawn and the end of a logarithmic axis, so that its numbers differ
LETTER = 0.55  # the width of a letter, of its size
PAD = 0.06  # inches around what stands below the panels
LEGEND = {"loc": "lower center", "fontsize": SMALL, "frameon": False, "columnspacing": 1.2,
          "handletextpad": 0.5, "borderpad": 0.2, "labelspacing": 0.35}  # fmt: skip


class Look(NamedTuple):
    """What a user asks of a figure. width, height: inches, None for those that fit. caption: whether it has one."""

    width: float | None = None
    height: float | None = None
    caption: bool = True


FITTING = Look()


class Style(NamedTuple):
    """How a line is drawn. pattern: of its dashes, where it is predicted."""

    colour: str
    marker: str
    pattern: tuple


def styles(names):
    """{name: its Style}: those of FIRST have the same in all figures. As many as 60 differ in colour, marker or pattern."""
    found = list(dict.fromkeys(names))
    free = (number for number in count() if number >= len(FIRST) or FIRST[number] not in found)
    numbers = {name: FIRST.index(name) if name in FIRST else next(free) for name in found}
    return {name: Style(*(those[i % len(those)] for those in (COLOURS, MARKERS, PATTERNS))) for name, i in numbers.items()}


def mark(**how):
    """A handle of a legend."""
    return plt.Line2D([], [], **{"color": "black", "lw": 1.1, "ms": 4.5} | how)


def patch(colour, **how):
    """A handle of a legend for an area."""
    return plt.Rectangle((0, 0), 1, 1, **{"facecolor": colour, "edgecolor": colour} | how)


def measured_on(versions):
    """Where a report was measured, in words. versions: its entry."""
    return f"{versions['processor']}, {versions['mpi']}, {versions['threads']} BLAS thread a rank"


def draw_ranges(panel, x, middle, least, most, **style):
    """Points at (x, middle) with error bars from `least` to `most`: four sequences. style: what `errorbar` takes."""
    below, above = ([abs(m - end) for m, end in zip(middle, ends)] for ends in (least, most))
    panel.errorbar(x, middle, [below, above], **style)


def frame(rows, columns, width, height, **how):
    """(a figure, its rows of panels). height: inches of a row, or a list of them. how: what `plt.subplots` takes."""
    heights = height if isinstance(height, list) else [height] * rows
    with plt.rc_context(PANEL):
        figure, panels = plt.subplots(rows, columns, figsize=(width, sum(heights)), layout="constrained", squeeze=False,
                                      height_ratios=heights, **how)  # fmt: skip
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    return figure, panels.tolist()


def panels_of(count, width):
    """(a figure, so many panels of one kind): as wide as they need, without a width."""
    width = width or (COLUMN if count == 1 else PAGE)
    columns = min(count, max(1, int(width / NARROWEST_PANEL)), 3 if count != 4 else 2)
    figure, rows = frame(-(-count // columns), columns, width, ROW_INCHES[columns])
    panels = [panel for row in rows for panel in row]
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def label(panel, x, y, *title):
    """Name the axes of a panel, the vertical one where the panel is the first of its row, and give it a title of some lines."""
    panel.set_xlabel(x, labelpad=1)
    if panel.get_subplotspec().is_first_col():
        panel.set_ylabel(y)
    panel.set_title("\n".join(filter(None, title)))


def inches_of(panel):
    """About how wide a panel is."""
    return panel.figure.get_figwidth() / panel.get_gridspec().ncols - BESIDE


def finish(figure, look, legend=(), words=()):
    """Put a legend, [(handle, label)], and a caption, lines of words, below the panels; returns the figure. It gets as much
    higher as they and the titles need. ValueError if a height that was asked for leaves no room for panels."""
    width, height = figure.get_size_inches()
    titles = defaultdict(list)  # {row: the lines of the titles of its panels, beside the first}
    figure.draw_without_rendering()  # which says how wide the panels are
    for panel in (panel for panel in figure.axes if panel.get_subplotspec()):
        wide = panel.get_window_extent().width / figure.dpi + PAD
        panel.set_title("\n".join(wrapped(line, wide, LARGE) for line in panel.get_title().split("\n")), fontsize=LARGE)
        titles[panel.get_subplotspec().rowspan.start].append(panel.get_title().count("\n"))
    inches = lambda artist: artist.get_window_extent(figure.canvas.get_renderer()).height / figure.dpi  # noqa: E731
    text = "\n".join(wrapped(line, width - 2 * PAD, SMALL) for line in words) if look.caption else ""
    note = figure.text(0, 0, text, fontsize=SMALL, color="#444444", va="bottom", linespacing=1.25)
    top = bottom = PAD + (inches(note) if text else 0.0)
    if legend:
        below = legend_of(figure, *zip(*legend))
        top += inches(below) + PAD
    whole = look.height or height + top + LARGE / 60 * sum(map(max, titles.values()))
    least = top + 1.3 * len(titles) + LARGE / 60 * sum(map(max, titles.values()))  # with titles and the words at the axes
    if look.height and whole < least:
        raise ValueError(f"--height {whole:g} leaves no room for the panels: give {least:.1f} or more")
    figure.set_size_inches(width, whole)
    note.set_position((PAD / width, PAD / whole))
    if legend:
        below.set_bbox_to_anchor((0.5, (bottom + PAD / 2) / whole), transform=figure.transFigure)
    figure.get_layout_engine().set(rect=(0, top / whole, 1, 1 - top / whole))
    figure.draw_without_rendering()
    return figure


def legend_of(figure, handles, labels):
    """A legend in as few rows as fit, all of which have about as many entries."""
    width = figure.get_figwidth()
    is_dashed = any(isinstance(handle, plt.Line2D) and handle.is_dashed() for handle in handles)
    length = 3.6 if is_dashed else 2.0  # at which patterns are told apart
    labels = [wrapped(label, width - 0.8, SMALL) for label in labels]
    for rows in range(1, len(labels) + 1):
        legend = figure.legend(handles, labels, ncols=ceil(len(labels) / rows), handlelength=length, **LEGEND)
        legend.set_in_layout(False)
        if legend.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi <= width - 2 * PAD:
            break
        if rows < len(labels):
            legend.remove()
    return legend


def save(figure, out, dpi=110):
    """Write a figure in the format that the name ends with, whole or not at all. dpi: pixels an inch."""
    with written_whole(out) as beside:
        figure.savefig(beside, dpi=dpi, format=Path(out).suffix.lstrip(".") or "png")
    plt.close(figure)


def letters(inches, size):
    """How many letters of a size, in points, have room."""
    return max(1, int(inches * 72 / (LETTER * size)))


def wrapped(text, inches, size):
    """A text broken into lines that are about so wide: behind spaces and commas, and anywhere where a word is too long."""
    wrapper = TextWrapper(letters(inches, size), break_on_hyphens=False)
    wrapper.wordsep_simple_re = re.compile(r"(\s+|(?<=[,;]))")
    return wrapper.fill(text)


def ranks_axis(panel, ranks):
    """A logarithmic axis of numbers such as ranks, the last and those before it written as far as there is room."""
    ranks = sorted(set(ranks))
    octaves = max(log2(ranks[-1] / ranks[0]), 1)
    room = 0.08 + max(len(f"{number:.8g}") for number in ranks) * LETTER * SMALL / 72
    shown = ranks[-1:]
    for number in ranks[-2::-1]:
        if log2(shown[-1] / number) / octaves * (inches_of(panel) - 0.15) >= room:
            shown.append(number)
    panel.set_xscale("log", base=2)
    panel.set_xticks(shown[::-1], [f"{number:.8g}" for number in shown[::-1]])
    panel.set_xticks(ranks, minor=True, labels=[""] * len(ranks))
    margin = 2 ** (0.06 * octaves)
    panel.set_xlim(ranks[0] / margin, ranks[-1] * margin)


def log_axis(panel, values, base=10, which="y", count=6):
    """A logarithmic axis around some values, with few round numbers at it: at most `count` where it covers little."""
    least, most = min(values), max(values)
    spread = max(most / least, MARGIN**2)
    if base == 2:
        locator = LogLocator(2.0 ** max(1, ceil(log2(spread) / 7)), numticks=20)
    elif spread < 5:
        locator = MaxNLocator(count, steps=(1, 2, 2.5, 5, 10))
    else:
        locator = LogLocator(10, subs=(1, 2, 5) if spread < 100 else (1,), numticks=8)
    margin = max(spread**0.07, MARGIN)
    panel.set(**{f"{which}scale": "log"})
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set(major_locator=locator, major_formatter=StrMethodFormatter("{x:.6g}"), minor_locator=NullLocator())
    panel.set(**{f"{which}lim": (least / margin, most * margin)})
