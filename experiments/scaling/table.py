"""What a study has measured or predicted, as a table for the terminal: a row for each point of each curve."""

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.scaling.busy import is_busy_alone
from gridgrad.experiments.scaling.median import FEWEST
from gridgrad.experiments.scaling.order import ended_by
from gridgrad.experiments.scaling.settings import METRICS, OF_TRAINING
from gridgrad.experiments.scaling.summary import rows

UNLIKE = "as either it or the run on 1 rank was measured beside other programs, and the other was not"


def text(records):
    """The table of the records of a study, and below it what else one should know. ValueError for a record that is damaged."""
    found = rows(records)
    shown = [row for row in found if row.value or row.failed]
    if not all(row.is_predicted for row in shown):
        shown = [row for row in shown if not row.is_predicted]  # a prediction has a column of its own beside what was measured
    if not shown:
        return "no run has a value: give more --steps, of which the first 5 are not timed"
    cells = [cells_of(row) for row in shown]
    alike = {name for name in ("data", "scaling") if len({one[name] for one in cells}) == 1}
    lines = [of_cells([{name: value for name, value in one.items() if name not in alike} for one in cells])]
    return "\n".join(lines + notes(shown))


def of_cells(rows):
    """The text of a table. rows: dicts with the same keys; columns without content are left out."""
    shown = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return table([{name: row[name] for name in shown} for row in rows])


def cells_of(row):
    """The cells of a row, by their headings."""
    seconds, value, of_time = row.seconds, row.value, row.metric == "seconds"
    speedup = row.speedup if of_time else None
    head, unit = METRICS[row.metric]
    percent = lambda share: None if share is None else f"{100 * share:.0f}"  # noqa: E731
    return {
        "network": row.network, "data": row.dataset, "scaling": row.scaling, "series": row.series, "grid": row.grid,
        "ranks": row.ranks, "batch": row.batch,
        f"{head}, predicted" if row.is_predicted else head: value and cell(float(unit * value.value)),
        "+- %": f"{100 * value.half_width:.1f}" if value and not row.is_predicted and value.sure else None,
        **({} if of_time else {"ms, median step": seconds and cell(1e3 * seconds.value)}),
        **ratio_of(row),
        "speedup": speedup and f"{speedup.value:.3g}", "efficiency %": percent(speedup and row.efficiency.value),
        "communication %": percent(row.communication) if row.ranks > 1 and of_time else None,
        "predicted ms": row.predicted and of_time and cell(1e3 * row.predicted) or None,
        "runs": None if row.is_predicted else len(row.runs),
        "ended by": None if row.is_predicted or row.failed else ended_by(row.runs),
        "remark": remark(row),
    }  # fmt: skip


def ratio_of(row):
    """The cells of the ratio to the baseline, with its interval; none where the study has no baseline."""
    if not row.baseline:
        return {}
    ratio = row.ratio
    return {f"ratio to {row.baseline}": ratio and f"{ratio.value:.4g}",
            "from - to": f"{ratio.low:.4g} - {ratio.high:.4g}" if ratio and ratio.sure else None}  # fmt: skip


def remark(row):
    """What one should know about the time of a row; None where there is nothing."""
    if row.failed:
        return f"failed: {row.failed}"
    words = []
    if row.busy and row.metric == "seconds":
        words.append("busy machine" if is_busy_alone(row) else f"{counted(row.busy, 'busy run')} left out")
    if row.oversubscribed:
        words.append("oversubscribed")
    if not row.fits:
        words.append("needs more memory than a rank has")
    return ", ".join(words) or None


def notes(found):
    """Sentences below the table."""
    lines = []
    if few := [row for row in found if row.value and not row.is_predicted and not row.value.sure and row.metric != "bytes"]:
        least = 2 if few[0].metric in OF_TRAINING else FEWEST
        lines.append(f"{counted(len(few), 'point')} had fewer than {least} runs that count, too few for an interval of 95 %.")
    if crowded := sorted({row.ranks for row in found if row.oversubscribed}):
        slots = next(row.slots for row in found if row.oversubscribed)
        lines.append(f"{', '.join(map(str, crowded))} ranks are more than the {slots} cores here: oversubscribed, their times "
                     "say little about speed.")  # fmt: skip
    if unlike := sum(row.unlike for row in found):
        lines.append(f"No speedup of {counted(unlike, 'point')}, {UNLIKE}: start the sweep again when nothing else runs.")
    timed = [row for row in found if row.seconds and row.metric == "seconds"]
    if missing := sorted({row.network for row in timed if not row.speedup and not row.unlike}):
        lines.append(f"No speedup of {', '.join(missing)} where there is no run on 1 rank: add 1 to the ranks.")
    return lines
