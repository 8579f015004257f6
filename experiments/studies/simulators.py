"""Compare predicted training steps with those of another simulator, SMPI of SimGrid, which replays them. Starts no job.

    gridgrad study simulators --ranks 2,4,16 --out simulators.json
    gridgrad study simulators --ranks 2 --measured predictions.jsonl --machine machine.json --out simulators.json

`experiments/export/simgrid.py` says how traces are made. Steps that are in the file of results are not replayed again.
"""

import tempfile
from collections import namedtuple
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from gridgrad.experiments.common.options import Parser, user_input, whole_list, writable_beside
from gridgrad.experiments.common.parallel_schemes import SCHEMES, grid_of
from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.report import fitting, write_json, write_text
from gridgrad.experiments.common.tables import lines, rounded, terminal
from gridgrad.experiments.export import simgrid
from gridgrad.experiments.export.actions import Collective, step_actions
from gridgrad.experiments.scaling import records
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.nn import Conv2d
from gridgrad.nn.files.documents import content_of_file
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import AXES, BATCH, MODEL, STAGE, GridDescription, parse_grid, places
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import Cost, cost_of_slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

BATCH_SIZES = {"vgg16": 128, "alexnet": 256, "resnet20": 256, "mlp:1024,1024,1024,relu": 1024, "mlp:4096,4096,relu": 256}
MOST_RANKS = {"resnet20": 256}  # of networks with many small layers, whose replays would take long
MACHINES = "cori-haswell", "ethernet-1g"
RANKS = [2, 4, 16, 64, 256, 1024]
ALONE = 16, 64  # numbers of ranks on which collectives are compared alone
SIZES = 64 << 10, 4 << 20, 64 << 20  # bytes of their arrays
KINDS = "steps", "collectives", "measured"  # of results
NEAR = 0.1  # a relative difference that needs no explanation
TIMEOUT = 900  # seconds of a replay
STAGES = 4  # of pipelines, of which the other ranks are along batch
ALL_GRIDS = 64  # ranks up to which all grids are compared; beyond, those whose replays take no more than minutes
SENT = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}  # by each rank, about, in units of the whole array
Point = namedtuple("Point", "machine net batch_size grid plan", defaults=["fewest-bytes"])  # a step, in words
TEXT = """# Predictions beside SimGrid's

Written by `gridgrad study simulators`. Each step is predicted by the cost model, and replayed by SMPI, the MPI of SimGrid,
from traces that `gridgrad explain --export` writes: the same operations, which take the same seconds, and the same bytes. What
differs is how collectives and messages are simulated: SMPI sends every message of an algorithm over links that are shared.
Collectives of all ranks are SMPI's, with the choices of MPICH; others are written as messages. A step is one alone.

Why the two differ, where they do by more than 10 %:

- **an algorithm**: SMPI's is MPICH's: an all-gather of 512 KiB or more is a ring, and a larger reduce-scatter is pairwise, with
  ranks - 1 rounds, where the formula, of the best algorithm, counts log2(ranks) latencies; and in pairwise rounds most bytes go
  from node to node, which the formula counts once for each node. So MPICH is slower than predicted on a real machine, too.
  Written as messages, with the rounds and bytes of the formula, SMPI takes what is predicted.
- **another rank**: The slowest rank is another one than that with the most work, of which the cost model takes the time: the
  prediction is too low.
- **overlap**: The cost model and the real program let a collective overlap with computing. SMPI's replay can not: the trace is
  too slow.
- **measured collectives**: The cost model has measured times of collectives, and SMPI one latency and one bandwidth.
- **several**: an algorithm, and one of the other causes. **open**: none of them."""
COLLECTIVES = """
## One collective of all ranks

How much longer one takes in SMPI than the formula says, with the algorithms that SMPI takes as MPICH would, and written as
messages. Reduce-scatters of 512 KiB or less are by recursive doubling in SMPI, which sends more bytes than MPICH's recursive
halving: there SMPI is wrong.
"""
MEASURED = """
## Measured steps

How far the cost model and SMPI are from the measured seconds; "difference" is that between the two.
"""


def grids(net, batch_size, ranks):
    """The texts of the grids of so many ranks that are compared for a network by its name."""
    images = any(isinstance(layer, Conv2d) for layer in published(net).leaves())
    schemes = [scheme for scheme in SCHEMES if images or scheme != "height"] if ranks <= ALL_GRIDS else [BATCH, "2d"]
    found = [grid_of(scheme, ranks) for scheme in schemes]
    if STAGES <= ranks <= ALL_GRIDS:
        found.append(f"stage={STAGES},batch={ranks // STAGES}")
    return [grid for grid in found if grid and parse_grid(grid).get(BATCH, 1) <= batch_size]


