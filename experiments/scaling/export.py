"""The runs of a study for other tools: a curve as a file of Extra-P, and all runs as call trees for Hatchet and Thicket.

A file of Extra-P has the values of all runs of each point, `time` in seconds of a step and `bytes` by all ranks in a step, by
region: `step`, below it `compute` (with reading), `communicate` and `wait`; below `communicate`, `gradients` (their sums) and
`activations` (other arrays of the network).

The trees are a list of {"metadata", "graph"} in JSON, one a run. Under the step stand its parts, under computing the layers
with their passes, under communicating the arrays that are sent, by layer and kind of collective. Each node has `time (inc)`
(seconds of a step, mean over the ranks), `time` (without its children), `bytes` by all ranks and `calls` of a rank in itself.
"""

import json
import re
from collections import defaultdict
from itertools import count
from pathlib import Path

from gridgrad.experiments.common.report import PARTS, write_text
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import is_busy, seconds_of
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.parallel.observe.span_observer import METHODS

STEP, COMPUTE, COMMUNICATE, WAIT = "step", "step->compute", "step->communicate", "step->wait"
GRADIENTS, ACTIVATIONS = f"{COMMUNICATE}->gradients", f"{COMMUNICATE}->activations"
PLACES = [(region, "time") for region in (STEP, COMPUTE, COMMUNICATE, GRADIENTS, ACTIVATIONS, WAIT)]  # in the order of the file
PLACES += [(region, "bytes") for region in (COMMUNICATE, GRADIENTS, ACTIVATIONS)]
PASSES = {"forward": "forward", "gradients": "gradients of parameters", "input_gradient": "gradient of the input",
          "backward": "backward"}  # fmt: skip # in the words of a tree


# ----- Extra-P


def write_curves(folder, records):
    """Write a file of Extra-P for each curve with several points into a folder; returns words about it, or ValueError."""
    paths = {}  # {name in small letters, in which names differ: path}
    for (curve, is_predicted), rows in curves_of(rows_of(records)).items():
        words = f"{curve.network} {curve.series} {curve.scaling}{' predicted' if is_predicted else ''}"
        stem = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
        own = next(name for n in count(1) if (name := stem if n == 1 else f"{stem}-{n}").lower() not in paths)
        paths[own.lower()] = Path(folder) / f"{own}.txt"
        write_text(paths[own.lower()], curve_text(rows))
    if not paths:
        raise ValueError("no series was measured on several numbers of ranks: Extra-P has nothing to model")
    first = next(iter(paths.values()))
    return f"{counted(len(paths), 'file')} for Extra-P written to {folder}; next: extrap --text {first}"


def curves_of(found):
    """{(Curve, whether it is predicted): its Rows with times, by ranks} of those with several points."""
    by_curve = {}
    for row in found:
        if row.seconds and row.runs:
            by_curve.setdefault((row.curve, row.is_predicted), []).append(row)
    return {of: sorted(rows, key=lambda row: row.ranks) for of, rows in by_curve.items() if len({r.ranks for r in rows}) > 1}


def curve_text(rows):
    """The text of the file of a curve: what all its runs say, and is not 0 everywhere."""
    runs = [[values_of(run) for run in row.runs] for row in rows]
    lines = ["PARAMETER p", f"POINTS {' '.join(str(row.ranks) for row in rows)}"]
    for place in PLACES:
        values = [[run.get(place) for run in of_row] for of_row in runs]
        flat = [value for of_row in values for value in of_row]
        if None not in flat and any(flat):
            lines += ["", f"REGION {place[0]}", f"METRIC {place[1]}"]
            lines += [f"DATA {' '.join(repr(float(value)) for value in of_row)}" for of_row in values]
    return "\n".join(lines) + "\n"


