"""Print the plan that the planner chooses for a network, its predicted cost, and why other plans are slower. Starts no job.

    gridgrad explain --net vgg16 --batch-size 256 --ranks 16384 --machine cori-haswell
    gridgrad explain --net vgg16 --batch-size 4096 --nodes 256 --gpus 4
    gridgrad explain --net mlp:4096,4096,4096,relu --ranks 4 --grid stage=4 --out schedule.png
    gridgrad explain --net vgg16 --batch-size 256 --ranks 64 --machine cori-haswell --export traces --format simgrid

All seconds are *predicted*: by the cost model, for the machine of the file (docs/prediction.md) or of three numbers.
"""

from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common import options as command_line
from gridgrad.experiments.common import report as report_files
from gridgrad.experiments.common.options import Parser, number, number_list, position_list, whole, whole_list
from gridgrad.experiments.common.parallel_schemes import MOST_RANKS
from gridgrad.experiments.common.problems import add_problem, published
from gridgrad.experiments.common.tables import cell, counted, table
from gridgrad.experiments.common.train_setup import check_grid
from gridgrad.experiments.export import graphs, simgrid
from gridgrad.experiments.export.actions import step_actions
from gridgrad.experiments.parts import explain_map, explain_report
from gridgrad.experiments.parts.explain_report import milliseconds, plan_in_words, why_lost
from gridgrad.nn.files.whole_files import folder_written_whole, resolved
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.grid.process_grid import AXES, BATCH, MODEL, STAGE, check_places, parse_grid
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.partitioning.good_partition import is_partition, owners_of_plan
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH
from gridgrad.parallel.plans.plans import FEWEST_BYTES
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import BATCH_SIZE, Planner, too_large

RUNNERS_UP = 5  # that are printed
KINDS = {".json": "json", ".csv": "csv", ".png": "draw", ".pdf": "draw", ".svg": "draw"}  # of the files of --out
CPUS, GPUS = "cori-haswell", "perlmutter-a100"  # the machines where none is named
SHORT = "net", "batch_size", "ranks", "nodes", "gpus", "machine", "memory", "grid", "plan", "out", "map"  # in --help


def options():
    parser = Parser(prog="explain", short=SHORT,
                    description="Print the plan that the planner chooses, what it costs, and why others lost.")  # fmt: skip
    add_problem(parser, "vgg16", batch_size=BATCH_SIZE)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add = parser.add_argument_group("machine").add_argument
    add("--ranks", type=whole(1, MOST_RANKS), metavar="P", help=f"number of ranks, at most {MOST_RANKS} (default: 2)")
    add("--nodes", type=whole(1), metavar="N", help="in place of --ranks: number of nodes, full of ranks")
    add("--ranks-per-node", type=whole(1), metavar="K", help="ranks of a node (default: those of the machine)")
    add("--gpus", type=whole(1), metavar="K", help="GPUs of a node, each a rank with its own memory")
    add("--machine", metavar="NAME", help=f"{machine.HELP}: {', '.join(machine.names())} (default: {CPUS}, with --gpus {GPUS})")
    add("--memory", type=number(above=0), metavar="GIB", help="memory that a rank may use (default: its share of a node's)")
    add = parser.add_argument_group("what is priced").add_argument
    add("--grid", help="plan for this grid alone, such as batch=4,model=2")
    add("--shares", metavar="W,W,..", help="uneven shares of the ranks by axis, such as model=3:2,batch=2:1, or of one axis")
    add("--speeds", type=number_list, metavar="W,W,..", help="print how ranks of these speeds would share each axis of --grid")
    add("--plan", help="price this plan alone (default: what the planner chooses); see gridgrad help plan")
    add("--pipeline", metavar="NAME", help="price this schedule alone (default: the fastest); see gridgrad help pipeline")
    add("--micro-batches", type=whole(1), metavar="M", help="parts of a minibatch in a pipeline (default: the fastest)")
    add("--cuts", type=position_list, metavar="N,N,..", help="positions of the layers with which chunks of a pipeline begin")
    add = parser.add_argument_group("files").add_argument
    add("--out", action="append", default=[], metavar="FILE", help="also write all numbers to FILE.json, the schedule of a "
        "pipeline to FILE.csv, which --pipeline can read, or its drawing to FILE.png, .pdf, .svg; may be repeated")  # fmt: skip
    add("--trace", metavar="FILE.json", help="draw the steps below it that are in this timeline, which train --trace wrote")
    add("--export", metavar="FOLDER", help="write a step of this plan for another simulator to this folder, new or empty")
    add("--format", default="simgrid", choices=tuple(FORMATS), help="of --export: of SimGrid, LogGOPSim or ASTRA-sim")
    add("--map", metavar="FILE.png", help="instead draw which of one rank, batch, model and 2-D is the fastest; --net has W")
    add("--widths", type=whole_list, default=[2**k for k in range(5, 14)], metavar="N,N,..", help="in place of W, of --map")
    add("--batch-sizes", type=whole_list, default=[2**k for k in range(3, 17)], metavar="B,B,..", help="of --map")
    return parser


