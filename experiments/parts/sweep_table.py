"""What a sweep has measured or predicted, as a table for the terminal: a row for each network and grid."""

from collections import defaultdict
from statistics import median

from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.experiments.parts.sweep_files import how
from gridgrad.nn.files.json_forms import SECONDS, TEXT, WHOLE, Optional, check

REPORT = {  # what the table needs of a report
    "net": TEXT, "grid": TEXT, "P": WHOLE, "settings": {"batch_size": WHOLE}, "slots": Optional(WHOLE),
    "seconds_per_step": Optional({"median": SECONDS}),
}  # fmt: skip


def text(reports):
    """The table of the reports of a sweep, and below it what else one should know.

    The time of a run is its median step, of which there is one for each repeat. The speedup over one rank is in samples a
    second, so that it is the same for strong and for weak scaling. ValueError for a report that is none.
    """
    groups = defaultdict(list)
    for report in reports:
        try:
            check(report, REPORT)
        except ValueError as error:
            raise ValueError(f"a report of {report['net']} is damaged ({error}): measure it again, with --anew") from None
        if report.get("seconds_per_step"):  # there is none where a run had too few steps to time
            place = report.get("scheme"), report["grid"], report["settings"]["batch_size"]
            groups[problem(report), *place].append(report)
    if not groups:
        return "no run has steps that were timed: give more --steps"
    alone = {}
    for (name, *_), runs in groups.items():
        if runs[0]["P"] == 1:  # of weak scaling there is no other batch on one rank
            alone[name, runs[0]["settings"]["batch_size"]] = alone[name] = samples_a_second(runs)
    rows = [row(runs, alone.get((name, batch_size), alone.get(name))) for (name, _, _, batch_size), runs in groups.items()]
    notes = []
    if crowded := {run["P"] for run in reports if run.get("oversubscribed")}:
        notes.append(
            f"{', '.join(map(str, sorted(crowded)))} ranks are more than the {reports[0].get('slots')} cores here: "
            "oversubscribed, their times say little about speed."
        )
    if missing := {name[0] for name, *_ in groups if name not in alone}:
        notes.append(f"No speedup of {', '.join(sorted(missing))}, of which there is no run on 1 rank: add 1 to the ranks.")
    return "\n".join([table(rows), *notes])


def problem(report):
    """What runs must have in common so that their times compare, but for the batch."""
    settings = {name: value for name, value in report.get("sweep", {}).items() if name != "batch_size"}
    return report["net"], how(settings)


def row(runs, alone):
    """The cells of the runs of a network on a grid. alone: samples a second of one rank, or None if that is not known."""
    one = runs[0]
    seconds = [run["seconds_per_step"]["median"] for run in runs]
    cells = {"network": one["net"], "grid": one["grid"], "ranks": one["P"], "batch": one["settings"]["batch_size"]}
    speedup = f"{samples_a_second(runs) / alone:.3g}" if alone else None
    if one.get("predicted"):
        return {"network": one["net"], "scheme": one["scheme"]} | cells | {
            "ms a step, predicted": 1e3 * seconds[0], "speedup over 1 rank": speedup,
            "MB sent by a rank": one["rank_bytes"] / 1e6, "GiB in a rank": one["rank_memory"] / 2**30, "fits": one["fits"],
        }  # fmt: skip
    return cells | {"ms a step": spread(range_of(seconds), 1e-3), "speedup over 1 rank": speedup, "repeats": len(runs)}


def samples_a_second(runs):
    """By the median of the repeats of a run."""
    return runs[0]["settings"]["batch_size"] / median(run["seconds_per_step"]["median"] for run in runs)
