"""Compare predicted training steps with those of another simulator, SMPI of SimGrid, which replays them. Starts no job.

    gridgrad study simulators --ranks 2,4,16 --out simulators.json
    gridgrad study simulators --ranks 2 --measured predictions.jsonl --machine machine.json --out simulators.json

SMPI sends each message of each collective over the links of a platform that is made from the machine file; how traces are made
says `experiments/export/simgrid.py`. Steps that are in the file of the results already are not replayed again. Steps that
`gridgrad sweep predictions.toml` has measured are compared with both simulators.
"""

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from textwrap import fill

from gridgrad.experiments.common.kept_results import fitting
from gridgrad.experiments.common.options import Parser, user_input, whole_list, writable_beside
from gridgrad.experiments.common.parallel_schemes import SCHEMES, grid_of
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.common.tables import counted, lines, rounded, terminal
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
WIDTH = 120  # of the lines of text
MOST = f"{100 * NEAR:g} %"
TITLE = """# Predictions beside SimGrid's

Written by `gridgrad study simulators`. Each step is predicted by the cost model, and replayed by SMPI, the MPI of SimGrid,
from traces that `gridgrad explain --export` writes: the same operations, which take the same seconds, and the same bytes. What
differs is how collectives and messages are simulated: SMPI sends every message of an algorithm over links that are shared.
Collectives of all ranks are SMPI's, with the choices of MPICH; others are written as messages. A step is one alone."""
CAUSES = {
    "an algorithm": "Written as messages, with as many rounds and bytes as the table of collectives says, the collectives of "
    "all ranks take in SMPI what the cost model predicts. SMPI itself takes MPICH's: an all-gather of 512 KiB or more is a "
    "ring, a reduce-scatter of more than 512 KiB is pairwise. Either has ranks - 1 rounds, where the formula counts "
    "log2(ranks) latencies; and in pairwise rounds most bytes go from node to node, where the formula counts that they do so "
    "once for each node. MPICH does the same on a real machine: there the formula, which is that of the best algorithm, is too "
    "low.",
    "another rank": "The cost model looks at the rank that it takes for the one with the most work, and predicts as much as "
    "SMPI for another one. The prediction is too low, and SMPI is right.",
    "overlap": "The cost model lets a collective overlap with computing, as the real program does; in the trace it does not, "
    "because SMPI's replay knows no collectives that do. The trace is too slow.",
    "measured collectives": "The machine file has measured times of collectives, by which the cost model predicts; the "
    "platform of SMPI has one latency and one bandwidth. By these alone, the cost model predicts what SMPI does.",
    "several": "An algorithm, as above, and one of the other causes together.",
    "open": "None of the above explains it.",
}


# ----- a step or a collective, as the cost model and as SMPI predict it


@dataclass(frozen=True)
class Point:
    """A step. machine: the name of a machine file. grid: as text. plan: as `--plan` takes it."""

    machine: str
    net: str
    batch_size: int
    grid: str
    plan: str = "fewest-bytes"


def grids(net, batch_size, ranks):
    """The texts of the grids of so many ranks that are compared for a network by its name."""
    images = any(isinstance(layer, Conv2d) for layer in published(net).leaves())
    schemes = [scheme for scheme in SCHEMES if images or scheme != "height"] if ranks <= ALL_GRIDS else [BATCH, "2d"]
    found = [grid_of(scheme, ranks) for scheme in schemes]
    if STAGES <= ranks <= ALL_GRIDS:
        found.append(f"stage={STAGES},batch={ranks // STAGES}")
    return [grid for grid in found if grid and parse_grid(grid).get(BATCH, 1) <= batch_size]


def compared(point):
    """What is found for a Point, a dict; see `beside`."""
    net, machine = published(point.net), machines.read(point.machine)
    asked = PlacementSpec(parse_grid(point.grid), point.plan)
    return vars(point) | beside(net, asked, point.batch_size, machine)


def beside(net, asked, batch_size, machine):
    """Seconds of a step `predicted` and `simulated` by SMPI, and their relative difference, a dict.

    Where that is not near, it has `as_messages`, the seconds that SMPI simulates where all collectives are written as messages;
    `alone`, those that the cost model predicts where nothing overlaps; `longest`, those of the rank for which it predicts the
    most, where it else looks at one rank alone; and where the machine file has measured collectives, `formula`, those that it
    predicts from latency and bandwidth alone, where nothing overlaps. ValueError if the step can not be replayed.
    """
    predicted, alone, asked = prediction(net, asked, batch_size, machine)
    actions = step_actions(net, asked, batch_size, machine)
    found = {"ranks": len(actions), "predicted": rounded(predicted), "simulated": replayed(actions, machine)}
    found["difference"] = rounded(found["simulated"] / predicted - 1)
    if abs(found["difference"]) > NEAR:
        longest = predicted if asked.grid.get(STAGE, 1) > 1 else longest_step(net, asked, batch_size, machine)
        found |= {"as_messages": replayed(actions, machine, ()), "alone": rounded(alone), "longest": rounded(longest)}
        if machine.collectives:
            found["formula"] = rounded(prediction(net, asked, batch_size, replace(machine, collectives={}))[1])
    return found


