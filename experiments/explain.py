"""Print the plan that the planner chooses for a network, its predicted cost, and why other plans are slower. Starts no job.

    gridgrad explain --net vgg16 --batch-size 256 --ranks 16384 --machine cori-haswell
    gridgrad explain --net mlp:4096,4096,4096,relu --ranks 4 --grid stage=4 --draw schedule.png
    gridgrad explain --net vgg16 --batch-size 256 --ranks 64 --machine cori-haswell --export traces --format simgrid

All seconds are *predicted*: by the cost model, for the machine of the file (`parallel/prediction/machine.py`,
`gridgrad calibrate`).
"""

import re
from functools import partial

from tqdm import tqdm

from gridgrad.experiments.common import report as report_files
from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.common.options import (
    Parser,
    check_writable,
    number,
    number_list,
    of_parallelize,
    position_list,
    shares_of,
    user_input,
    whole,
    whole_list,
)
from gridgrad.experiments.common.parallel_schemes import MOST_RANKS
from gridgrad.experiments.common.predicted_cost import cost_on
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.tables import columns, counted, table
from gridgrad.experiments.common.train_setup import check_grid
from gridgrad.experiments.parts import explain_export, explain_pipeline
from gridgrad.experiments.parts.explain_layers import layer_rows
from gridgrad.experiments.parts.explain_plan import axes_in_words, why_lost
from gridgrad.experiments.plots.pipeline import draw_pipelines, measured, predicted
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.grid.process_grid import MODEL, STAGE, check_places, parse_grid
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.partitioning.good_partition import is_partition, owners_of_plan
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.schedule_names import to_csv
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import BATCH_SIZE, Planner


def options():
    parser = Parser(prog="explain", description="Print the plan that the planner chooses, what it costs, and why others lost.")
    add = parser.add_argument
    add("--net", default="vgg16", help=network_names.HELP)
    add("--shape", type=whole_list, metavar="SHAPE", help="shape of a sample: features, or HEIGHT,WIDTH,CHANNELS (default: as "
        "published)")  # fmt: skip
    add("--outputs", type=whole(1), help="number of classes (default: 1000 for images of 224 pixels, else 10)")
    add("--batch-size", type=whole(1), default=BATCH_SIZE, metavar="B", help="samples in the global minibatch")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add("--ranks", type=whole(1, MOST_RANKS), default=2, metavar="P", help=f"number of ranks, at most {MOST_RANKS}")
    add("--machine", default="cori-haswell", metavar="NAME", help=f"{machine.HELP}: {', '.join(machine.names())}")
    add("--memory", type=number(above=0), metavar="GIB", help="memory that a rank may use (default: its share of the memory "
        "of a node)")  # fmt: skip
    add("--grid", help="plan for this grid alone, such as batch=4,model=2")
    add("--shares", metavar="W,W,..", help="how unevenly the ranks of an axis share the work: numbers by axis, such as "
        "model=3:2,batch=2:1, or one for each rank of the one axis that has several (default: equal shares)")  # fmt: skip
    add("--speeds", type=number_list, metavar="W,W,..", help="speeds of the ranks, such as 3,2,1.5,1, where 1 is that of the "
        "machine file: print how they would share each axis of --grid by three rules: evenly, by constant speeds, by speed as "
        "a function of the share")  # fmt: skip
    add("--plan", help=f"price this plan alone (default: what the planner chooses); {without_default('plan')}")
    add("--pipeline", metavar="NAME", help="price pipelines of this schedule alone (default: what the planner chooses); "
        f"{without_default('pipeline')}")  # fmt: skip
    add("--micro-batches", type=whole(1), metavar="M", help="parts into which a pipeline cuts a minibatch (default: what the "
        "planner chooses)")  # fmt: skip
    add("--cuts", type=position_list, metavar="N,N,..", help="positions of the layers with which new chunks of a pipeline "
        "begin (default: what the planner chooses)")  # fmt: skip
    add("--draw", metavar="FILE.png", help="draw the predicted schedule of the pipeline to this file")
    add("--trace", metavar="FILE.json", help="draw the steps below it that are in this timeline, which train --trace wrote")
    add("--csv", metavar="FILE.csv", help="write the schedule of the pipeline to this file, which --pipeline can read")
    add("--json", metavar="FILE.json", help="also write all numbers to this file")
    add("--export", metavar="FOLDER", help="write a step of this plan for another simulator to this folder, new or empty")
    add("--format", default="simgrid", choices=tuple(explain_export.FORMATS), help="of --export: time-independent traces of "
        "SimGrid with a platform file; a schedule in GOAL, of LogGOPSim and ATLAHS; or execution traces of Chakra, which "
        "ASTRA-sim reads")  # fmt: skip
    add("--others", type=whole(0), default=5, metavar="N", help="number of runners-up to print")
    return parser