def beside(net, asked, batch_size, machine):
    """Seconds of a step `predicted` and `simulated` by SMPI, and their relative difference, a dict. Where that is not near,
    also `as_messages`, the seconds of SMPI where all collectives are messages; and predicted ones: `alone`, where nothing
    overlaps, `longest`, of the slowest rank, and `formula`, as `alone` but without measured collectives."""
    predicted, alone, asked = prediction(net, asked, batch_size, machine)
    actions = step_actions(net, asked, batch_size, machine)
    found = {"ranks": len(actions), "predicted": rounded(predicted), "simulated": replayed(actions, machine)}
    found["difference"] = rounded(found["simulated"] / predicted - 1)
    if abs(found["difference"]) > NEAR:
        sizes, longest = {axis: asked.grid.get(axis, 1) for axis in AXES}, predicted
        if sizes[STAGE] == 1:
            grids = (GridDescription(sizes, place, machine.node["ranks"]) for place in places(sizes))
            longest = max(Cost(net, grid, asked.plan, batch_size, machine).seconds for grid in grids)
        found |= {"as_messages": replayed(actions, machine, ()), "alone": rounded(alone), "longest": rounded(longest)}
        if machine.collectives:
            found["formula"] = rounded(prediction(net, asked, batch_size, replace(machine, collectives={}))[1])
    return found


def prediction(net, asked, batch_size, machine):
    """(seconds of a step, the same where nothing overlaps, the PlacementSpec with nothing left open). The step of a pipeline is
    one alone, because SMPI replays one; else predictions are of steps that follow one another."""
    if asked.grid.get(STAGE, 1) > 1:
        found = pipeline_step_time(net, replace(asked, pipelines=asked.pipelines or Pipelines()), batch_size, machine)
        updates = (next(event.stop for event in row if event.instruction.op == "U") for row in found.played.events)
        seconds = max(updates)
        return seconds, seconds, replace(asked, pipelines=Pipelines(found.pipeline, found.micro_batches, found.cuts))
    cost = cost_of_slowest_rank(net, asked, batch_size, machine)
    alone = sum(cost.seconds_of(replace(work, overlaps=())) for work in cost.works)
    return cost.seconds, alone, replace(asked, plan=cost.placed.plan)


def replayed(actions, machine, native=simgrid.NATIVE):
    """Seconds of a step as SMPI simulates it. native: see `simgrid.write`."""
    with tempfile.TemporaryDirectory(prefix="gridgrad-traces-") as folder:
        simgrid.write(folder, actions, machine, native)
        return simgrid.replayed(folder, len(actions), machine, TIMEOUT)


