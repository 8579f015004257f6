"""What a study has measured or predicted, as a table for the terminal: a row for each point of each curve."""

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.scaling.busy import is_busy_alone
from gridgrad.experiments.scaling.order import ended_by
from gridgrad.experiments.scaling.summary import rows

UNLIKE = "as either it or the run on 1 rank was measured beside other programs, and the other was not"


def text(records):
    """The table of the records of a study, and below it what else one should know. ValueError for a record that is damaged."""
    found = rows(records)
    shown = [row for row in found if row.seconds or row.failed]
    if not all(row.is_predicted for row in shown):
        shown = [row for row in shown if not row.is_predicted]  # a prediction has a column of its own beside what was measured
    if not shown:
        return "no run has steps that were timed: give more --steps"
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
    seconds, speedup = row.seconds, row.speedup
    percent = lambda share: None if share is None else f"{100 * share:.0f}"  # noqa: E731
    return {
        "network": row.network, "data": row.dataset, "scaling": row.scaling, "series": row.series, "grid": row.grid,
        "ranks": row.ranks, "batch": row.batch,
        "ms a step, predicted" if row.is_predicted else "ms a step": seconds and cell(1e3 * seconds.value),
        "+- %": seconds and not row.is_predicted and seconds.sure and f"{100 * seconds.half_width:.1f}" or None,
        "speedup": speedup and f"{speedup.value:.3g}", "efficiency %": percent(row.efficiency and row.efficiency.value),
        "communication %": percent(row.communication) if row.ranks > 1 else None,
        "predicted ms": row.predicted and cell(1e3 * row.predicted), "runs": None if row.is_predicted else len(row.runs),
        "ended by": None if row.is_predicted or row.failed else ended_by(row.runs),
        "remark": remark(row),
    }  # fmt: skip


def remark(row):
    """What one should know about the time of a row; None where there is nothing."""
    if row.failed:
        return f"failed: {row.failed}"
    words = []
    if row.busy:
        words.append("busy machine" if is_busy_alone(row) else f"{counted(row.busy, 'busy run')} left out")
    if row.oversubscribed:
        words.append("oversubscribed")
    if not row.fits:
        words.append("needs more memory than a rank has")
    return ", ".join(words) or None


def notes(found):
    """Sentences below the table."""
    lines = []
    if few := [row for row in found if row.seconds and not row.is_predicted and not row.seconds.sure]:
        lines.append(f"{counted(len(few), 'point')} had fewer than 6 runs that count, too few for an interval of 95 %.")
    if crowded := sorted({row.ranks for row in found if row.oversubscribed}):
        slots = next(row.slots for row in found if row.oversubscribed)
        lines.append(f"{', '.join(map(str, crowded))} ranks are more than the {slots} cores here: oversubscribed, their times "
                     "say little about speed.")  # fmt: skip
    if unlike := sum(row.unlike for row in found):
        lines.append(f"No speedup of {counted(unlike, 'point')}, {UNLIKE}: start the sweep again when nothing else runs.")
    if missing := sorted({row.network for row in found if row.seconds and not row.speedup and not row.unlike}):
        lines.append(f"No speedup of {', '.join(missing)} where there is no run on 1 rank: add 1 to the ranks.")
    return lines