def without_default(name):
    """The text of an option of train without its default, in place of which the planner chooses here."""
    return re.sub(r" \(default: [^)]*\)", "", of_parallelize(name))


def unequal(chosen, args):
    """The lines about the shares of ranks with the speeds of --speeds. chosen: the Candidate. ValueError if they do not fit."""
    if not args.grid:
        raise ValueError("--speeds are those of the ranks of a grid: name it with --grid, such as model=4")
    if len(args.speeds) != args.ranks:
        raise ValueError(f"--speeds has {len(args.speeds)} numbers for {args.ranks} ranks: give one for each")
    if chosen.owners:
        raise ValueError("--speeds are not for a partition: give --shares, in proportion to which its parts are made")
    if chosen.pipelined:
        raise ValueError("--speeds are not for a pipeline: leave the axis stage out of --grid")
    cost = chosen.cost
    found = predicted_shares(cost.net, chosen.sizes, cost.placed.plan, args.batch_size, cost.machine, args.speeds)
    return ["", f"Ranks of the speeds {', '.join(f'{speed:g}' for speed in args.speeds)}: predicted", *found.lines()]


def planner(args):
    """The Planner that the options name. ValueError for what does not fit."""
    net = published(args.net, args.shape, args.outputs, args.dtype)
    grid = parse_grid(args.grid) if args.grid else None
    if grid:
        check_places(args.grid, grid, args.ranks)
        check_grid(grid, net)
    pipelines = Pipelines(args.pipeline, args.micro_batches, args.cuts)
    if grid and grid.get(STAGE, 1) == 1 and (args.micro_batches or pipelines.is_asked_for):
        raise ValueError("--pipeline, --micro-batches and --cuts are for a grid with the axis stage, such as --grid stage=2")
    memory = args.memory and args.memory * 2**30
    if args.shares == "auto":
        raise ValueError("--shares auto times the ranks of a job, and there is none here: give numbers, or see --speeds")
    shares = shares_of(args.shares, grid) if args.shares else None
    partitioned = args.plan and is_partition(args.plan)
    if partitioned and not grid:
        raise ValueError(f"--plan {args.plan} is for a grid that is named: add --grid, such as --grid model={args.ranks}")
    speeds = shares and shares.get(MODEL)
    partition = partial(owners_of_plan, args.plan if partitioned else HYPERGRAPH, net, speeds=speeds)
    asked = PlacementSpec(grid, HYPERGRAPH if partitioned else args.plan, shares, None, pipelines, memory)
    return Planner(net, args.ranks, args.batch_size, machine.read(args.machine), asked, partition)


def result(chosen, others, args):
    """What --json writes, and most of what is printed, a dict. chosen, others: Candidates."""
    cost = chosen.cost
    alone = cost_on(cost.net, "batch=1", args.batch_size, cost.machine)
    bound, speedup = lower_bound(chosen, others), alone.seconds / chosen.seconds
    rows = explain_pipeline.chunk_rows(chosen.pipelined, cost.net) if chosen.pipelined else layer_rows(cost)
    return {
        "predicted": True, "net": args.net, "batch_size": args.batch_size, "dtype": args.dtype, "ranks": args.ranks,
        "machine": cost.machine.name, "grid": chosen.grid, "plan": chosen.plan, "shares": args.shares, **chosen.pipelining,
        "seconds": chosen.seconds, "lower_bound": bound, "gap": chosen.seconds / bound - 1, "parts": chosen.step.parts,
        "one_rank": {"seconds": alone.seconds, "memory": alone.prediction.memory}, "speedup": speedup,
        "efficiency": speedup / args.ranks, "memory": chosen.step.memory, "layers": rows,
        "others": [
            {"grid": other.grid, "plan": plan_of(other), "seconds": other.seconds, "reason": why_lost(other, chosen)}
            for other in others if other.cost
        ],
    }  # fmt: skip


