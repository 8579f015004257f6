"""How every figure looks: as wide as a column of a paper or a page, text of 7 points or more, nothing cut off.

Sizes are in inches and, of text, in points (1/72 inch). Below the panels come the legend and a caption of what was measured
where. Colours are those of Okabe and Ito (2008), which people with any colour vision tell apart; every line also has a marker
and a pattern of its own, for prints without colour. Fonts in PDF files are TrueType, as publishers want them.
"""

import re
from dataclasses import dataclass, field, replace
from math import ceil, log2
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES
from gridgrad.nn.files.documents import TEXT, WHOLE
from gridgrad.nn.files.whole_files import written_whole

plt.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42, "hatch.linewidth": 0.6})
COLUMN, PAGE = 3.5, 7.16  # inches: the columns of a paper, and both together (IEEE)
SMALL, NORMAL, LARGE = 7.0, 7.5, 8.0  # points
DPI = 220  # of the pictures of `plot` that are made of pixels
COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"
MARKERS = "o", "s", "^", "D", "v", "P", "X", "p", "h"
PATTERNS = (0, (5, 2)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2.5)), (0, (4, 1.5, 1.2, 1.5, 1.2, 1.5))
COMPUTE, COMMUNICATE, WAIT = "#0072B2", "#E69F00", "#F0E442"  # what a rank does
FIRST = (*SCHEMES, AUTO)  # series that have the same style in all figures
GREY = "#777777"
ROW_INCHES = {1: 2.3, 2: 2.1, 3: 1.95}  # the height of a row of so many panels
NARROWEST_PANEL = 2.2  # inches
MARGIN = 1.02  # the least factor between what is drawn and the end of a logarithmic axis, so that its numbers differ
LINE = 0.13  # inches of a line of a title
PAD = 0.06  # inches around what stands below the panels
VERSIONS = {"processor": TEXT, "mpi": TEXT, "threads": WHOLE}  # what `measured_on` needs


@dataclass(frozen=True)
class Look:
    """What a user asks of a figure. width, height: inches, None for those that fit. caption: whether it has one."""

    width: float | None = None
    height: float | None = None
    caption: bool = True

    def as_wide_as(self, inches):
        """This Look with a width: of so many inches, unless it has one."""
        return self if self.width else replace(self, width=inches)


FITTING = Look()


@dataclass(frozen=True)
class Style:
    """How a line is drawn. colour, marker: of matplotlib. pattern: of dashes, where it is predicted."""

    colour: str
    marker: str
    pattern: tuple


@dataclass
class Frame:
    """A figure and its panels. panels: rows of them. legend: [(handle, label)]. words: lines of the caption.

    fits: [(panel, function)] of what depends on the inches that a panel turns out to be wide, which the function gets.
    """

    figure: object
    panels: list
    look: Look
    fits: list = field(default_factory=list)
    legend: list = field(default_factory=list)
    words: list = field(default_factory=list)


def styles(names):
    """{name: its Style}: those of FIRST have the same in all figures. As many as 60 differ in colour, marker or pattern."""
    found = list(dict.fromkeys(names))
    numbers = {name: FIRST.index(name) for name in found if name in FIRST}
    free = [number for number in range(len(FIRST) + len(found)) if number not in numbers.values()]
    numbers |= dict(zip([name for name in found if name not in FIRST], free))
    return {
        name: Style(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], PATTERNS[i % len(PATTERNS)])
        for name, i in ((name, numbers[name]) for name in found)
    }


def colours_of(names):
    """{name: a colour of its own}, from dark to light: of names that have an order."""
    return dict(zip(names, plt.cm.viridis([i / max(len(names) - 0.6, 1) for i in range(len(names))])))


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


def frame(rows, columns, look, height, **how):
    """A Frame with so many panels. height: of a row of panels in inches, or a list of them. how: what `plt.subplots` takes."""
    heights = height if isinstance(height, list) else [height] * rows
    figure, panels = plt.subplots(rows, columns, figsize=(look.width, sum(heights)), layout="constrained", squeeze=False,
                                  height_ratios=heights, **how)  # fmt: skip
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    for panel in panels.flat:
        panel.tick_params(which="both", labelsize=SMALL, width=0.6, length=2.5)
        panel.xaxis.label.set_size(NORMAL)
        panel.yaxis.label.set_size(NORMAL)
        panel.yaxis.get_offset_text().set_size(SMALL)
        for edge in panel.spines.values():
            edge.set_linewidth(0.6)
        panel.grid(alpha=0.3, lw=0.5)
        panel.set_axisbelow(True)
    return Frame(figure, panels.tolist(), look)


