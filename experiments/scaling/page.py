"""The page of a study as HTML: one file that needs nothing beside it, and no network.

What comes from the records is escaped: by the template, which escapes all that is not marked as safe, and by matplotlib.
"""

import json
import re
import shlex
from collections import defaultdict
from functools import partial
from io import StringIO

from markupsafe import Markup

from gridgrad.experiments.common.parallel_schemes import AUTO
from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.scaling.environment import SAME, same
from gridgrad.experiments.scaling.records import is_busy, key_of
from gridgrad.experiments.scaling.runs import study_of_record
from gridgrad.experiments.scaling.summary import is_busy_alone, origin_of
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.experiments.scaling.table import cells_of, notes, telling
from gridgrad.parallel.prediction import machine as machines

FIGURES = {"Speedup": "speedup", "Parallel efficiency": "efficiency", "Weak scaling": "weak", "Time of a step": "time",
           "Where the time goes": "breakdown", "Communication": "MB sent a step", "Memory": "MiB of a rank"}  # fmt: skip
COLUMNS = {"MB sent a step": ("sent_by_all_ranks_bytes", 1e6), "MiB of a rank": ("peak_memory_bytes", 2**20)}
MOST_BARS = 5  # that a column has room for
CLOSED = 40  # rows from which on a table of points is closed at first
NOTES = {  # {title of a table: what stands above it}
    "Measured": "Medians over the runs, each with its own median step; +- is half of their 95 % confidence interval. Speedup "
                "and efficiency are in samples a second, over the run on one rank.",
    "Failed, and on a busy machine": "Points without a time, and runs that did not count.",
    "What the planner would choose": "The fastest that is predicted, beside the fastest that was measured.",
    "Predicted": "By the cost model, for the machine that is named, without a run.",
}  # fmt: skip
SURE = 0.9  # the confidence of the ratio of two medians with intervals of 95 %
SETTINGS, RUNS, MACHINE = "study.toml", "study.jsonl", "machine.json"
NO_SETTINGS = "Some runs do not say the settings of their sweep: no command repeats them."


def render(records, title, figures=None, told=()):
    """The text of the page of the records of a study, one at least. figures: {title: function of the records that returns a
    matplotlib Figure}; one that raises ValueError is replaced by the reason. told: more tables, of `model.tables`."""
    found = rows_of(records)
    drawn = {name: partial(figure_of, kind) for name, kind in FIGURES.items()} if figures is None else figures
    stories = dict.fromkeys(line for study in map(study_of_record, records) if study for line in study.story)
    return environment().get_template("study.html.jinja").render(
        title=title, about=about(records, found), best=[*stories, *best(found)],
        notes=notes(found), tables=tables(records, found, told),
        figures=[drawn_figure(name, draw, records, number) for number, (name, draw) in enumerate(drawn.items())],
        environments=environments(records), commands=commands(records), CLOSED=CLOSED,
    )  # fmt: skip


def about(records, found):
    """What the page is of, in a line."""
    predicted, ranks = sum(bool(record.get("predicted")) for record in records), sorted({row.ranks for row in found})
    numbers = {"network": len({row.network for row in found}), "run": len(records) - predicted, "prediction": predicted}
    counts = ", ".join(counted(number, what) for what, number in numbers.items() if number)
    data = dict.fromkeys(str(row.dataset) for row in found)
    return f"{counts}; ranks: {', '.join(map(str, ranks))}; data: {', '.join(data)}"


def best(found):
    """The largest speedup that was measured of each network and scaling, with a core for each rank if possible, and not on a
    busy machine."""
    curves = defaultdict(list)
    for row in found:
        if row.speedup and row.ranks > 1 and not row.is_predicted and not is_busy_alone(row):
            curves[f"{row.network}, {row.scaling} scaling"].append(row)
    most = {name: max(rows, key=lambda row: (not row.oversubscribed, row.speedup.value)) for name, rows in curves.items()}
    interval = lambda ratio: f" ({ratio.low:.3g} to {ratio.high:.3g})" if ratio.confidence >= SURE else ""  # noqa: E731
    return [f"{name}: speedup {row.speedup.value:.3g}{interval(row.speedup)} on {row.ranks} ranks ({row.series}, {row.grid}), "
            f"efficiency {100 * row.efficiency.value:.0f} %{', oversubscribed' * row.oversubscribed}"
            for name, row in most.items()]  # fmt: skip