def lower_bound(chosen, others):
    """Seconds below which no step of the plans that were considered is. chosen, others: Candidates.

    Of a partition or a pipeline only what was played is considered, unless it is the one that is chosen.
    """
    return min(chosen.bound, *(one.seconds if one.played else one.bound for one in others), chosen.seconds)


def report(chosen, others, found, args):
    """The lines that are printed. chosen, others: Candidates. found: their `result`."""
    cost, one = chosen.cost, found["one_rank"]
    yield f"{args.net}, batch {args.batch_size}, on {counted(args.ranks, 'rank')} of {cost.machine.name}: predicted"
    yield f"grid {chosen.grid}, plan {shortened(chosen.plan)}" + (f", shares {args.shares}" if args.shares else "")
    if chosen.pipelined:
        yield explain_pipeline.in_words(chosen.pipelined)
    yield from axes_in_words(chosen.sizes, cost)
    yield ""
    yield f"step         {milliseconds(chosen.seconds)}" + overlapped(chosen)
    yield f"speedup      {cell(found['speedup'])} over one rank, which takes {milliseconds(one['seconds'])}: "\
          f"an efficiency of {found['efficiency']:.0%}"  # fmt: skip
    yield f"memory       {chosen.step.memory / 2**30:.3g} GiB a rank for the arrays of a step; one rank alone needs "\
          f"{one['memory'] / 2**30:.3g}"  # fmt: skip
    grids = len({candidate.grid for candidate in (chosen, *others)})
    where = f"any of the {grids} grids" if grids > 1 else "this grid"
    yield f"lower bound  {milliseconds(found['lower_bound'])} with any plan on {where}: a gap of {found['gap']:.1%}"
    yield ""
    yield from of_pipeline(chosen) if chosen.pipelined else of_layers(chosen, found["layers"])
    yield ""
    rows = [{"runner-up": other["grid"], "plan": other["plan"], "ms": other["seconds"] * 1e3,
             "why it lost": other["reason"]} for other in found["others"][: args.others]]  # fmt: skip
    if rows:
        yield table(rows)
    rest = sum(other.cost is None for other in others)
    if rest:
        yield f"{rest} other grids were given up early: lower bounds of their times are above the times of the plans shown"
    if written := [path for path in (args.draw, args.csv, args.json) if path]:
        yield f"written: {', '.join(written)}"
    if args.export:
        yield explain_export.in_words(args.format, args.export)
    yield f"options of train: {' '.join(options_of_train(chosen, args))}"


def overlapped(chosen):
    """What else is to say of the time of a step, in words."""
    if chosen.played or chosen.cost.grid.size == 1:
        return ""
    seconds = chosen.cost.overlapped_seconds
    return f"; at best {milliseconds(seconds)} with --reduction overlap, which sums gradients during backward"


def milliseconds(seconds):
    return f"{cell(1e3 * seconds)} ms"


def options_of_train(chosen, args):
    """The grid, the plan, the shares and the pipeline of a Candidate as options of train."""
    yield from ("--grid", chosen.grid)
    if chosen.sizes.get(MODEL, 1) > 1:
        yield from ("--plan", args.plan if chosen.owners and args.plan else chosen.plan)  # a partition may be that of a file
    if args.shares:
        yield from ("--shares", args.shares)
    for name, value in chosen.pipelining.items():
        text = ",".join(map(str, value)) if name == "cuts" else str(value)
        yield from (f"--{name.replace('_', '-')}", text)


def of_layers(chosen, rows):
    """The lines about the step of a Candidate, layer by layer. rows: those of `layer_rows`."""
    known = chosen.cost.is_even
    shown = [
        {
            "layer": row["layer"], "": ", ".join(dict.fromkeys(row["kinds"])), "placement": row["placement"],
            "GFLOP": row["flops"] / 1e9, "MB sent": row["bytes"] / 1e6,
            "MB at least": row["bound_bytes"] / 1e6 if known else None, "ms": row["seconds"] * 1e3,
        }
        for row in rows
    ]  # fmt: skip
    sums = {name: sum(row[name] for row in shown) for name in ("GFLOP", "MB sent", *["MB at least"] * known)}
    yield table(
        [*shown, dict.fromkeys(shown[0]) | {"layer": "a step", "": "", "placement": ""} | sums | {"ms": chosen.seconds * 1e3}]
    )
    yield "A layer with weights stands for what follows it, too. What is sent at least: by any placement with even shares."
    yield from of_all_ranks(chosen) if chosen.played else of_one_rank()