def collective(name, ranks, kind, nbytes):
    """Seconds of one collective of all ranks, a dict: predicted, SMPI's own, and written as messages. nbytes: of the array."""
    machine, sent = machines.read(name), SENT[kind] * (nbytes // ranks) * (ranks - 1)
    group = GridDescription({MODEL: ranks}, None, machine.node["ranks"]).group(MODEL)
    actions = [[Collective(kind, kind, tuple(range(ranks)), place, sent)] for place in range(ranks)]
    return {
        "machine": name, "kind": kind, "ranks": ranks, "bytes": nbytes,
        "predicted": rounded(machine.collective_seconds(kind, group, ranks, sent)),
        "simulated": replayed(actions, machine), "as_messages": replayed(actions, machine, ()),
    }  # fmt: skip


def measured_steps(path, machine):
    """[what `beside` finds, with the measured seconds] of each point that a sweep has measured and predicted for a Machine."""
    found, steps = records.read(path), []
    priced = {records.key_of(one): one for one in found if one.get("predicted") and one["machine"] == machine.name}
    timed = {records.key_of(row.runs[0]): row.seconds.value for row in rows_of(found) if row.seconds and not row.is_predicted}
    pairs = [(one, timed[key]) for key, one in priced.items() if key in timed and parse_grid(one["grid"]).get(STAGE, 1) == 1]
    if not pairs:
        raise ValueError(f"{path} has no point that was measured and predicted for '{machine.name}': give the file "
                         "of a sweep with this --machine")  # fmt: skip
    for one, seconds in pairs:
        net = network_names.build(one["net"], one["shape"], one["outputs"])
        asked = PlacementSpec(parse_grid(one["grid"]), one["plan"])
        point = {name: one[name] for name in ("machine", "net", "grid", "plan")} | one["settings"]
        steps.append(point | beside(net, asked, point["batch_size"], machine) | {"measured": rounded(seconds)})
    return steps


def cause(row):
    """Why the two predictions of a row differ: one of the words of TEXT, or "" where they are near each other."""
    if abs(row["difference"]) <= NEAR:
        return ""
    far = {
        "an algorithm": row["as_messages"] / row["predicted"],
        "another rank": row["simulated"] / row["longest"],
        "overlap": row["simulated"] / row["alone"],
    }
    if "formula" in row:
        far["measured collectives"] = row["simulated"] / row["formula"]
    best = min(far, key=lambda name: abs(far[name] - 1))
    if abs(far[best] - 1) <= NEAR:
        return best
    together = row.get("formula", max(row["longest"], row["alone"]))
    return "several" if abs(row["as_messages"] / together - 1) <= NEAR else "open"


def document(found):
    """Yield the lines of the document. found: the results of the study."""
    yield TEXT
    if found["steps"]:
        yield f"\n## Steps\n\n{lines(totals(found['steps'], 'simulated', 'predicted'))}\n"
        yield lines([
            {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "ranks": row["ranks"],
             "grid": row["grid"], "ms predicted": 1e3 * row["predicted"], "ms in SMPI": 1e3 * row["simulated"],
             "difference": percent(row["difference"]), "why": cause(row) or "-"}
            for row in found["steps"]
        ])  # fmt: skip
    if found["collectives"]:
        yield COLLECTIVES
        yield lines([
            {"machine": row["machine"], "collective": row["kind"], "ranks": row["ranks"], "KiB": row["bytes"] // 1024,
             "ms predicted": 1e3 * row["predicted"], "SMPI's algorithm": percent(row["simulated"] / row["predicted"] - 1),
             "as messages": percent(row["as_messages"] / row["predicted"] - 1)}
            for row in found["collectives"]
        ])  # fmt: skip
    if found["measured"]:
        yield MEASURED
        yield lines([{"by": name} | row for name, by in (("the cost model", "predicted"), ("SMPI", "simulated"))
                     for row in totals(found["measured"], by, "measured")]) + "\n"  # fmt: skip
        yield lines([
            {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "grid": row["grid"],
             "plan": row["plan"] or "-", "ms measured": 1e3 * row["measured"],
             "predicted": percent(row["predicted"] / row["measured"] - 1),
             "SMPI": percent(row["simulated"] / row["measured"] - 1),
             "difference": percent(row["difference"]), "why": cause(row) or "-"}
            for row in found["measured"]
        ])  # fmt: skip


def totals(rows, by, to):
    """The rows of a table: for each machine how far the seconds `by` are from those called `to`."""
    found = []
    for name in dict.fromkeys(row["machine"] for row in rows):
        far = [abs(row[by] / row[to] - 1) for row in rows if row["machine"] == name]
        found.append({"machine": name, "steps": len(far), "difference, median": percent(median(far), ""),
                      "worst": percent(max(far), ""), "above 10 %": sum(one > NEAR for one in far)})  # fmt: skip
    return found


def percent(number, sign="+"):
    return f"{100 * number:{sign}.1f} %"


def options():
    parser = Parser(prog="study simulators", description="Does another simulator predict the same steps? Starts no job.")
    add = parser.add_argument
    add("--machines", nargs="+", default=MACHINES, choices=machines.names(), help="machine files that come with the project")
    add("--nets", nargs="+", default=tuple(BATCH_SIZES), choices=tuple(BATCH_SIZES), help="networks")
    add("--ranks", type=whole_list, default=RANKS, metavar="P,P,..", help="numbers of ranks")
    add("--measured", metavar="FILE.jsonl", help="also compare the steps that a sweep with --machine measured")
    add("--machine", metavar="FILE.json", help="the machine file with which they were predicted")
    add("--out", default="results/simulators.json", metavar="FILE.json", help="the numbers; the document goes beside, as .md")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        page = writable_beside(args.out, ".md", ("numbers", "document"))
        found = {"program": "simulators"} | {kind: [] for kind in KINDS}
        if Path(args.out).exists():
            found = content_of_file(args.out)
            with fitting(f"{args.out} holds no results of simulators, or damaged ones: give another name"):
                if found["program"] != "simulators":
                    raise ValueError(found["program"])
                list(document(found))
        if (args.measured is None) != (args.machine is None):
            raise ValueError("--measured and --machine belong together: give both, or neither")
        if args.machine:
            machine = machines.read(args.machine)
            found["measured"] = [row for row in found["measured"] if row["machine"] != machine.name]
            found["measured"] += measured_steps(args.measured, machine)
        done = {Point(*(row[name] for name in Point._fields)) for row in found["steps"]}
        wanted = [Point(machine, net, BATCH_SIZES[net], grid)
                  for ranks, machine, net in product(args.ranks, args.machines, args.nets)
                  if ranks <= MOST_RANKS.get(net, ranks) for grid in grids(net, BATCH_SIZES[net], ranks)]  # fmt: skip
        for point in progress([point for point in wanted if point not in done], "steps"):
            asked, machine = PlacementSpec(parse_grid(point.grid), point.plan), machines.read(point.machine)
            found["steps"].append(point._asdict() | beside(published(point.net), asked, point.batch_size, machine))
            write_json(args.out, found)
        done = {(row["machine"], row["ranks"], row["kind"], row["bytes"]) for row in found["collectives"]}
        for one in product(args.machines, [ranks for ranks in args.ranks if ranks in ALONE], SENT, SIZES):
            if one not in done:
                found["collectives"].append(collective(*one))
        write_json(args.out, found)
        text = "\n".join(document(found))
        write_text(page, text + "\n")
    print(f"{terminal(text)}\nnumbers written to {args.out}, the document to {page}")


if __name__ == "__main__":
    run_launcher(main)
