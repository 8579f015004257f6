"""The tables of the page of a study: headings and cells, as plain texts."""

from dataclasses import dataclass

from gridgrad.experiments.common.parallel_schemes import AUTO
from gridgrad.experiments.common.tables import cell
from gridgrad.experiments.scaling.busy import is_busy, is_busy_alone
from gridgrad.experiments.scaling.environment import SAME, same
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.summary import origin_of
from gridgrad.experiments.scaling.table import UNLIKE, cells_of

MEASURED = (
    "A time is the median of the runs, each of which has its own median step; +- is half of the 95 % confidence interval of "
    "this median. Speedup and efficiency are in samples a second, over the run on one rank."
)
LEFT_OUT = "Points without a time, and runs that did not count because other programs used the machine."
PLANNER = "What is predicted to be the fastest on so many ranks, beside what was measured to be."
SURE = 0.9  # the confidence of the ratio of two medians with intervals of 95 %, below which no interval is printed
ALIKE = "data", "scaling"  # what the top of the page says too
PREDICTED = "By the cost model, for the machine that is named, without a run."


@dataclass(frozen=True)
class PageTable:
    """A table. id: its anchor. title, note: above it. heads: texts. lines: of texts, one for each heading."""

    id: str
    title: str
    note: str
    heads: tuple
    lines: tuple


def tables(records, found):
    """The PageTables of a study, those that have lines. records: of the study. found: their Rows."""
    measured = [row for row in found if not row.is_predicted]
    every = [
        page_table("measured", "Measured", MEASURED, [point(row) for row in measured if row.seconds]),
        page_table("left-out", "Failed, and on a busy machine", LEFT_OUT, left_out(records)),
        page_table("planner", "What the planner would choose", PLANNER, planner(found)),
        page_table("predicted", "Predicted", PREDICTED, [
            point(row) | {"machine": machine_of(row)} for row in found if row.is_predicted
        ]),
    ]  # fmt: skip
    return [table for table in every if table]


def page_table(id, title, note, rows):
    """A PageTable of rows, dicts with the same keys; None where there are none.

    Without the columns that have no content, and those of ALIKE that have the same in all rows.
    """
    different = {name: {str(row[name]) for row in rows} for name in (rows[0] if rows else ())}
    heads = [name for name, values in different.items() if values != {"None"} and (name not in ALIKE or len(values) > 1)]
    lines = tuple(tuple(cell(row[name]) for name in heads) for row in rows)
    return PageTable(id, title, note, tuple(heads), lines) if rows else None


def point(row):
    """The cells of a Row of a point: those of the table for the terminal, and what it has no room for."""
    cells = cells_of(row)
    remark = cells.pop("remark")
    return cells | {
        "MB sent a step": None if row.bytes is None else row.bytes / 1e6,
        "MiB, most of a rank": row.memory and row.memory / 2**20, "remark": remark,
    }  # fmt: skip


def left_out(records):
    """A row for each point and reason for which runs failed or did not count."""
    found = {}
    for record in records:
        if record.get("failed"):
            what, reason = "failed", record["failed"]
        elif is_busy(record):
            what, reason = "busy", record["load"]["verdict"]
        else:
            continue
        place = origin_of(record), key_of(record), what, reason if what == "failed" else ""
        found.setdefault(place, []).append((record, reason))
    return [
        {"network": one["curves"][0][0] if one["curves"] else one["net"],
         "series": "; ".join(dict.fromkeys(curve[1] for curve in one["curves"])), "grid": one["grid"], "ranks": one["P"],
         "what": what, "runs": len(these), "reason": these[0][1]}
        for (_, _, what, _), these in found.items() for one in [these[0][0]]
    ]  # fmt: skip


def machine_of(row):
    """The name of the machine that a predicted Row is for; None without records that count."""
    return origin_of(row.runs[0]).name if row.runs else None


def planner(found):
    """A row for each machine, network, scaling and number of ranks above 1 that has predictions: the planner's choice; where
    the planner was not asked, the fastest series of those that were predicted."""
    predictions = [row for row in found if row.is_predicted and row.ranks > 1 and row.seconds]
    rows = []
    for machine, *place in dict.fromkeys((machine_of(row), row.network, row.scaling, row.ranks) for row in predictions):
        here = [row for row in found if [row.network, row.scaling, row.ranks] == place and row.seconds]
        predicted = [row for row in here if row.is_predicted and row.fits and machine_of(row) == machine]
        asked = [row for row in predicted if row.settings.get("grid") == AUTO]
        if not predicted:
            continue
        choice = asked[0] if asked else min(predicted, key=lambda row: row.seconds.value)
        timed = [row for row in here if not row.is_predicted]
        timed = [row for row in timed if not is_busy_alone(row)] or timed
        fastest = min(timed, key=lambda row: row.seconds.value, default=None)
        plan = choice.runs[0].get("plan")
        rows.append({
            "machine": machine, "network": choice.network, "scaling": choice.scaling, "ranks": choice.ranks,
            "batch": choice.batch, "grid": choice.grid, "plan": plan if isinstance(plan, str) else None,
            "of": "all grids" if asked else "the series here", "ms, predicted": 1e3 * choice.seconds.value,
            "measured fastest": fastest and f"{fastest.grid} ({fastest.series})",
            "ms, measured": fastest and 1e3 * fastest.seconds.value,
        })  # fmt: skip
    return rows


def best(found):
    """A sentence for each network and scaling: the largest speedup that was measured, with a core for each rank if possible,
    and not on a busy machine; or why there is none."""
    lines = []
    for network, scaling in dict.fromkeys((row.network, row.scaling) for row in found if not row.is_predicted):
        several = [row for row in found if (row.network, row.scaling) == (network, scaling) and not row.is_predicted
                   and row.ranks > 1 and row.seconds]  # fmt: skip
        sure = [row for row in several if row.speedup and not is_busy_alone(row)]
        sure = [row for row in sure if not row.oversubscribed] or sure
        if several and not sure:
            why = UNLIKE if any(row.unlike for row in several) else "as all runs were measured beside other programs"
            why = why if any(row.unlike or row.speedup for row in several) else "as there is no run on 1 rank"
            lines.append(f"{network}, {scaling} scaling: no speedup, {why}.")
        if sure:
            row = max(sure, key=lambda row: row.speedup.value)
            low, high, percent = row.speedup.low, row.speedup.high, 100 * SURE
            interval = f" ({low:.3g} to {high:.3g}, {percent:.0f} % sure)" if row.speedup.confidence >= SURE else ""
            lines.append(f"{network}, {scaling} scaling: {row.speedup.value:.3g} times{interval} the samples a second of one "
                         f"rank on {row.ranks} ranks, with {row.series} ({row.grid}); efficiency "
                         f"{100 * row.efficiency.value:.0f} %{', oversubscribed' if row.oversubscribed else ''}.")  # fmt: skip
    return lines


def environments(records):
    """[(runs, [(what, value)])] for each environment in which something was measured."""
    found = {}
    for record in records:
        if not record.get("predicted"):
            found.setdefault(str(same(record["environment"])), []).append(record["environment"])
    return [(len(these), [(SAME.get(name, name).replace("_", " "), values_of(name, these)) for name in names_of(these)])
            for these in found.values()]  # fmt: skip


def names_of(environments):
    """The entries of some environments that say something, those of SAME first."""
    names = dict.fromkeys([*SAME, *(name for one in environments for name in one)])
    return [name for name in names if any(one.get(name) is not None for one in environments)]


def values_of(name, environments):
    """The values of an entry in some environments, as a text."""
    return ", ".join(dict.fromkeys(cell(one.get(name)) for one in environments))