def machine_of(args):
    """The Machine that the options describe; `args.ranks` is completed. ValueError for what does not fit."""
    if args.gpus and args.ranks_per_node or args.ranks and args.nodes:
        raise ValueError("--gpus is --ranks-per-node, and --nodes stands in place of --ranks: give one of the two")
    found = machine.read(args.machine or (GPUS if args.gpus else CPUS))
    per_node = args.gpus or args.ranks_per_node or found.node["ranks"]
    args.ranks = args.ranks or (args.nodes * per_node if args.nodes else 2)
    if args.ranks > MOST_RANKS:
        raise ValueError(f"{args.nodes} nodes of {per_node} ranks are too many: at most {MOST_RANKS} ranks")
    return replace(found, node=machine.node_of(found, per_node, bool(args.gpus)))


def planner(args, on):
    """The Planner that the options name, for the Machine `on`. ValueError for what does not fit."""
    net, grid = published(args.net, args.shape, args.outputs, args.dtype), parse_grid(args.grid) if args.grid else None
    if grid:
        check_places(args.grid, grid, args.ranks)
        check_grid(grid, net)
    pipelines = Pipelines(args.pipeline, args.micro_batches, args.cuts)
    if grid and grid.get(STAGE, 1) == 1 and (args.micro_batches or pipelines.is_asked_for):
        raise ValueError("--pipeline, --micro-batches and --cuts are for a grid with the axis stage, such as --grid stage=2")
    if args.shares == "auto":
        raise ValueError("--shares auto times the ranks of a job, and there is none here: give numbers, or see --speeds")
    shares = command_line.shares_of(args.shares, grid) if args.shares else None
    partitioned = args.plan and is_partition(args.plan)
    if partitioned and not grid:
        raise ValueError(f"--plan {args.plan} is for a grid that is named: add --grid, such as --grid model={args.ranks}")
    owners = partial(owners_of_plan, args.plan if partitioned else HYPERGRAPH, net, speeds=shares and shares.get(MODEL))
    memory = args.memory and args.memory * 2**30
    asked = PlacementSpec(grid, HYPERGRAPH if partitioned else args.plan, shares, None, pipelines, memory)
    return Planner(net, args.ranks, args.batch_size, on, asked, owners)


def pure_grids(search):
    """{"batch", "model": the Candidate with all ranks on that axis, as train has it, whether or not it fits the memory}."""
    found = {}
    for axis in (BATCH, MODEL) if search.ranks > 1 else ():
        # The fastest plan may hold whole weights on all ranks, and then is no model parallelism; this one splits them.
        asked = PlacementSpec(dict.fromkeys(AXES, 1) | {axis: search.ranks}, FEWEST_BYTES, memory=inf)
        found[axis], _ = Planner(search.net, search.ranks, search.batch_size, search.machine, asked).best(0)
    return found