def frame_of_panels(count, look):
    """(a Frame with at least so many panels of one kind, the panels): as wide as they need where the Look has no width."""
    look = look.as_wide_as(COLUMN if count == 1 else PAGE)
    columns = min(count, max(1, int(look.width / NARROWEST_PANEL)), 3 if count != 4 else 2)
    found = frame(-(-count // columns), columns, look, ROW_INCHES[columns])
    panels = [panel for row in found.panels for panel in row]
    for panel in panels[count:]:
        panel.set_axis_off()
    return found, panels[:count]


def label(frame, axes, x, y):
    """Name the axes of a panel: the vertical one where the panel is the first of its row."""
    axes.set_xlabel(x, labelpad=1)
    if any(axes is row[0] for row in frame.panels):
        axes.set_ylabel(y)


def finish(frame):
    """Fit titles and ticks to the panels, and put legend and caption below them; returns the figure.

    It gets as much higher as these need. ValueError where a height that was asked for leaves no room for the panels.
    """
    figure, look = frame.figure, frame.look
    width, height = figure.get_size_inches()
    figure.draw_without_rendering()  # which says how wide the panels are
    for panel, fit in frame.fits:
        fit(panel.get_window_extent().width / figure.dpi)
    height += LINE * sum(max(0, *(panel.get_title().count("\n") - 1 for panel in row)) for row in frame.panels)
    words = "\n".join(wrapped(line, width - 2 * PAD, SMALL) for line in frame.words) if look.caption else ""
    note = figure.text(0, 0, words, fontsize=SMALL, color="#444444", va="bottom", ha="left", linespacing=1.25)
    legend = legend_of(frame, width) if frame.legend else None
    inches = lambda artist: artist.get_window_extent(figure.canvas.get_renderer()).height / figure.dpi  # noqa: E731
    bottom = PAD + (inches(note) if words else 0.0)
    top = bottom + (inches(legend) + PAD if legend else 0.0)
    whole = look.height or height + top
    if whole < top + 0.6 * len(frame.panels):
        raise ValueError(f"--height {whole:g} leaves no room for the panels: give {top + 0.6 * len(frame.panels):.1f} or more")
    figure.set_size_inches(width, whole)
    note.set_position((PAD / width, PAD / whole))
    if legend:
        legend.set_bbox_to_anchor((0.5, (bottom + PAD / 2) / whole), transform=figure.transFigure)
    figure.get_layout_engine().set(rect=(0, top / whole, 1, 1 - top / whole))
    figure.draw_without_rendering()
    return figure


def legend_of(frame, width):
    """The legend of a Frame, in as few rows as fit, all of which have about as many entries."""
    handles, labels = zip(*frame.legend)
    labels = [wrapped(label, width - 0.8, SMALL) for label in labels]
    how = {"loc": "lower center", "fontsize": SMALL, "frameon": False, "handlelength": 2.6, "columnspacing": 1.2,
           "handletextpad": 0.5, "borderpad": 0.2, "labelspacing": 0.35}  # fmt: skip
    for rows in range(1, len(labels) + 1):
        legend = frame.figure.legend(handles, labels, ncols=ceil(len(labels) / rows), **how)
        legend.set_in_layout(False)
        extent = legend.get_window_extent(frame.figure.canvas.get_renderer())
        if rows == len(labels) or extent.width / frame.figure.dpi <= width - 2 * PAD:
            return legend
        legend.remove()


def save(figure, out, dpi=110):
    """Write a figure in the format that the name ends with, whole or not at all. dpi: pixels an inch."""
    with written_whole(out) as beside:
        figure.savefig(beside, dpi=dpi, format=Path(out).suffix.lstrip(".") or "png")
    plt.close(figure)


def width_of(text, size):
    """The width of one line of text in inches. size: in points."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0] / 72


def wrapped(text, inches, size):
    """A text broken into lines that are at most so wide: behind spaces and commas, and anywhere where a word is too long."""
    pieces, lines = re.findall(r"[^\s,;]*[,;]?\s*", text), [""]
    for piece in pieces:
        for part in piece if width_of(piece.rstrip(), size) > inches else [piece]:
            if lines[-1] and width_of((lines[-1] + part).rstrip(), size) > inches:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.strip() for line in lines if line.strip())


def entitle(panel, name, words, inches):
    """The title of a panel: a name, and below it some words. inches: that it may be wide."""
    panel.set_title("\n".join(wrapped(text, inches, LARGE) for text in (name, words) if text), fontsize=LARGE, linespacing=1.15)


def ranks_axis(panel, ranks, inches):
    """A logarithmic axis of numbers such as ranks, the last and those before it written as far as there is room.

    inches: how wide the axis is.
    """
    ranks = sorted(set(ranks))
    first, last = log2(ranks[0]), log2(ranks[-1])
    octave = (inches - 0.15) / max(last - first, 1)  # inches for a doubling
    room, shown = 0.05 + max(width_of(f"{number:.8g}", SMALL) for number in ranks), ranks[-1:]
    for number in ranks[-2::-1]:
        if octave * (log2(shown[-1]) - log2(number)) >= room:
            shown.append(number)
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_locator(FixedLocator(shown[::-1]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.8g}"))
    panel.xaxis.set_minor_locator(FixedLocator(ranks))
    panel.xaxis.set_minor_formatter("")
    margin = 2 ** (0.06 * max(last - first, 1))
    panel.set_xlim(ranks[0] / margin, ranks[-1] * margin)


def log_axis(panel, values, base):
    """A logarithmic vertical axis around some values, with few round numbers at it. base: 2 or 10."""
    panel.set_yscale("log", base=base)
    panel.set_ylim(*round_values(panel.yaxis, min(values), max(values), base))


def round_values(axis, least, most, base=10, count=6):
    """Write few round numbers at a logarithmic axis. Returns where it should begin and end.

    axis: the `xaxis` or `yaxis` of a panel. least, most: of what is drawn. base: 2 or 10. count: the most numbers at it, where
    it covers little.
    """
    spread = max(most / least, MARGIN**2)
    if base == 2:
        locator = LogLocator(2.0 ** max(1, ceil(log2(spread) / 7)), numticks=20)
    elif spread < 5:
        locator = MaxNLocator(count, steps=(1, 2, 2.5, 5, 10))
    else:
        locator = LogLocator(10, subs=(1, 2, 5) if spread < 100 else (1,), numticks=8)
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_locator(NullLocator())
    margin = max(spread**0.07, MARGIN)
    return least / margin, most * margin


def plain(value):
    """A number at an axis: without an exponent where that is short."""
    if value >= 1e5 or value < 1e-3:
        return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.{3 if value < 0.1 else 4}g}" if value < 1000 else f"{value:.0f}"
