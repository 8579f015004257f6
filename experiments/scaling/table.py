"""What a study has measured or predicted, as tables: for the terminal, a row a point of each curve, and for other tools."""

from gridgrad.experiments.common.tables import cell, counted, table
from gridgrad.experiments.launching.start_ranks import nodes, slots
from gridgrad.experiments.scaling import predicted
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.runs import ended_by
from gridgrad.experiments.scaling.statistics import FEWEST, OF_TRAINING
from gridgrad.experiments.scaling.study import METRICS
from gridgrad.experiments.scaling.summary import is_busy_alone, rows

UNLIKE = "as either it or the run on 1 rank was measured beside other programs, and the other was not"
ALIKE = "data", "scaling"  # columns that say nothing where they are all the same
START = 2.0  # seconds that the start and the end of a job take here, of an estimate


def text(records):
    """The table of the records of a study, and lines below it."""
    found = rows(records)
    shown = [row for row in found if row.value or row.failed]
    if not all(row.is_predicted for row in shown):
        shown = [row for row in shown if not row.is_predicted]  # a prediction has a column of its own beside what was measured
    if not shown:
        return "no run has a value: give more --steps, of which the first 5 are not timed"
    return "\n".join([table(telling([cells_of(row) for row in shown])), *notes(shown)])


def telling(rows):
    """Dicts with the columns of some rows that say something: those that are not empty, and not all the same if of ALIKE."""
    values = {name: {str(row.get(name)) for row in rows} for name in dict.fromkeys(name for row in rows for name in row)}
    names = [name for name, found in values.items() if found != {"None"} and (name not in ALIKE or len(found) > 1)]
    return [{name: row.get(name) for name in names} for row in rows]


def cells_of(row):
    """The cells of a row, by their headings."""
    value, ratio, seconds, of_time = row.value, row.ratio, row.seconds, row.metric == "seconds"
    head, unit = METRICS[row.metric]
    percent = lambda share: None if share is None else f"{100 * share:.0f}"  # noqa: E731
    cells = {
        "network": row.network, "data": row.dataset, "scaling": row.scaling, "series": row.series, "grid": row.grid,
        "ranks": row.ranks, "batch": row.batch,
        f"{head}, predicted" if row.is_predicted else head: value and cell(float(unit * value.value)),
        "+- %": f"{100 * value.half_width:.1f}" if value and not row.is_predicted and value.sure else None,
    }  # fmt: skip
    if row.baseline:
        cells |= {f"ratio to {row.baseline}": ratio and f"{ratio.value:.4g}",
                  "from - to": f"{ratio.low:.4g} - {ratio.high:.4g}" if ratio and ratio.sure else None}  # fmt: skip
    cells |= {
        "speedup": row.speedup and f"{row.speedup.value:.3g}", "efficiency %": percent(row.speedup and row.efficiency.value),
        "communication %": percent(row.communication) if row.ranks > 1 else None,
        "predicted ms": row.predicted and cell(1e3 * row.predicted),
    } if of_time else {"ms, median step": seconds and cell(1e3 * seconds.value)}  # fmt: skip
    ended = None if row.is_predicted or row.failed else ended_by(row.runs)
    return cells | {"runs": None if row.is_predicted else len(row.runs), "ended by": ended, "remark": remark(row)}


def remark(row):
    """What one should know about the time of a row; or None."""
    if row.failed:
        return f"failed: {row.failed}"
    words = []
    if row.busy and row.metric == "seconds":
        words.append("busy machine" if is_busy_alone(row) else f"{counted(row.busy, 'busy run')} left out")
    if row.oversubscribed:
        words.append("oversubscribed")
    if row.is_predicted and (idle := row.runs[0].get("idle")):
        words.append(f"{idle} of the ranks have nothing to compute")
    if not row.fits:
        words.append("needs more memory than a rank has")
    return ", ".join(words) or None


def notes(found):
    """Lines below the table."""
    lines, timed = [], [row for row in found if row.seconds and row.metric == "seconds"]
    few = [row for row in found if row.value and not row.is_predicted and not row.value.sure and row.metric != "bytes"]
    if few:
        least = 2 if few[0].metric in OF_TRAINING else FEWEST
        lines.append(f"{counted(len(few), 'point')} had fewer than {least} runs that count, too few for an interval of 95 %.")
    if crowded := sorted({row.ranks for row in timed if row.oversubscribed}):
        lines.append(f"{', '.join(map(str, crowded))} ranks are more than the cores here: their times say little about speed.")
    if unlike := sum(row.unlike for row in timed):
        lines.append(f"No speedup of {counted(unlike, 'point')}, {UNLIKE}: start the sweep again when nothing else runs.")
    if missing := sorted({row.network for row in timed if not row.speedup and not row.unlike}):
        lines.append(f"No speedup of {', '.join(missing)} where there is no run on 1 rank: add 1 to the ranks.")
    return lines


def estimate(study, machine):
    """The points of a Study as a table, with the node-hours that they are predicted to take on a Machine, and the sum."""
    of_node, reasons = -(-slots() // nodes()), {}
    made = predicted.records(study, machine, of_data=True, reasons=reasons)
    steps, lines = {key_of(one): one["seconds_per_step"]["median"] for one in made}, []
    for point in study.points:
        step, hours = steps.get(point.key), -(-point.ranks // of_node) * study.repeats / 3600
        lines.append({
            "network": point.settings["net"], "grid": point.settings["grid"], "ranks": point.ranks,
            "batch": point.settings["batch_size"], "series": "; ".join(curve.series for curve in study.curves_of(point)),
            "runs at least": study.repeats, "ms a step, predicted": step and 1e3 * step,
            "node-hours": step and hours * (START + predicted.steps_of(point) * step), "no prediction, as": reasons.get(point),
        })  # fmt: skip
    least, count = sum(line["node-hours"] or 0 for line in lines), len(lines)
    last = [counted(count, "point"), f"{count * study.repeats} to {count * study.most_repeats} runs"]
    if steps:
        most = least * study.most_repeats / study.repeats
        of = f"nodes of {counted(of_node, 'core')} (predicted for {machine.name})"
        last.append(f"{least:.2g} to {most:.2g} node-hours on {of}")
    if reasons:
        last.append(f"{counted(len(reasons), 'point')} without a prediction")
    return "\n".join([*study.story, table(telling(lines)), f"{', '.join(last)}; nothing was run"])