# ----- figures


def figure_of(kind, records):
    """The matplotlib Figure of an entry of FIGURES; ValueError where the records have nothing of it."""
    from gridgrad.experiments.plots import breakdown, curves, lines, scaling, style  # which take long to import

    column = style.Look(style.COLUMN)  # panels below one another, which a phone shows, too
    if kind in COLUMNS:
        measured = [record for record in records if not record.get("predicted")]
        if not measured:
            raise ValueError("nothing was measured")
        (name, unit), table = COLUMNS[kind], lines.table_of_sweep(measured)
        table = table[table.series.isin(table.series[table.ranks > 1])].assign(**{kind: table[name] / unit})
        return lines.draw(table, "ranks", [kind], ["series"], "network", log="x", look=column)
    found = curves.of_files({"this study": records})
    if kind == "breakdown":
        return breakdown.draw(found, look=column if all(len(line.rows) <= MOST_BARS for line in found) else style.FITTING)
    return scaling.draw(found, kind, column)[0]


def drawn_figure(title, draw, records, number):
    """What the template needs of a function of a figure: its markup, or the reason why there is none."""
    from gridgrad.experiments.plots import style

    try:
        figure = draw(records)
    except ValueError as error:
        return {"title": title, "svg": None, "reason": str(error)}
    svg = StringIO()
    with style.plt.rc_context({"svg.hashsalt": f"figure {number}", "svg.fonttype": "none"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    style.plt.close(figure)
    markup = svg.getvalue()[svg.getvalue().index("<svg") :]
    markup = re.sub(r"<metadata>.*?</metadata>", "", markup, count=1, flags=re.DOTALL)
    markup = re.sub(r'( id="|url\(#|href="#)', rf"\1f{number}-", markup)  # ids that no other figure has
    markup = markup.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(title)}"', 1)
    return {"title": title, "svg": Markup(markup), "is_wide": figure.get_figwidth() > style.COLUMN}


# ----- tables


def tables(records, found, told=()):
    """The tables that have lines, dicts of `page_table`. found: the Rows of the records."""
    every = [[point(row) for row in found if not row.is_predicted and row.value], left_out(records), planner(found),
             [point(row) | {"machine": row.origin.name} for row in found if row.is_predicted]]  # fmt: skip
    own = zip(("measured", "left-out", "planner", "predicted"), NOTES, NOTES.values(), every)
    others = ((f"model-{number}", *one) for number, one in enumerate(told))
    return [page_table(*one) for one in (*(one for one in own if one[-1]), *others)]


def page_table(id, title, note, rows):
    """A table of dicts as the template needs it."""
    shown = telling(rows)
    lines = [list(map(cell, row.values())) for row in shown]
    return {"id": id, "title": title, "note": note, "heads": list(shown[0]) if shown else [], "lines": lines}


def point(row):
    """The cells of a Row of a point: those of the table for the terminal, and what that has no room for."""
    cells = cells_of(row)
    return cells | {"MB sent a step": None if row.bytes is None else row.bytes / 1e6,
                    "MiB, most of a rank": row.memory and row.memory / 2**20, "remark": cells.pop("remark")}  # fmt: skip


def left_out(records):
    """A row for each point and reason for which runs failed or did not count."""
    found = defaultdict(list)
    for record in records:
        if record.get("failed") or is_busy(record):
            found[origin_of(record), key_of(record), record.get("failed")].append(record)
    return [
        {"network": one["curves"][0][0] if one["curves"] else one["net"],
         "series": "; ".join(dict.fromkeys(curve[1] for curve in one["curves"])), "grid": one["grid"], "ranks": one["P"],
         "what": "failed" if failed else "busy", "runs": len(these), "reason": failed or one["load"]["verdict"]}
        for (*_, failed), these in found.items() for one in these[:1]
    ]  # fmt: skip


def planner(found):
    """A row for each machine, network, scaling and number of ranks above 1 that has predictions: the planner's choice, or the
    fastest series of those that were predicted."""
    predicted, timed = defaultdict(list), defaultdict(list)
    for row in (row for row in found if row.ranks > 1 and row.seconds):
        place = row.network, row.scaling, row.ranks
        if not row.is_predicted:
            timed[place].append(row)
        elif row.fits:
            predicted[row.origin.name, place].append(row)
    rows = []
    for (machine, place), here in predicted.items():
        asked = [row for row in here if row.settings.get("grid") == AUTO]
        choice = asked[0] if asked else min(here, key=lambda row: row.seconds.value)
        fastest = min(timed[place], key=lambda row: (is_busy_alone(row), row.seconds.value), default=None)
        plan = choice.runs[0].get("plan")
        rows.append({
            "machine": machine, "network": choice.network, "scaling": choice.scaling, "ranks": choice.ranks,
            "batch": choice.batch, "grid": choice.grid, "plan": plan if isinstance(plan, str) else None,
            "of": "all grids" if asked else "the series here", "ms, predicted": 1e3 * choice.seconds.value,
            "measured fastest": fastest and f"{fastest.grid} ({fastest.series})",
            "ms, measured": fastest and 1e3 * fastest.seconds.value,
        })  # fmt: skip
    return rows


def environments(records):
    """[(runs, [(what, value)])] for each environment in which something was measured, the entries of SAME first."""
    found = {}
    for record in records:
        if not record.get("predicted"):
            found.setdefault(str(same(record["environment"])), []).append(record["environment"])
    return [(len(these), [(SAME.get(name, name).replace("_", " "), ", ".join(values))
                          for name in dict.fromkeys([*SAME, *(name for one in these for name in one)])
                          if (values := dict.fromkeys(cell(one.get(name)) for one in these)) != {"-": None}])
            for these in found.values()]  # fmt: skip


# ----- the commands that repeat a study


def commands(records):
    """What repeats each sweep, once for each machine for which it was predicted: settings, a command, and a remark."""
    import tomli_w

    sweeps, found = defaultdict(lambda: defaultdict(list)), []
    for record in records:
        machine = str(record.get("machine")) if record.get("predicted") else None
        sweeps[json.dumps(record["sweep"], sort_keys=True)][machine].append(record)
    for of_machine in sweeps.values():
        settings = next(iter(of_machine.values()))[0]["sweep"]
        for title in [machine for machine in of_machine if machine] or [None]:
            words, remark = ["gridgrad", "sweep", SETTINGS, "--out", RUNS], ""
            if None not in of_machine:
                words += options_of_predictions(of_machine[title])
            if title:
                file = next((name for name in machines.names() if machines.read(name).name == title), None)
                words += ["--machine", file or MACHINE]
                remark = "" if file else f"{MACHINE} stands for '{title}': a file that calibrate wrote, or its numbers."
            command = {"settings": tomli_w.dumps(without_none(settings)), "command": shlex.join(words), "remark": remark}
            found.append(command if settings else {"settings": None, "command": None, "remark": NO_SETTINGS})
    return found


def without_none(value):
    """A value of JSON without the entries that TOML can not hold."""
    if isinstance(value, dict):
        return {name: without_none(one) for name, one in value.items() if one is not None}
    return [without_none(one) for one in value if one is not None] if isinstance(value, list) else value


def options_of_predictions(records):
    """The options of `sweep` for ranks and samples of predictions; none for samples that differ."""
    ranks = records[0]["sweep"].get("ranks")
    ranks = ranks if isinstance(ranks, list) else sorted({record["P"] for record in records})
    shapes, outputs = {tuple(record.get("shape") or ()) for record in records}, {record.get("outputs") for record in records}
    values = {"predict": ranks, "shape": shapes.pop() if len(shapes) == 1 else (),
              "outputs": [*filter(None, outputs)] if len(outputs) == 1 else ()}  # fmt: skip
    return [word for name, of in values.items() if of for word in (f"--{name}", ",".join(map(str, of)))]
