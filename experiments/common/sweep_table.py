"""What a sweep has measured or predicted, as a table for the terminal: a row for each network and grid."""

from collections import defaultdict
from statistics import median

from gridgrad.experiments.common.tables import range_of, spread, table


def text(reports):
    """The table of the reports of a sweep, and below it what else one should know.

    The time of a run is its median step, of which there is one for each repeat. The speedup over one rank is in samples a
    second, so that it is the same for strong and for weak scaling.
    """
    groups = defaultdict(list)
    for report in reports:
        if report["seconds_per_step"]:  # there is none where a run had too few steps to time
            groups[report["net"], report.get("scheme", ""), report["grid"]].append(report)
    alone = {net: samples_a_second(runs) for (net, _, _), runs in groups.items() if runs[0]["P"] == 1}
    rows = [row(runs, alone.get(net)) for (net, _, _), runs in groups.items()]
    if not rows:
        return "no run has steps that were timed: give more --steps"
    notes = []
    if crowded := {run["P"] for run in reports if run.get("oversubscribed")}:
        notes.append(
            f"{', '.join(map(str, sorted(crowded)))} ranks are more than the {reports[0]['slots']} cores here: "
            "oversubscribed, their times say little about speed."
        )
    if missing := {net for net, _, _ in groups} - alone.keys():
        notes.append(f"No speedup of {', '.join(sorted(missing))}, of which there is no run on 1 rank: add 1 to the ranks.")
    return "\n".join([table(rows), *notes])


def row(runs, alone):
    """The cells of the runs of a network on a grid. alone: samples a second of one rank, or None if that is not known."""
    one = runs[0]
    seconds = [run["seconds_per_step"]["median"] for run in runs]
    cells = {"network": one["net"], "grid": one["grid"], "ranks": one["P"]}
    speedup = f"{samples_a_second(runs) / alone:.3g}" if alone else None
    if one.get("predicted"):
        return {"network": one["net"], "scheme": one["scheme"]} | cells | {
            "batch": one["settings"]["batch_size"], "ms a step, predicted": 1e3 * seconds[0],
            "speedup over 1 rank": speedup, "MB sent by a rank": one["rank_bytes"] / 1e6,
            "GiB in a rank": one["rank_memory"] / 2**30, "fits": one["fits"],
        }  # fmt: skip
    return cells | {"ms a step": spread(range_of(seconds), 1e-3), "speedup over 1 rank": speedup, "repeats": len(runs)}


def samples_a_second(runs):
    """By the median of the repeats of a run."""
    return runs[0]["settings"]["batch_size"] / median(run["seconds_per_step"]["median"] for run in runs)
