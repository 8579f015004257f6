"""Print the plan that the planner chooses for a network, its predicted cost, and why other plans are slower. Starts no job.

    gridgrad explain --net vgg16 --batch-size 256 --ranks 16384 --machine cori-haswell
    gridgrad explain --net vgg16 --batch-size 4096 --nodes 256 --gpus 4
    gridgrad explain --net mlp:4096,4096,4096,relu --ranks 4 --grid stage=4 --out schedule.png
    gridgrad explain --net vgg16 --batch-size 256 --ranks 64 --machine cori-haswell --export traces --format simgrid

All seconds are *predicted*: by the cost model, for the machine of the file (docs/machines.md) or of three numbers.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common import report as report_files
from gridgrad.experiments.common.options import (
    Parser,
    add_problem,
    check_writable,
    number,
    number_list,
    position_list,
    shares_of,
    user_input,
    whole,
    whole_list,
    writable_beside,
)
from gridgrad.experiments.common.parallel_schemes import MOST_RANKS
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.tables import cell, counted, table
from gridgrad.experiments.common.train_setup import check_grid
from gridgrad.experiments.parts import explain_export, explain_map
from gridgrad.experiments.parts.explain_layers import layer_rows
from gridgrad.experiments.parts.explain_plan import (
    axes_in_words,
    chunk_rows,
    of_pipeline,
    pipeline_in_words,
    plan_in_words,
    why_lost,
)
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.grid.process_grid import AXES, BATCH, MODEL, STAGE, check_places, parse_grid
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.partitioning.good_partition import is_partition, owners_of_plan
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import BATCH_SIZE, NoRoom, Planner

RUNNERS_UP = 5  # that are printed
KINDS = {".json": "json", ".csv": "csv", ".png": "draw", ".pdf": "draw", ".svg": "draw"}  # of the files of --out
CPUS, GPUS = "cori-haswell", "perlmutter-a100"  # the machines where none is named
INTENSITY, CALL, NEAR, MEMORY = 10, 5e-6, 1e-6, 16 * 2**30  # of a machine of three numbers: see `machine_of`
UNITS = {"flops": "Gflop/s", "latency": "us", "bandwidth": "Gbit/s"}
SHORT = (
    "net", "batch_size", "ranks", "nodes", "gpus", "machine", "flops", "latency", "bandwidth", "memory", "grid", "plan", "out",
    "map",
)  # fmt: skip


def options():
    parser = Parser(
        prog="explain", short=SHORT, description="Print the plan that the planner chooses, what it costs, and why others lost."
    )
    add = parser.add_argument
    add_problem(parser, "vgg16", batch_size=BATCH_SIZE)
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add = parser.add_argument_group("machine").add_argument
    add("--ranks", type=whole(1, MOST_RANKS), metavar="P", help=f"number of ranks, at most {MOST_RANKS} (default: 2)")
    add("--nodes", type=whole(1), metavar="N", help="in place of --ranks: number of nodes, full of ranks")
    add("--ranks-per-node", type=whole(1), metavar="K", help="ranks of a node (default: those of the machine)")
    add("--gpus", type=whole(1), metavar="K", help="GPUs of a node, each a rank with its own memory")
    add("--machine", metavar="NAME", help=f"{machine.HELP}: {', '.join(machine.names())} (default: {CPUS}, with --gpus {GPUS})")
    add("--flops", type=number(above=0), metavar="GFLOPS", help="Gflop/s of a rank in float32, in place of the machine's")
    add("--latency", type=number(above=0), metavar="US", help="microseconds of a message between nodes, in place of the "
        "machine's")  # fmt: skip
    add("--bandwidth", type=number(above=0), metavar="GBIT", help="Gbit/s that a node sends, in place of the machine's; all "
        "three without --machine describe a cluster")  # fmt: skip
    add("--memory", type=number(above=0), metavar="GIB", help="memory that a rank may use (default: its share of the memory "
        "of a node)")  # fmt: skip
    add = parser.add_argument_group("what is priced").add_argument
    add("--grid", help="plan for this grid alone, such as batch=4,model=2")
    add("--shares", metavar="W,W,..", help="how unevenly the ranks of an axis share the work: numbers by axis, such as "
        "model=3:2,batch=2:1, or one for each rank of the one axis that has several (default: equal shares)")  # fmt: skip
    add("--speeds", type=number_list, metavar="W,W,..", help="speeds of the ranks, such as 3,2,1.5,1, where 1 is that of the "
        "machine file: print how they would share each axis of --grid")  # fmt: skip
    add("--plan", help="price this plan alone (default: what the planner chooses); see gridgrad help plan")
    add("--pipeline", metavar="NAME", help="price pipelines of this schedule alone (default: what the planner chooses); see "
        "gridgrad help pipeline")  # fmt: skip
    add("--micro-batches", type=whole(1), metavar="M", help="parts into which a pipeline cuts a minibatch (default: what the "
        "planner chooses)")  # fmt: skip
    add("--cuts", type=position_list, metavar="N,N,..", help="positions of the layers with which new chunks of a pipeline "
        "begin (default: what the planner chooses)")  # fmt: skip
    add = parser.add_argument_group("files").add_argument
    add("--out", action="append", default=[], metavar="FILE", help="also write all numbers to FILE.json, the schedule of a "
        "pipeline to FILE.csv, which --pipeline can read, or its drawing to FILE.png, .pdf, .svg; may be repeated")  # fmt: skip
    add("--trace", metavar="FILE.json", help="draw the steps below it that are in this timeline, which train --trace wrote")
    add("--export", metavar="FOLDER", help="write a step of this plan for another simulator to this folder, new or empty")
    add("--format", default="simgrid", choices=tuple(explain_export.FORMATS), help="of --export: time-independent traces of "
        "SimGrid with a platform file; a schedule in GOAL, of LogGOPSim and ATLAHS; or execution traces of Chakra, which "
        "ASTRA-sim reads")  # fmt: skip
    add("--map", metavar="FILE.png", help="instead draw which of one rank, batch, model and 2-D is the fastest for each of "
        "--widths and --batch-sizes; --net has W in place of a width; the numbers go beside it, as .json")  # fmt: skip
    add("--widths", type=whole_list, default=[2**k for k in range(5, 14)], metavar="N,N,..", help="of --map")
    add("--batch-sizes", type=whole_list, default=[2**k for k in range(3, 17)], metavar="B,B,..", help="of --map")
    return parser


def machine_of(args):
    """The Machine that the options describe; `args.ranks` is completed. ValueError for what does not fit.

    A machine of three numbers has a byte of memory traffic a second for INTENSITY operations, calls of CALL seconds, messages
    of NEAR seconds and the memory's bandwidth within a node, and MEMORY bytes a rank.
    """
    given = {name: getattr(args, name) for name in UNITS if getattr(args, name)}
    per_node = args.gpus or args.ranks_per_node
    if args.gpus and args.ranks_per_node or args.ranks and args.nodes:
        raise ValueError("--gpus is --ranks-per-node, and --nodes stands in place of --ranks: give one of the two")
    if 0 < len(given) < len(UNITS) and not args.machine and not args.gpus:
        raise ValueError("--flops, --latency and --bandwidth describe a cluster together: give all three, or a --machine")
    if args.machine or len(given) < len(UNITS):
        found = machine.read(args.machine or (GPUS if args.gpus else CPUS))
    else:
        near, traffic, ranks = {"alpha": NEAR, "beta": 1e-15}, 1e9 * args.flops / INTENSITY, per_node or 1
        found = machine.Machine(
            "a cluster", "three numbers", {"bandwidth": traffic, "call": CALL},
            {"ranks": ranks, "bandwidth": ranks * traffic, "memory": ranks * MEMORY}, {"node": near, "network": near},
        )  # fmt: skip
    core, network, tables, collectives = dict(found.core), dict(found.links["network"]), found.tables, found.collectives
    if args.flops:
        core, tables = core | {"flops": 1e9 * args.flops}, {}
    if args.latency or args.bandwidth:
        network |= {"alpha": 1e-6 * args.latency} if args.latency else {}
        network |= {"beta": 8e-9 / args.bandwidth} if args.bandwidth else {}
        collectives = {}
    per_node = per_node or found.node["ranks"]
    node = found.node | {"ranks": per_node}
    if args.gpus:  # each has a memory of its own
        node |= {name: found.node[name] * per_node / found.node["ranks"] for name in ("bandwidth", "memory")}
    args.ranks = args.ranks or (args.nodes * per_node if args.nodes else 2)
    if args.ranks > MOST_RANKS:
        raise ValueError(f"{args.nodes} nodes of {per_node} ranks are too many: at most {MOST_RANKS} ranks")
    name = " with ".join(filter(None, (found.name, ", ".join(f"{of:g} {UNITS[one]}" for one, of in given.items()))))
    links = found.links | {"network": network}
    return replace(found, name=name, core=core, node=node, links=links, tables=tables, collectives=collectives)


def planner(args, on):
    """The Planner that the options name, for the Machine `on`. ValueError for what does not fit."""
    net = published(args.net, args.shape, args.outputs, args.dtype)
    grid = parse_grid(args.grid) if args.grid else None
    if grid:
        check_places(args.grid, grid, args.ranks)
        check_grid(grid, net)
    pipelines = Pipelines(args.pipeline, args.micro_batches, args.cuts)
    if grid and grid.get(STAGE, 1) == 1 and (args.micro_batches or pipelines.is_asked_for):
        raise ValueError("--pipeline, --micro-batches and --cuts are for a grid with the axis stage, such as --grid stage=2")
    if args.shares == "auto":
        raise ValueError("--shares auto times the ranks of a job, and there is none here: give numbers, or see --speeds")
    shares = shares_of(args.shares, grid) if args.shares else None
    partitioned = args.plan and is_partition(args.plan)
    if partitioned and not grid:
        raise ValueError(f"--plan {args.plan} is for a grid that is named: add --grid, such as --grid model={args.ranks}")
    speeds = shares and shares.get(MODEL)
    partition = partial(owners_of_plan, args.plan if partitioned else HYPERGRAPH, net, speeds=speeds)
    memory = args.memory and args.memory * 2**30
    asked = PlacementSpec(grid, HYPERGRAPH if partitioned else args.plan, shares, None, pipelines, memory)
    return Planner(net, args.ranks, args.batch_size, on, asked, partition)


def pure_grids(search, candidates):
    """{"batch", "model": the Candidate with all ranks on that axis and the best plan; None where no plan fits the memory}."""
    found = {}
    for axis in (BATCH, MODEL) if search.ranks > 1 else ():
        sizes = dict.fromkeys(AXES, 1) | {axis: search.ranks}
        known = () if search.shares else (one for one in candidates if one.fits and not one.owners and one.sizes == sizes)
        found[axis] = next(iter(known), None)
        with suppress(NoRoom):
            asked = PlacementSpec(sizes, memory=search.memory)
            found[axis] = found[axis] or Planner(search.net, search.ranks, search.batch_size, search.machine, asked).best(0)[0]
    return found


def result(chosen, others, pure, args):
    """The numbers of --out, and most of what is printed, a dict. chosen, others: Candidates. pure: of `pure_grids`."""
    cost = chosen.cost
    alone = cost_of_slowest_rank(cost.net, PlacementSpec(parse_grid("batch=1"), "fewest-bytes"), args.batch_size, cost.machine)
    # Of a partition or a pipeline only what was played is considered, unless it is the one that is chosen.
    bound = min(chosen.bound, *(one.seconds if one.played else one.bound for one in others), chosen.seconds)
    speedup = alone.seconds / chosen.seconds
    return {
        "predicted": True, "net": args.net, "batch_size": args.batch_size, "dtype": args.dtype, "ranks": args.ranks,
        "machine": cost.machine.name, "grid": chosen.grid, "plan": chosen.plan, "shares": args.shares, **chosen.pipelining,
        "seconds": chosen.seconds, "lower_bound": bound, "gap": chosen.seconds / bound - 1, "parts": chosen.step.parts,
        "one_rank": {"seconds": alone.seconds, "memory": alone.prediction.memory}, "speedup": speedup,
        "efficiency": speedup / args.ranks, "memory": chosen.step.memory,
        "pure": {axis: one and {"grid": one.grid, "plan": one.plan, "seconds": one.seconds} for axis, one in pure.items()},
        "layers": chunk_rows(chosen.pipelined, cost.net) if chosen.pipelined else layer_rows(cost),
        "others": [
            {"grid": other.grid, "plan": plan_in_words(other), "seconds": other.seconds, "reason": why_lost(other, chosen)}
            for other in others if other.cost
        ],
    }  # fmt: skip


def report(chosen, others, found, args):
    """The lines that are printed. chosen, others: Candidates. found: their `result`."""
    cost, one = chosen.cost, found["one_rank"]
    yield f"{args.net}, batch {args.batch_size}, on {counted(args.ranks, 'rank')} of {cost.machine.name}: predicted"
    words, _, pipeline = plan_in_words(chosen).partition("; ")
    yield f"grid {chosen.grid}, plan {words}" + (f", shares {args.shares}" if args.shares else "")
    yield from filter(None, [pipeline])
    yield from axes_in_words(chosen.sizes, cost)
    overlapped = "" if chosen.played or cost.grid.size == 1 else (
        f"; at best {milliseconds(cost.overlapped_seconds)} with --reduction overlap, which sums gradients during backward"
    )  # fmt: skip
    yield f"\nstep         {milliseconds(chosen.seconds)}{overlapped}"
    for axis, pure in found["pure"].items():
        times = pure and f"{milliseconds(pure['seconds'])}, {pure['seconds'] / chosen.seconds:.3g} times as long"
        yield f"pure {axis}   {times or 'no plan fits the memory'}"
    yield f"speedup      {cell(found['speedup'])} over one rank, which takes {milliseconds(one['seconds'])}: "\
          f"an efficiency of {found['efficiency']:.0%}"  # fmt: skip
    yield f"memory       {found['memory'] / 2**30:.3g} GiB a rank for the arrays of a step; one rank alone needs "\
          f"{one['memory'] / 2**30:.3g}"  # fmt: skip
    grids = len({candidate.grid for candidate in (chosen, *others)})
    where = f"any of the {grids} grids" if grids > 1 else "this grid"
    yield f"lower bound  {milliseconds(found['lower_bound'])} with any plan on {where}: a gap of {found['gap']:.1%}\n"
    yield from of_pipeline(chosen.pipelined, cost.net) if chosen.pipelined else of_layers(chosen, found["layers"])
    yield ""
    if rows := found["others"][:RUNNERS_UP]:
        yield table([{"runner-up": other["grid"], "plan": other["plan"], "ms": other["seconds"] * 1e3,
                      "why it lost": other["reason"]} for other in rows])  # fmt: skip
    if rest := sum(other.cost is None for other in others):
        yield f"{rest} other grids were given up early: lower bounds of their times are above the times of the plans shown"
    if args.out:
        yield f"written: {', '.join(args.out)}"
    if args.export:
        yield explain_export.in_words(args.format, args.export)
    yield f"options of train: {' '.join(options_of_train(chosen, args))}"


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
        yield from (f"--{name.replace('_', '-')}", ",".join(map(str, value)) if name == "cuts" else str(value))


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
    total = {"layer": "a step", "": "", "placement": ""} | sums | {"ms": chosen.seconds * 1e3}
    yield table([*shown, dict.fromkeys(shown[0]) | total])
    yield "A layer with weights stands for what follows it, too. What is sent at least: by any placement with even shares."
    yield "MB of a layer include the sum of its gradients, whose time stands in the row of all gradients."
    if not chosen.played:
        yield "FLOP, bytes sent and times are those of the rank with the most work. The time of a step counts the sums of "\
              "gradients\nin full, as if they began after backward (--reduction plain)."  # fmt: skip
        return
    yield "FLOP, bytes sent and times are those of the rank that computes the most.\n"
    yield table([
        {"rank along model": place, "ms computing": rank.busy * 1e3, "ms waiting": rank.waiting * 1e3,
         "ms communicating": rank.communicating * 1e3, "MB sent": rank.bytes / 1e6, "messages": rank.messages}
        for place, rank in enumerate(chosen.step.ranks)
    ])  # fmt: skip
    yield "In a step the ranks wait for each other. The memory is that of the rank that needs the most."


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
        check_writable(path)
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
        title = f"{args.net}, batch {args.batch_size}, grid {chosen.grid}, {pipeline_in_words(found)}"
        draw_pipelines(runs, f"{title}, predicted for {chosen.cost.machine.name}", files["draw"])
    if "csv" in files:
        report_files.write_text(files["csv"], schedule_names.to_csv(found.schedule))


def write_map(args, on):
    """Draw the map of --map, write its numbers, and print them."""
    numbers = writable_beside(args.map, ".json", ("figure", "numbers"))
    found = explain_map.scan(args, on)
    explain_map.draw(found, args.net, args.map)
    report_files.write_json(numbers, found, indent=None)
    print(f"The global batches at which a scheme is predicted to be the fastest on {args.ranks} ranks of {on.name}:")
    print(f"{explain_map.in_words(found)}\nfigure written to {args.map}, numbers to {numbers}")


def main():
    args = options().parse_args()
    with user_input():
        on = machine_of(args)
        if args.map:
            return write_map(args, on)
        files = files_of(args)
        if args.export:
            explain_export.check(args.export, args.format)
        search = planner(args, on)
        with tqdm(total=search.steps, desc="planning, at most", unit=" steps", delay=2, leave=False, disable=None) as bar:
            chosen, others = search.best(RUNNERS_UP, bar.update)
        lines = unequal(chosen, args) if args.speeds else []
        pure = pure_grids(search, (chosen, *others))
        if files.keys() & {"csv", "draw"}:
            write_schedule(chosen, files, args)
        if args.export:
            explain_export.write(chosen, search.shares, args.format, args.export)
    found = result(chosen, others, pure, args)
    if "json" in files:
        report_files.write_json(files["json"], found)
    print("\n".join([*report(chosen, others, found, args), *lines]))


if __name__ == "__main__":
    run_launcher(main)