def prediction(net, asked, batch_size, machine):
    """(seconds of a step, the same where nothing overlaps, the PlacementSpec with nothing left open).

    The step of a pipeline is one alone, because SMPI replays one; else predictions are of steps that follow one another.
    """
    if asked.grid.get(STAGE, 1) > 1:
        found = pipeline_step_time(net, replace(asked, pipelines=asked.pipelines or Pipelines()), batch_size, machine)
        updates = (next(event.stop for event in row if event.instruction.op == "U") for row in found.played.events)
        seconds = max(updates)
        return seconds, seconds, replace(asked, pipelines=Pipelines(found.pipeline, found.micro_batches, found.cuts))
    cost = cost_of_slowest_rank(net, asked, batch_size, machine)
    alone = sum(cost.seconds_of(replace(work, overlaps=())) for work in cost.works)
    return cost.seconds, alone, replace(asked, plan=cost.placed.plan)


def longest_step(net, asked, batch_size, machine):
    """The most seconds that the cost model predicts for any rank."""
    sizes = {axis: asked.grid.get(axis, 1) for axis in AXES}
    grids = (GridDescription(sizes, place, machine.node["ranks"]) for place in places(sizes))
    return max(Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners).seconds for grid in grids)


def replayed(actions, machine, native=simgrid.NATIVE):
    """Seconds of a step as SMPI simulates it. native: see `simgrid.write`."""
    with tempfile.TemporaryDirectory(prefix="gridgrad-traces-") as folder:
        simgrid.write(folder, actions, machine, native)
        return simgrid.replayed(folder, len(actions), machine, TIMEOUT)