def result(chosen, others, pure, args):
    """The numbers of --out, and most of what is printed, a dict. chosen, others: Candidates. pure: of `pure_grids`."""
    cost = chosen.cost
    alone = cost_of_slowest_rank(cost.net, PlacementSpec(parse_grid("batch=1"), "fewest-bytes"), args.batch_size, cost.machine)
    # Of a partition or a pipeline only what was played is considered, unless it is the one that is chosen.
    bound = min(chosen.bound, *(one.seconds if one.played else one.bound for one in others), chosen.seconds)
    speedup = alone.seconds / chosen.seconds
    chunks = chosen.pipelined and explain_report.chunk_rows(chosen.pipelined, cost.net)
    return {
        "predicted": True, "net": args.net, "batch_size": args.batch_size, "dtype": args.dtype, "ranks": args.ranks,
        "machine": cost.machine.name, "grid": chosen.grid, "plan": chosen.plan, "shares": args.shares, **chosen.pipelining,
        "seconds": chosen.seconds, "lower_bound": bound, "gap": chosen.seconds / bound - 1, "parts": chosen.step.parts,
        "one_rank": {"seconds": alone.seconds, "memory": alone.prediction.memory}, "speedup": speedup,
        "efficiency": speedup / args.ranks, "memory": chosen.step.memory,
        "pure": {axis: {"grid": one.grid, "plan": one.plan, "seconds": one.seconds, "memory": one.step.memory}
                 for axis, one in pure.items()},
        "layers": chunks or explain_report.layer_rows(cost),
        "others": [{"grid": one.grid, "plan": plan_in_words(one), "seconds": one.seconds, "reason": why_lost(one, chosen)}
                   for one in others if one.cost],
    }  # fmt: skip


def report(chosen, others, found, memory, args):
    """The lines that are printed. chosen, others: Candidates. found: their `result`. memory: bytes that a rank may use."""
    cost, one = chosen.cost, found["one_rank"]
    words, _, pipeline = plan_in_words(chosen).partition("; ")
    yield f"{args.net}, batch {args.batch_size}, on {counted(args.ranks, 'rank')} of {cost.machine.name}: predicted"
    yield f"grid {chosen.grid}, plan {words}" + (f", shares {args.shares}" if args.shares else "")
    yield from filter(None, [pipeline])
    yield from explain_report.axes_in_words(chosen.sizes, cost)
    yield f"\nstep         {milliseconds(chosen.seconds)}"
    if not chosen.played and cost.grid.size > 1:
        yield f"overlapped   {milliseconds(cost.overlapped_seconds)} at best, with --reduction overlap"
    for axis, pure in found["pure"].items():
        words = milliseconds(pure["seconds"]), axis == MODEL and f"plan {pure['plan']}", too_large(pure["memory"], memory)
        yield f"pure {axis}   {', '.join(filter(None, words))}"
    yield f"one rank     {milliseconds(one['seconds'])}, {one['memory'] / 2**30:.3g} GiB"
    yield f"speedup      {cell(found['speedup'])}, an efficiency of {found['efficiency']:.0%}"
    yield f"memory       {found['memory'] / 2**30:.3g} GiB a rank for the arrays of a step"
    grids = counted(len({candidate.grid for candidate in (chosen, *others)}), "grid")
    yield f"lower bound  {milliseconds(found['lower_bound'])} with any plan on {grids}: a gap of {found['gap']:.1%}\n"
    of_chunks = explain_report.of_pipeline(chosen.pipelined, cost.net) if chosen.pipelined else None
    yield from of_chunks or explain_report.of_layers(chosen, found["layers"])
    yield ""
    if rows := found["others"][:RUNNERS_UP]:
        yield table([{"runner-up": other["grid"], "plan": other["plan"], "ms": other["seconds"] * 1e3,
                      "why it lost": other["reason"]} for other in rows])  # fmt: skip
    if rest := sum(other.cost is None for other in others):
        yield f"{rest} other grids were given up early: lower bounds of their times are above the times of the plans shown"
    if args.out:
        yield f"written: {', '.join(args.out)}"
    if args.export:
        yield f"a step was written to {args.export}: {FORMATS[args.format][2].format(args.export)}"
    yield f"options of train: {' '.join(options_of_train(chosen, args))}"


def options_of_train(chosen, args):
    """The grid, the plan, the shares and the pipeline of a Candidate as options of train."""
    yield from ("--grid", chosen.grid)
    if chosen.sizes.get(MODEL, 1) > 1:
        yield from ("--plan", args.plan if chosen.owners and args.plan else chosen.plan)  # a partition may be that of a file
    if args.shares:
        yield from ("--shares", args.shares)
    for name, value in chosen.pipelining.items():
        yield from (f"--{name.replace('_', '-')}", ",".join(map(str, value)) if name == "cuts" else str(value))


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


def files_of(args):
    """{"json", "csv", "draw": its file} of --out. ValueError for other endings, and for what can not be written."""
    found = {}
    for path in args.out:
        if (kind := KINDS.get(Path(path).suffix)) is None or kind in found:
            raise ValueError(f"--out {path}: name at most one .json, for numbers, one .csv, for a schedule, and one .png, "
                             ".pdf or .svg, for its drawing")  # fmt: skip
        command_line.check_writable(path)
        found[kind] = path
    if args.trace and "draw" not in found:
        raise ValueError("--trace needs --out FILE.png, into which it is drawn")
    return found