def values_of(run):
    """{(region, metric): value} of a run; of a prediction those of the rank that bounds the step, its bytes times the ranks."""
    found = {(STEP, "time"): seconds_of(run)}
    if parts := run.get("parts"):  # of a prediction
        sums, others = parts.get("gradients", 0.0), parts.get("activations", 0.0)
        found |= {(COMPUTE, "time"): parts.get("compute", 0.0) + parts.get("update", 0.0),
                  (COMMUNICATE, "time"): sums + others, (GRADIENTS, "time"): sums, (ACTIVATIONS, "time"): others}  # fmt: skip
    if time := run.get("time"):
        found |= {(COMPUTE, "time"): time.get("compute", 0.0) + time.get("read", 0.0),
                  (COMMUNICATE, "time"): time.get("communicate", 0.0), (WAIT, "time"): time.get("wait", 0.0)}  # fmt: skip
    if run.get("bytes") is not None:
        found[COMMUNICATE, "bytes"] = sum(run["bytes"].values())
    elif run.get("rank_bytes") is not None:
        found[COMMUNICATE, "bytes"] = run["rank_bytes"] * run["P"]
    for region in (GRADIENTS, ACTIVATIONS) if run.get("communication") is not None else ():
        rows = [one for one in run["communication"] if one["layer"] != "loss" and
                (one["layer"] == "gradients") == (region == GRADIENTS)]  # fmt: skip
        found[region, "time"] = sum(one.get("seconds") or 0.0 for one in rows)
        found[region, "bytes"] = sum(one["bytes"] for one in rows)
    return found


# ----- Hatchet and Thicket


def write_trees(path, records):
    """Write the call trees of the runs that were timed; returns words about it, or ValueError."""
    found = trees(records)
    if not found:
        raise ValueError("no run says where its time goes: measure some with gridgrad sweep, with more --steps")
    write_text(path, json.dumps(found, indent=1) + "\n")
    return f"{counted(len(found), 'call tree')} written to {path}"


def trees(records):
    """[{"metadata", "graph"}] of the runs that were timed, in their order."""
    return [{"metadata": metadata(one), "graph": [tree(one)]} for one in records if one.get("time")]


def metadata(record):
    """What is known of a run: texts, numbers and truths."""
    point, environment = record["point"], record["environment"]
    return {
        "network": record["net"], "dataset": record.get("dataset"), "grid": record["grid"], "ranks": record["P"],
        "batch_size": point.get("batch_size"), "repeat": record["repeat"], "busy": is_busy(record),
        "series": "; ".join(dict.fromkeys(curve[1] for curve in record["curves"])),
        "scaling": "; ".join(dict.fromkeys(curve[2] for curve in record["curves"])),
        **{name: environment.get(name) for name in ("processor", "mpi", "host", "commit", "code")},
    }  # fmt: skip


def tree(record):
    """The root of the call tree of a run: a training step."""
    inside = {"compute": layers(record), "communicate": collectives(record)}
    parts = [node(part, "part", inside.get(part, []), record["time"].get(part, 0.0)) for part in PARTS]
    return node("step", "step", parts, sum(part["metrics"]["time (inc)"] for part in parts))


def node(name, kind, children, inclusive, bytes=0.0, calls=0.0):
    """A node. inclusive: its seconds; those of its children may be a little more, by rounding."""
    own = max(0.0, inclusive - sum(child["metrics"]["time (inc)"] for child in children))
    return {
        "frame": {"name": name, "type": kind},
        "metrics": {"time (inc)": inclusive, "time": own, "bytes": bytes, "calls": calls}, "children": children,
    }  # fmt: skip


def layers(record):
    """The nodes of the layers of a run, with their passes; none of a run without a profile."""
    found = []
    for one in record.get("layers") or []:
        passes = [node(PASSES[name], "pass", [], one[name]) for name in METHODS if one.get(name)]
        found.append(node(f"{one['kind']} {one['layer']}", "layer", passes, sum(one[name] for name in METHODS)))
    return found


def collectives(record):
    """The nodes of what is sent, by layer and kind of collective."""
    by_layer = defaultdict(list)
    for one in record.get("communication") or []:
        by_layer[one["layer"]].append(
            node(one["kind"], "collective", [], one.get("seconds") or 0.0, one["bytes"], one["calls"] / record["P"])
        )
    return [node(f"of {layer}", "array", kinds, sum(kind["metrics"]["time (inc)"] for kind in kinds))
            for layer, kinds in by_layer.items()]  # fmt: skip


KINDS = {"extrap": write_curves, "hatchet": write_trees}
