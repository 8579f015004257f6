"""The profile of each run of a study as a call tree, in the literal format of Hatchet, which Thicket reads too.

    [{"metadata": {..}, "graph": [{"frame": {"name", "type"}, "metrics": {..}, "children": [..]}]}, ..]

Each `graph` is what `hatchet.GraphFrame.from_literal` and `thicket.Thicket.from_literal` take; `metadata` says of which run it
is, and is what Thicket calls the metadata of a profile. Under the step stand its parts, under computing the layers with their
passes, under communicating the arrays that are sent, by layer and kind of collective. Metrics of a node:

| metric       | what it says                                                                       |
|--------------|------------------------------------------------------------------------------------|
| `time (inc)` | seconds of a step, mean over the ranks, with those of its children                 |
| `time`       | the same without its children; of a part, what no layer and no collective has      |
| `bytes`      | sent by all ranks in a step, in this node alone                                    |
| `calls`      | collectives and messages that a rank takes part in, in a step, in this node alone  |

Every tree has the same metrics in all nodes, so that trees can be put together. In reports of earlier versions the seconds of a
collective are those of a rank that takes part in it: where only some ranks do, as in pipelines, they exceed the mean.
"""

from gridgrad.experiments.common.report import PARTS
from gridgrad.experiments.scaling.busy import is_busy
from gridgrad.parallel.observe.span_observer import METHODS

PASSES = {"forward": "forward", "gradients": "gradients of parameters", "input_gradient": "gradient of the input",
          "backward": "backward"}  # fmt: skip # in the words of a tree


def profiles(records):
    """The profiles of some records: of the runs that were timed, each once, in their order."""
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
    time = record["time"]
    inside = {"compute": layers(record), "communicate": collectives(record)}
    parts = [node(part, "part", inside.get(part, []), time.get(part, 0.0)) for part in PARTS]
    return node("step", "step", parts, sum(time.get(part, 0.0) for part in PARTS))


def node(name, kind, children, inclusive, bytes=0.0, calls=0.0):
    """A node. inclusive: its seconds with those of its children, which may be a little more than it, by rounding."""
    own = max(0.0, inclusive - sum(child["metrics"]["time (inc)"] for child in children))
    return {
        "frame": {"name": name, "type": kind},
        "metrics": {"time (inc)": inclusive, "time": own, "bytes": bytes, "calls": calls}, "children": children,
    }  # fmt: skip


def layers(record):
    """The nodes of the layers of a run that was profiled, with their passes; none of another run."""
    found = []
    for one in record.get("layers") or []:
        passes = [node(PASSES[name], "pass", [], one[name]) for name in METHODS if one.get(name)]
        found.append(node(f"{one['kind']} {one['layer']}", "layer", passes, sum(one[name] for name in METHODS)))
    return found


def collectives(record):
    """The nodes of what is sent, with the kinds of collectives: of layers, of gradients, of the loss."""
    by_layer = {}
    for one in record.get("communication") or []:
        by_layer.setdefault(one["layer"], []).append(one)
    found = []
    for layer, rows in by_layer.items():
        kinds = [node(row["kind"], "collective", [], row.get("seconds") or 0.0, row["bytes"], row["calls"] / record["P"])
                 for row in rows]  # fmt: skip
        found.append(node(f"of {layer}", "array", kinds, sum(kind["metrics"]["time (inc)"] for kind in kinds)))
    return found