def write_schedule(chosen, files, args):
    """Write the schedule of a pipeline and its drawing. ValueError if there is none."""
    from gridgrad.experiments.plots.timeline import draw_pipelines, measured, predicted

    found = chosen.pipelined
    if not found:
        raise ValueError(f"--out {files.get('draw') or files['csv']} is for a pipeline, and the planner has chosen none: name "
                         "one with --grid, such as stage=2")  # fmt: skip
    if "csv" in files and not found.schedule.synchronous:
        raise ValueError(f"--out {files['csv']} is for schedules with one update in a step: not for async:K")
    if "draw" in files:
        updates = len(found.ranks) if schedule_names.parse(found.pipeline).in_flight else 1
        runs = [predicted(found, updates), *([measured(args.trace, updates)] if args.trace else [])]
        title = f"{args.net}, batch {args.batch_size}, grid {chosen.grid}, {explain_report.pipeline_in_words(found)}"
        draw_pipelines(runs, f"{title}, predicted for {chosen.cost.machine.name}", files["draw"])
    if "csv" in files:
        report_files.write_text(files["csv"], schedule_names.to_csv(found.schedule))


# ----- --export: a training step of the plan that is chosen, for other simulators

FORMATS = {  # {name: (what writes a folder of actions and a machine, a file that is in each such folder, what to do next)}
    "simgrid": (simgrid.write, simgrid.PLATFORM, f"`sh {{}}/{simgrid.SCRIPT}` replays it with SimGrid's smpirun"),
    "goal": (graphs.write_goal, graphs.SCHEDULE,
             f"`txt2bin -i {{0}}/{graphs.SCHEDULE} -o {{0}}/step.bin` makes the file that LogGOPSim reads"),
    "chakra": (graphs.write_chakra, graphs.GROUPS, f"`chakra_jsonizer --input_filename {{0}}/{graphs.TRACE.format(0)} "
               "--output_filename rank0.json` writes what rank 0 does as JSON, and ASTRA-sim reads {0}/step with "
               f"{{0}}/{graphs.GROUPS}"),
}  # fmt: skip


def check_export(folder, name):
    """Raise ValueError unless a folder is new or empty, or where a package is missing; OSError if it can not be written."""
    if name == "chakra":
        graphs.package()
    path = resolved(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--export {folder}: there is something already; name a new folder, or an empty one")
    if path == Path.cwd():  # which would be another one afterwards
        raise ValueError(f"--export {folder}: it is the folder where you are; name a new one in it")
    command_line.check_room(path.parent)


def write_export(chosen, shares, name, folder):
    """Write the step of a Candidate to a folder, which appears whole or not at all. ValueError if the format lacks it."""
    cost, (write, anchor, _) = chosen.cost, FORMATS[name]
    pipelines = Pipelines(**chosen.pipelining) if chosen.pipelining else None
    asked = PlacementSpec(chosen.sizes, cost.placed.plan, shares, chosen.owners, pipelines)
    actions = step_actions(cost.net, asked, cost.batch_size, cost.machine)
    with folder_written_whole(folder, anchor) as beside:
        write(beside, actions, cost.machine)


def main():
    args = options().parse_args()
    with command_line.user_input():
        on = machine_of(args)
        if args.map:
            return explain_map.write(args, on)
        files = files_of(args)
        if args.export:
            check_export(args.export, args.format)
        search = planner(args, on)
        with tqdm(total=search.steps, desc="planning, at most", unit=" steps", delay=2, leave=False, disable=None) as bar:
            chosen, others = search.best(RUNNERS_UP, bar.update)
        lines = unequal(chosen, args) if args.speeds else []
        pure = pure_grids(search)
        if files.keys() & {"csv", "draw"}:
            write_schedule(chosen, files, args)
        if args.export:
            write_export(chosen, search.shares, args.format, args.export)
    found = result(chosen, others, pure, args)
    if "json" in files:
        report_files.write_json(files["json"], found)
    print("\n".join([*report(chosen, others, found, search.memory, args), *lines]))


if __name__ == "__main__":
    run_launcher(main)