def of_pipeline(chosen):
    """The lines about the step of a Candidate that is a pipeline."""
    found = chosen.pipelined
    yield columns(list(explain_pipeline.of_chunks(found, chosen.cost.net)))
    yield "FLOP, megabytes and times are those of one micro-batch, on the rank with the most work of each stage."
    yield ""
    yield columns(list(explain_pipeline.of_stages(found)))
    yield f"In a step a rank is idle for {1 - found.use:.0%} of the time in the mean."
    yield "The sums of gradients count in full. The schedule from its beginning, with time to the right:"
    yield ""
    yield explain_pipeline.drawing(found)


def plan_of(candidate):
    """The plan and the pipeline of a Candidate, in few words."""
    more = f"; {explain_pipeline.in_words(candidate.pipelined)}" if candidate.pipelined else ""
    return shortened(candidate.plan) + more


def of_one_rank():
    """The lines about a step in which all ranks do about the same."""
    yield "MB of a layer include the sum of its gradients, whose time stands in the row of all gradients."
    yield "FLOP, bytes sent and times are those of the rank with the most work. The time of a step counts the sums of gradients"
    yield "in full, as if they began after backward (--reduction plain)."


def of_all_ranks(chosen):
    """The lines about the step of a Candidate whose ranks have different work."""
    yield "MB of a layer include the sum of its gradients, whose time stands in the row of all gradients."
    yield "FLOP, bytes sent and times are those of the rank that computes the most."
    yield ""
    yield table([
        {"rank along model": place, "ms computing": rank.busy * 1e3, "ms waiting": rank.waiting * 1e3,
         "ms communicating": rank.communicating * 1e3, "MB sent": rank.bytes / 1e6, "messages": rank.messages}
        for place, rank in enumerate(chosen.step.ranks)
    ])  # fmt: skip
    yield "In a step the ranks wait for each other. The memory is that of the rank that needs the most."


def shortened(plan):
    """A plan in which words that repeat are counted."""
    runs = []
    for word in plan.split(","):
        if runs and runs[-1][0] == word:
            runs[-1][1] += 1
        else:
            runs.append([word, 1])
    return ", ".join(f"{count} {word}" if count > 1 else word for word, count in runs)


def draw(chosen, args):
    """Write the figure of --draw. ValueError if there is nothing to draw."""
    found = chosen.pipelined
    if not found:
        raise ValueError("--draw is for a pipeline, and the planner has chosen none: name one with --grid, such as stage=2")
    updates = len(found.ranks) if schedule_names.parse(found.pipeline).in_flight else 1
    runs = [predicted(found, updates), *([measured(args.trace, updates)] if args.trace else [])]
    title = f"{args.net}, batch {args.batch_size}, grid {chosen.grid}, {explain_pipeline.in_words(found)}"
    draw_pipelines(runs, f"{title}, predicted for {chosen.cost.machine.name}", args.draw)


def write_csv(chosen, path):
    """Write the file of --csv. ValueError if there is no pipeline."""
    if not chosen.pipelined:
        raise ValueError("--csv is for a pipeline, and the planner has chosen none: name one with --grid, such as stage=2")
    if not chosen.pipelined.schedule.synchronous:
        raise ValueError("--csv is for schedules with one update in a step, which a file can hold: not for async:K")
    report_files.write_text(path, to_csv(chosen.pipelined.schedule))


def main():
    args = options().parse_args()
    with user_input():
        for path in filter(None, (args.draw, args.csv, args.json)):
            check_writable(path)
        if args.export:
            explain_export.check(args.export, args.format)
        if args.trace and not args.draw:
            raise ValueError("--trace needs --draw FILE.png, into which it is drawn")
        search = planner(args)
        with tqdm(total=search.steps, desc="planning, at most", unit=" steps", delay=2, leave=False, disable=None) as bar:
            chosen, others = search.best(max(5, args.others), bar.update)
        lines = unequal(chosen, args) if args.speeds else []
        if args.draw:
            draw(chosen, args)
        if args.csv:
            write_csv(chosen, args.csv)
        if args.export:
            explain_export.write(chosen, search.shares, args.format, args.export)
    found = result(chosen, others, args)
    if args.json:
        report_files.write_json(args.json, found)
    print("\n".join([*report(chosen, others, found, args), *lines]))


if __name__ == "__main__":
    run_launcher(main)
