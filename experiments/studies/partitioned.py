"""Time a training step of a network whose filters are partitioned by its hypergraph, beside other plans, and predict it first.

    mpiexec -n 4 gridgrad calibrate --out machine.json
    mpiexec -n 4 gridgrad study partitioned --machine machine.json --net vgg-style --batch-size 16

Every plan is priced before it is timed, from a machine file that knows none of these networks. The plans are timed in turns, so
that a drift of the machine's speed affects all of them alike. `vgg-style` has the structure of VGG16 in four stages and a
quarter of its channels, so that it computes little for what it sends. A network of sparse layers, `pruned:FILE`, is divided by
its hypergraph, by rows and at random. Writes the results to a JSON file, and a table beside it.
"""

from statistics import median

from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.neuron_partitions import partitions
from gridgrad.experiments.common.options import Parser, user_input, whole, whole_list
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import lines, table
from gridgrad.experiments.common.timed_plans import PlanProblem, TimedPlan
from gridgrad.nn import Sequential, SparseLinear
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.calibration.timing import NormalisedTimer
from gridgrad.parallel.choose.parallelize import of_first
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import partition
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.planner import Planner

VGG_STYLE = "vgg-style"
KEYS = "net", "shape", "batch_size", "ranks", "machine"  # what names a problem in the results
EPSILON = 0.1  # how much more work than the mean a rank may have


class VggStyle(PlanProblem):
    """Four stages of two 3x3 convolutions and a pooling, and three dense layers."""

    def serial(self):
        layers = network_names.vgg_style(self.shape, self.outputs, (16, 32, 64, 128), [1024, 1024])
        return Sequential(layers, input_shape=self.shape)


def plans(net, ranks, batch_size, described):
    """{name: (sizes of the grid, plan, Owners or None)} of the plans to compare. net: a serial Sequential."""
    model = {"batch": 1, "height": 1, "model": ranks}
    if any(isinstance(layer, SparseLinear) for layer in net.layers):
        graph = of_network(net)
        found = partitions(graph, ranks, EPSILON, 0)
        return {name: (model, "hypergraph", graph.owners(parts, ranks)) for name, parts in found.items()}
    graph = of_network(net)
    by = {"horizontal": naive.horizontal(graph, ranks), "random": naive.random(graph, ranks)}
    chosen, _ = Planner(net, ranks, batch_size, described).best()
    return {
        "hypergraph": (model, "hypergraph", partition(net, ranks, epsilon=EPSILON)),
        "hypergraph, fine grain": (model, "hypergraph", partition(net, ranks, "fine", epsilon=EPSILON)),
        f"batch={ranks}": (model | {"batch": ranks, "model": 1}, "out", None),
        f"model={ranks}": (model, "fewest-bytes", None),
        **{name: (model, "hypergraph", graph.owners(parts, ranks)) for name, parts in by.items()},
        "the planner's choice of the others": (chosen.sizes, chosen.plan, None),
    }


def row(name, side, step, sent):
    """A row of the results, a dict. step: the StepPrediction. sent: (bytes, messages) of all ranks in a step as counted."""
    measured = [seconds for seconds, _ in side.rounds]
    return {
        "plan": name, "grid": str(side.grid), "words": ",".join(dict.fromkeys(side.net.plan)),
        "mb": sent[0] / 1e6, "messages": sent[1], "predicted": step.seconds, "measured": median(measured),
        "fastest": min(measured), "slowest": max(measured), "error": step.seconds / median(measured) - 1,
    }  # fmt: skip


def measure(problem, described, timer, rounds):
    """The rows of all plans. Collective."""
    comm = timer.comm
    found = of_first(comm, lambda: plans(problem.serial(), comm.size, problem.batch_size, described))
    sides = {name: TimedPlan(problem, *choice[:2], timer, choice[2]) for name, choice in found.items()}
    steps = {name: side.step_time(described) for name, side in sides.items()}
    sent = {}
    for name, side in sides.items():
        side.grid.tally.clear()
        side.turn()
        records, turns = side.grid.tally.records.values(), side.steps
        sent[name] = [comm.allreduce(sum(getattr(r, kind) for r in records)) // turns for kind in ("bytes", "messages")]
        side.rounds.clear()
    for _ in progress(range(rounds), "rounds", comm.rank == 0):
        for side in sides.values():
            side.turn()
    rows = [row(name, side, steps[name], sent[name]) for name, side in sides.items()]
    for side in sides.values():
        side.grid.free()
    return rows


def cells(rows):
    """The rows as dicts of texts, as they are printed and written."""
    for one in rows:
        yield {
            "plan": one["plan"], "grid": one["grid"], "MB sent": f"{one['mb']:.4g}", "messages": str(one["messages"] or ""),
            "predicted ms": f"{1e3 * one['predicted']:.4g}", "measured ms": f"{1e3 * one['measured']:.4g}",
            "from - to": f"{1e3 * one['fastest']:.4g} - {1e3 * one['slowest']:.4g}", "error": f"{100 * one['error']:+.1f} %",
            "by the first": f"{one['measured'] / rows[0]['measured']:.2f}",
        }  # fmt: skip


def document(results):
    """All results as Markdown."""
    yield "# Training steps of partitioned networks\n"
    yield "A step of each plan, predicted before it was measured, and the bytes that all ranks send in it. Written by"
    yield "`gridgrad study partitioned`; the messages of collectives of the MPI library are not counted."
    for one in results:
        shape = "x".join(map(str, one["shape"]))
        yield f"\n{one['net']}, samples of {shape}, global batch {one['batch_size']}, {one['ranks']} ranks, {one['machine']}:\n"
        yield lines(list(cells(one["rows"])))


def options():
    parser = Parser(
        prog="study partitioned", description="What does a hypergraph partition gain in a training step, beside other plans?"
    )
    add = parser.add_argument
    add("--machine", required=True, metavar="FILE.json", help="machine file that calibrate wrote on as many ranks")
    add("--net", default=VGG_STYLE, help=f"{VGG_STYLE}, or {network_names.HELP}")
    add("--shape", type=whole_list, default=[64, 64, 3], metavar="SHAPE", help="shape of a sample")
    add("--outputs", type=whole(1), default=10, help="number of classes")
    add("--batch-size", type=whole(1), default=16, metavar="B", help="samples in the global minibatch")
    add("--rounds", type=whole(1), default=7, help="rounds, in each of which every plan is timed once")
    add("--out", default="results/partitioned.json", metavar="FILE.json", help="file of the results, to which these are added")
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    before = on_root(comm, lambda: earlier_results(args.out, (*KEYS, "rows"), "partitioned", document))
    with user_input():
        described = machine.read(args.machine)
        kind = VggStyle if args.net == VGG_STYLE else PlanProblem
        problem = kind(args.net, tuple(args.shape), args.outputs, args.batch_size)
        rows = measure(problem, described, NormalisedTimer(comm, described.core.get("calm")), args.rounds)
    result = {"net": args.net, "shape": list(args.shape),
              "batch_size": args.batch_size, "ranks": comm.size, "machine": described.name, "rows": rows,
              "versions": report.versions()}  # fmt: skip
    if comm.rank == 0:
        print(table(list(cells(rows))))
        print(f"results added to {args.out}, and the table beside it")
    on_root(comm, lambda: write_results(args.out, before, result, KEYS, document))


if __name__ == "__main__":
    run(main)
