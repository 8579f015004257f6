"""The page of a study as HTML: one file that opens from the disk, without anything beside it and without a network.

It has the figures as SVG, tables that can be sorted, points that failed or ran on a busy machine with the reasons, what the
planner would have chosen at each number of ranks where the records have predictions, on what it was measured, and the commands
that repeat it. What comes from the records is escaped: the template escapes all that is not marked as safe, and the figures are
written by matplotlib, which escapes texts, and in which nothing is marked as a link.
"""

import re
from dataclasses import dataclass
from functools import partial
from io import StringIO

from markupsafe import Markup

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.scaling import page_commands, page_tables
from gridgrad.experiments.scaling.estimate import story
from gridgrad.experiments.scaling.order import study_of_record
from gridgrad.experiments.scaling.reported import checked
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.experiments.scaling.table import notes

FIGURES = {  # {title: kind of `gridgrad plot`}, in the order of the page
    "Speedup": "speedup", "Parallel efficiency": "efficiency", "Weak scaling": "weak", "Time of a step": "time",
    "Where the time goes": "breakdown", "Throughput": "throughput", "Communication": "bytes", "Memory": "memory",
}  # fmt: skip
CLOSED = 40  # rows from which on a table of points is closed at first


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page. title: of it. svg: its markup; None where it was not drawn. reason: why not."""

    title: str
    svg: Markup | None
    reason: str = ""


def render(records, title, figures=None):
    """The text of the page of the records of a study.

    title: of the page, such as the name of the file. figures: {title: function of the records that returns a matplotlib
    Figure}; by default FIGURES. One that raises ValueError, such as for a study without what it draws, is replaced by the
    reason. ValueError if there are no records, or one is damaged.
    """
    if not records:
        raise ValueError("there are no runs: measure some with gridgrad sweep")
    found = rows_of(checked(records))
    chosen = {name: partial(figure_of, kind) for name, kind in FIGURES.items()} if figures is None else figures
    drawn = [drawn_figure(name, draw, records, number) for number, (name, draw) in enumerate(chosen.items())]
    return environment().get_template("study.html.jinja").render(
        title=title, about=about(records, found), best=[*stories(records), *page_tables.best(found)], figures=drawn,
        notes=notes(found),
        tables=page_tables.tables(records, found), environments=page_tables.environments(records),
        commands=page_commands.commands(records), runs=page_commands.of_points(records), CLOSED=CLOSED,
    )  # fmt: skip


def about(records, found):
    """What the page is of, in a sentence."""
    measured = sum(not record.get("predicted") for record in records)
    parts = [counted(len({row.network for row in found}), "network")]
    ranks = sorted({row.ranks for row in found})
    parts.append(f"{ranks[0]} to {counted(ranks[-1], 'rank')}" if len(ranks) > 1 else counted(ranks[0], "rank"))
    parts += [counted(number, words) for number, words in
              ((measured, "run"), (len(records) - measured, "prediction")) if number]  # fmt: skip
    return f"{', '.join(parts)}; data: {', '.join(dict.fromkeys(str(row.dataset) for row in found))}."


def stories(records):
    """What the settings of the studies say of them and of their series."""
    return dict.fromkeys(line for study in map(study_of_record, records) if study for line in story(study))


def figure_of(kind, records):
    """The matplotlib Figure of a kind of `gridgrad plot`. ValueError where the records have nothing of it."""
    from gridgrad.experiments.plots import breakdown, curves, scaling  # which take long to import, and only figures need

    lines = curves.of_files({"this study": records})
    if kind == "breakdown":
        return breakdown.draw(lines, False, None)
    figure, _ = scaling.draw(lines, kind)
    return figure


def drawn_figure(title, draw, records, number):
    """The PageFigure of a function of FIGURES. number: of the figure on the page."""
    from gridgrad.experiments.plots.figures import plt  # which takes long to import, and only figures need it

    try:
        figure = draw(records)
    except ValueError as error:
        return PageFigure(title, None, str(error))
    svg = StringIO()
    with plt.rc_context({"svg.hashsalt": f"figure {number}", "svg.fonttype": "none"}):
        figure.savefig(svg, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    return PageFigure(title, Markup(inline(svg.getvalue(), title, number)))


def inline(svg, title, number):
    """The markup of an SVG file as a part of a page: with a name that is read aloud, and ids that no other figure has."""
    markup = svg[svg.index("<svg") :]
    markup = re.sub(r"<metadata>.*?</metadata>", "", markup, count=1, flags=re.DOTALL)
    markup = re.sub(r'( id="|url\(#|href="#)', rf"\1f{number}-", markup)
    return markup.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(title)}"', 1)
