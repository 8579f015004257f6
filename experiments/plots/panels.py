"""The engine of all figures of lines: panels of lines with points and bars, beside ideal lines, over axes that fit them."""

from typing import NamedTuple

from gridgrad.experiments.plots import style as looks

HOLLOW, BUSY, MISFIT = "hollow: more ranks than cores", "measured on a busy machine", "needs more memory than a rank has"
MARKS = {HOLLOW: {"mfc": "white"}, BUSY: {"marker": "x", "ms": 7, "mec": "black"}, MISFIT: {"marker": "v", "mfc": "white"}}
NODE = {"color": "#888888", "ls": ":", "lw": 0.8}
FEW = 20  # values of a logarithmic horizontal axis that get a mark each


class Series(NamedTuple):
    """A line: x, y, and low and high, the ends of bars, have a number for each point. Only those with a name are in the legend.
    is_predicted: dashed, without markers and bars. marks: {one of MARKS: the numbers of the points that it is put on}."""

    name: str
    x: list
    y: list
    low: list
    high: list
    is_predicted: bool = False
    marks: dict = {}


class Panel(NamedTuple):
    """title: its lines. ideals: a list of points (x, y) for each ideal line. nodes: ranks of a full node."""

    title: tuple
    series: list
    ideals: list = ()
    nodes: list = ()

    @property
    def values(self):
        """All numbers that the vertical axis must hold."""
        ours = [value for one in self.series for of in (one.y, one.low, one.high) for value in of]
        return [value for value in [*ours, *(y for ideal in self.ideals for _, y in ideal)] if value == value]


def draw(panels, labels, look, words=(), log="", base=10, zero=False, shared=False):
    """The figure of some Panels. log: has "x" and "y" for logarithmic axes. base: of the numbers at that of y. zero: whether y
    begins at 0, which it also does where its values come near 0. shared: whether all panels have the same y axis."""
    figure, axes_of = looks.panels_of(len(panels), look.width)
    styles = looks.styles(one.name for panel in panels for one in panel.series)
    everything = [value for panel in panels for value in panel.values]
    for axes, panel in zip(axes_of, panels):
        for ideal in panel.ideals:
            axes.plot(*zip(*ideal), color=looks.GREY, lw=0.8, zorder=1)
        for node in panel.nodes:
            axes.axvline(node, **NODE, zorder=1)
        for one in panel.series:
            draw_series(axes, one, styles[one.name])
        x, values = [x for one in panel.series for x in one.x], everything if shared else panel.values
        if "x" in log and x:
            looks.ranks_axis(axes, x) if len(set(x)) <= FEW else looks.log_axis(axes, x, which="x")
        if "y" in log and values:
            looks.log_axis(axes, values, base)
        elif values and (zero or 0 <= min(values) < 0.5 * max(values)):
            axes.set_ylim(0, 1.08 * max(values))
        looks.label(axes, *labels, *panel.title)
    return looks.finish(figure, look, legend_of(panels, styles), words)


def draw_series(axes, one, style):
    """A line, its markers, and the marks on them, which are whole also where a line of an axis is."""
    marks = one.marks
    if one.is_predicted:
        axes.plot(one.x, one.y, color=style.colour, ls=style.pattern, lw=1.2, zorder=2)
    else:
        has_bars = any(low < high for low, high in zip(one.low, one.high))
        looks.draw_ranges(axes, one.x, one.y, one.low, one.high, color=style.colour, lw=1.1, elinewidth=0.9,
                          capsize=2 if has_bars else 0, capthick=0.8, zorder=4)  # fmt: skip
        marks = {"": range(len(one.x))} | marks
    for meaning, places in ((meaning, places) for meaning, places in marks.items() if places):
        how = {"ls": "", "marker": style.marker, "ms": 4.5, "color": style.colour, "mew": 0.9} | MARKS.get(meaning, {})
        axes.plot([one.x[i] for i in places], [one.y[i] for i in places], **how, zorder=5, clip_on=False)


def legend_of(panels, styles):
    """[(handle, label)]: an entry a name, then what the marks mean."""
    series = [one for panel in panels for one in panel.series]
    measured = {one.name for one in series if not one.is_predicted}
    found = [(looks.mark(color=one.colour, **({"marker": one.marker} if name in measured else {"ls": one.pattern})), name)
             for name, one in styles.items() if name]  # fmt: skip
    if any(panel.ideals for panel in panels):
        found.append((looks.mark(color=looks.GREY, lw=0.8), "ideal"))
    if measured and any(one.is_predicted for one in series):
        found.append((looks.mark(color=looks.GREY, ls=looks.PATTERNS[0]), "dashed: predicted"))
    shown = {meaning for one in series for meaning, places in one.marks.items() if places}
    found += [(looks.mark(ls="", **({"marker": "o"} | how)), meaning) for meaning, how in MARKS.items() if meaning in shown]
    nodes = sorted({node for panel in panels for node in panel.nodes})
    return found + [(looks.mark(**NODE), f"a full node: {node} ranks") for node in nodes]