def collective(name, ranks, kind, nbytes):
    """Seconds of one collective of all ranks, a dict: predicted, SMPI's own, and written as messages.

    name: of a machine file. nbytes: of the whole array.
    """
    machine, sent = machines.read(name), SENT[kind] * (nbytes // ranks) * (ranks - 1)
    group = GridDescription({MODEL: ranks}, None, machine.node["ranks"]).group(MODEL)
    actions = [[Collective(kind, kind, tuple(range(ranks)), place, sent)] for place in range(ranks)]
    return {
        "machine": name, "kind": kind, "ranks": ranks, "bytes": nbytes,
        "predicted": rounded(machine.collective_seconds(kind, group, ranks, sent)),
        "simulated": replayed(actions, machine), "as_messages": replayed(actions, machine, ()),
    }  # fmt: skip


def measured_steps(path, machine):
    """What `beside` finds for each point that a sweep has measured and predicted for a Machine, and the measured seconds: an
    iterator. ValueError at once, before anything is simulated, if there is none."""
    found = records.read(path)
    priced = {records.key_of(one): one for one in found if one.get("predicted") and one["machine"] == machine.name}
    timed = {records.key_of(row.runs[0]): row.seconds.value for row in rows_of(found) if row.seconds and not row.is_predicted}
    pairs = [(one, timed[key]) for key, one in priced.items() if key in timed and parse_grid(one["grid"]).get(STAGE, 1) == 1]
    if not pairs:
        raise ValueError(f"{path} has no point that was measured and predicted for '{machine.name}': give the file "
                         "of a sweep with this --machine")  # fmt: skip

    def step(one, seconds):
        net = network_names.build(one["net"], one["shape"], one["outputs"])
        asked = PlacementSpec(parse_grid(one["grid"]), one["plan"])
        point = {name: one[name] for name in ("machine", "net", "grid", "plan")} | one["settings"]
        return point | beside(net, asked, one["settings"]["batch_size"], machine) | {"measured": rounded(seconds)}

    return itertools.starmap(step, pairs)


# ----- the document


def cause(row):
    """Why the two predictions of a row differ: a key of CAUSES, or "" where they are near each other."""
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
    yield TITLE
    for kind, part in (("steps", of_steps), ("collectives", of_collectives), ("measured", of_measured)):
        if found[kind]:
            yield from part(found[kind])


def of_steps(rows):
    far, ranks = [abs(row["difference"]) for row in rows], [row["ranks"] for row in rows]
    yield "\n## Steps\n"
    yield fill(
        f"{len(rows)} steps on {min(ranks)} to {max(ranks):,} ranks: the median difference is {percent(median(far), '')}, the "
        f"worst {percent(max(far), '')}. It is above {MOST} for {counted(sum(one > NEAR for one in far), 'step')}.", WIDTH,
    )  # fmt: skip
    yield ""
    yield lines([totals(machine, [row for row in rows if row["machine"] == machine]) for machine in names(rows)])
    yield ""
    yield lines([
        {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "ranks": row["ranks"],
         "grid": row["grid"], "ms predicted": 1e3 * row["predicted"], "ms in SMPI": 1e3 * row["simulated"],
         "difference": percent(row["difference"]), "why": cause(row) or "-"}
        for row in rows
    ])  # fmt: skip
    yield from reasons(rows, f"\n## Differences above {MOST}\n")


def totals(name, rows):
    """The row of a machine in the first table."""
    far = [abs(row["difference"]) for row in rows]
    return {
        "machine": name, "steps": len(rows), "difference, median": percent(median(far), ""), "worst": percent(max(far), ""),
        f"above {MOST}": sum(one > NEAR for one in far),
    }  # fmt: skip


def reasons(rows, title):
    """Yield a title and, for each cause of a difference between the two predictions, what it is; nothing if all are near."""
    causes = Counter(filter(None, map(cause, rows)))
    if causes:
        yield title
    for name in filter(causes.get, CAUSES):
        yield fill(f"- **{name}**, {counted(causes[name], 'step')}: {CAUSES[name]}", WIDTH, subsequent_indent="  ")


def of_collectives(rows):
    yield "\n## One collective of all ranks\n"
    text = (
        "How much longer one takes in SMPI than the formula says, with the algorithms that SMPI takes as MPICH would, and "
        "written as messages. Reduce-scatters of 512 KiB or less are by recursive doubling in SMPI, which sends more bytes "
        "than MPICH's recursive halving: there SMPI is wrong."
    )
    yield f"{fill(text, WIDTH)}\n"
    yield lines([
        {"machine": row["machine"], "collective": row["kind"], "ranks": row["ranks"], "KiB": row["bytes"] // 1024,
         "ms predicted": 1e3 * row["predicted"], "SMPI's algorithm": percent(row["simulated"] / row["predicted"] - 1),
         "as messages": percent(row["as_messages"] / row["predicted"] - 1)}
        for row in rows
    ])  # fmt: skip


def of_measured(rows):
    yield "\n## Measured steps\n"
    for machine in names(rows):
        of_machine = [row for row in rows if row["machine"] == machine]
        for name, key in (("the cost model", "predicted"), ("SMPI", "simulated")):
            far = [abs(row[key] / row["measured"] - 1) for row in of_machine]
            middle, worst = percent(median(far), ""), percent(max(far), "")
            yield f"- {machine}: {name} was off by {middle} in the median of {counted(len(far), 'step')}, at worst by {worst}"
    yield ""
    yield lines([
        {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "grid": row["grid"],
         "plan": row["plan"] or "-", "ms measured": 1e3 * row["measured"],
         "predicted": percent(row["predicted"] / row["measured"] - 1),
         "SMPI": percent(row["simulated"] / row["measured"] - 1),
         "difference": percent(row["difference"]), "why": cause(row) or "-"}
        for row in rows
    ])  # fmt: skip
    yield from reasons(rows, f"\nThe difference is between SMPI's time and the predicted one. Why it is above {MOST}:\n")


def names(rows):
    """The machines of some rows, each once, in their order."""
    return list(dict.fromkeys(row["machine"] for row in rows))


def percent(number, sign="+"):
    return f"{100 * number:{sign}.1f} %"


# ----- the program


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


def earlier(path):
    """The results in a file, or none. ValueError if it holds something else."""
    if not Path(path).exists():
        return {"program": "simulators", **{kind: [] for kind in KINDS}}
    found = content_of_file(path)
    if not isinstance(found, dict) or found.keys() != {"program", *KINDS} or found["program"] != "simulators":
        raise ValueError(f"{path} holds no results of simulators: give another name")
    with fitting(f"{path} holds results of simulators that are damaged: give another name"):
        list(document(found))
    return found


def wanted(args):
    """Yield the Points that are asked for."""
    for ranks, machine, net in product(args.ranks, args.machines, args.nets):
        for grid in grids(net, BATCH_SIZES[net], ranks) if ranks <= MOST_RANKS.get(net, ranks) else ():
            yield Point(machine, net, BATCH_SIZES[net], grid)


def main():
    args = options().parse_args()
    with user_input():
        beside = writable_beside(args.out, ".md", ("numbers", "document"))
        found, points = earlier(args.out), list(wanted(args))
        if (args.measured is None) != (args.machine is None):
            raise ValueError("--measured and --machine belong together: give both, or neither")
        machine = args.machine and machines.read(args.machine)
        measured = measured_steps(args.measured, machine) if machine else ()
        done = {Point(*(row[name] for name in Point.__match_args__)) for row in found["steps"]}
        for point in progress([point for point in points if point not in done], "steps"):
            found["steps"].append(compared(point))
            write(args.out, beside, found)
        done = {(row["machine"], row["ranks"], row["kind"], row["bytes"]) for row in found["collectives"]}
        for one in product(args.machines, [ranks for ranks in args.ranks if ranks in ALONE], SENT, SIZES):
            if one not in done:
                found["collectives"].append(collective(*one))
        if machine:
            found["measured"] = [row for row in found["measured"] if row["machine"] != machine.name]
            found["measured"] += measured
        write(args.out, beside, found)
    print(terminal("\n".join(document(found))))
    print(f"numbers written to {args.out}, the document to {beside}")


def write(path, beside, found):
    """Write the numbers and the document."""
    write_json(path, found)
    write_text(beside, "\n".join(document(found)) + "\n")


if __name__ == "__main__":
    run_launcher(main)
