"""Steps that were measured, beside what the cost model and SMPI predict for them."""

from gridgrad.experiments.common.predicted_cost import rounded
from gridgrad.experiments.studies.predictions import PROBLEMS
from gridgrad.experiments.studies.simulators.points import beside
from gridgrad.nn.files.documents import NUMBER, SECONDS, TEXT, TRUTH, WHOLE, Optional, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

ROW = {
    "machine": TEXT, "net": TEXT, "batch_size": WHOLE, "ranks": WHOLE, "grid": TEXT, "plan": [TEXT], "planned": TRUTH,
    "predicted": SECONDS, "measured": SECONDS, "as_it_was": SECONDS, "error": NUMBER, "busy": Optional(TEXT),
}  # fmt: skip


def read(path):
    """The rows of a report of the study `predictions`; ValueError if the file is not such a report."""
    try:
        content = content_of(read_limited(path))
        check(content, {"rows": [ROW]})
        if not any(row["planned"] for row in content["rows"]):
            raise ValueError("no row is a choice of the planner")
    except ValueError as error:
        raise ValueError(f"{path} is no report of the program predictions: {error}") from None
    return content["rows"]


def rows(path, machine):
    """For each row of a report of the study `predictions` what `beside` finds, and the seconds that were measured: an iterator.

    machine: the Machine by which the report was predicted. ValueError at once, before anything is simulated, if the report is
    another one, or of another machine.
    """
    found = [(row, network(row, path)) for row in read(path)]
    for row, _ in found:
        if row["machine"] != machine.name:
            raise ValueError(f"{path} was measured on '{row['machine']}', and the machine file is of '{machine.name}': "
                             "give the file with which it was predicted")  # fmt: skip
    return (step(row, net, machine) for row, net in found)


def step(row, net, machine):
    """What `rows` yields for a row of a report. net: its network."""
    asked = PlacementSpec(parse_grid(row["grid"]), row["plan"])
    point = {name: row[name] for name in ("machine", "net", "batch_size", "grid")} | {"plan": ",".join(row["plan"])}
    return point | beside(net, asked, row["batch_size"], machine) | {"measured": rounded(row["measured"])}


def network(row, path):
    """The network of a row of a report."""
    for net, shape, outputs, batch_size in PROBLEMS:
        if (net, batch_size) == (row["net"], row["batch_size"]):
            return network_names.build(net, shape, outputs)
    raise ValueError(f"{path} has a step of {row['net']} with batch {row['batch_size']}, which is no problem of `predictions`")
