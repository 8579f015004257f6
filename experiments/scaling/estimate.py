"""What a study will cost, before anything runs: its points, with the node-hours that they are predicted to take."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.launching.start_ranks import nodes, slots
from gridgrad.experiments.scaling import predicted, records, table

START = 2.0  # seconds that the start and the end of a job take here, of an estimate


def story(study):
    """What the settings say of a Study and its series, a sentence a line."""
    whys = [f"{one['name']}: {one['why']}" for one in study.series if one.get("why")]
    return [*([study.about] if study.about else []), *whys]


def text(study, machine):
    """The points of a Study as a table, and the sum. machine: a Machine for which the seconds of a step are predicted."""
    of_node = -(-slots() // nodes())
    reasons = {}
    made = predicted.records(study, machine, of_data=True, reasons=reasons)
    predictions = {records.key_of(one): one["seconds_per_step"]["median"] for one in made}
    rows, least, unknown = [], 0.0, 0
    for point in study.points:
        step = predictions.get(point.key)
        hours = -(-point.ranks // of_node) * study.repeats / 3600
        cost = None if step is None else hours * (START + predicted.steps_of(point) * step)
        least, unknown = least + (cost or 0.0), unknown + (cost is None)
        rows.append({
            "network": point.settings["net"], "grid": point.settings["grid"], "ranks": point.ranks,
            "batch": point.settings["batch_size"], "series": "; ".join(curve.series for curve in study.curves_of(point)),
            "runs at least": study.repeats, "ms a step, predicted": step and 1e3 * step, "node-hours": cost,
            "no prediction, as": reasons.get(point),
        })  # fmt: skip
    most = least * study.most_repeats / study.repeats
    hours = f"{least:.2g} to {most:.2g} node-hours on nodes of {counted(of_node, 'core')} (predicted for {machine.name})"
    if unknown == len(rows):
        hours = "of which none has a prediction"
    elif unknown:
        hours += f" and {counted(unknown, 'point')} without a prediction"
    runs = f"{len(rows) * study.repeats} to {len(rows) * study.most_repeats} runs"
    last = f"{counted(len(rows), 'point')}, {runs}, {hours}; nothing was run"
    return "\n".join([*story(study), table.of_cells(rows), last])
