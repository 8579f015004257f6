"""Laugier et al. 2018: what the cost model predicts for their set-up on Cori, and which batch size would be fast there.

    python -m gridgrad.experiments.papers.laugier2018.predicted --out results/laugier2018/predicted.md

All numbers are *predicted*. The paper does not say how many processes share a node, nor how deep the network is: ranks are
taken as all on one node, and as one on each node; hidden layers as three. The model reverses the order that the paper prints:
its speedups are too small for batch parallelism (5.8 printed), and too large for model parallelism (1.2 printed) and for
integrated parallelism beside batch (0.99 printed). With what the paper's public code and its logs show, instead, the printed
numbers nearly follow; results/laugier2018/search.md says how this was found. Writes the tables, and a figure of the curves
beside them, as .png.
"""

from dataclasses import replace
from functools import lru_cache

from gridgrad.experiments.common.options import Parser, user_input, writable_beside
from gridgrad.experiments.common.parallel_schemes import grid_of
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import terminal, titled
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.laugier2018 import figures as figure
from gridgrad.experiments.papers.laugier2018 import steps
from gridgrad.experiments.papers.laugier2018.steps import BATCH_SIZE, HIDDEN, MACHINE, OUTPUTS, RANKS, SHAPE, network
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import Planner

KNOWN = published("laugier2018")
SIZES = tuple(line["model size"] for line in KNOWN.tables["sizes"].lines())
MODEL_SIZES = SIZES[-2:]  # those of which the paper prints speedups
COUNTS = (1, 2, 4, 8, 16, 32)  # of ranks
DTYPES = ("float64", "float32")  # theirs, NumPy's default; ours
CASES = (("batch", "fewest-bytes"), ("model", "laugier"), ("model", "fewest-bytes"), ("2d", "laugier"), ("2d", "fewest-bytes"))
BATCH, MODEL, BOTH, OVER_BATCH = "batch", "model", "2-D", "2-D over batch"  # speedups over one rank, and a ratio
KINDS = (BATCH, MODEL, BOTH, OVER_BATCH)
CHOICES = steps.CHOICES
ONE_NODE, APART, LOGGED = CHOICES
TARGET = 20.0  # times as fast as one rank
LARGEST_BATCH = 65536


@lru_cache
def curve(kind, size, assumed):
    """{number of ranks: speedup over one rank, or ratio}, from 1 to 32, those that there are.

    kind: of KINDS. assumed: of CHOICES. Of integrated parallelism the grid that is the fastest on so many ranks counts.
    """
    found = {}
    for ranks in COUNTS:
        grids = {BATCH: [(ranks, 1)], MODEL: [(1, ranks)]}.get(kind) or [
            (ranks // model, model) for model in COUNTS if 1 < model < ranks
        ]
        if grids:
            over = (size, ranks, 1) if kind == OVER_BATCH else (size, 1, 1)
            first, *others = steps.seconds((over, *((size, *grid) for grid in grids)), CHOICES[assumed])
            found[ranks] = float(first / min(others))
    return found


def curves():
    """Rows: each curve, with a column for each number of ranks."""
    return [
        {"assumed": assumed, "predicted": kind, "model size": size, **{str(ranks): curve(kind, size, assumed).get(ranks)
         for ranks in COUNTS}}
        for assumed in CHOICES for kind in KINDS for size in SIZES
    ]  # fmt: skip


def ratios():
    """Rows: each number that the paper prints beside those that are predicted for it.

    Of model and of integrated parallelism the best of all numbers of ranks counts, since the paper does not name one.
    """
    named, rows = {name: cited.value for name, cited in KNOWN.values.items()}, []
    for kind, size, number in (
        (BATCH, named["batch_model_size"], "batch_speedup"), (BATCH, named["batch_model_size_again"], "batch_speedup"),
        (MODEL, named["model_model_size"], "model_speedup"), (OVER_BATCH, named["integrated_model_size"], "integrated_ratio"),
    ):  # fmt: skip
        row = {"what": kind, "model size": size, "ranks": named["batch_ranks"] if kind == BATCH else "the best of several",
               "printed": named[number], "place": KNOWN.values[number].place}  # fmt: skip
        for assumed in CHOICES:
            row[assumed] = peak(kind, size, assumed)
        rows.append(row)
    return rows


def peak(kind, size, assumed):
    """The point of a curve that the paper names: batch parallelism on 32 ranks, and the best of the other kinds."""
    found = {ranks: value for ranks, value in curve(kind, size, assumed).items() if ranks > 1}
    return found[RANKS] if kind == BATCH else max(found.values())


def apart(machine):
    """The machine with one rank on each node."""
    return replace(machine, node=machine.node | {"ranks": 1}, name=f"{machine.name}, one rank a node")


def serial(net, batch_size, machine):
    """The Cost of a step on one rank."""
    return cost_on(net, "batch=1", batch_size, machine)


def cost_on(net, grid, batch_size, machine, plan="fewest-bytes"):
    """The Cost of a step of the rank with the most work on a grid, such as batch=2,model=2."""
    return cost_of_slowest_rank(net, PlacementSpec(parse_grid(grid), plan), batch_size, machine)


def predicted():
    """Rows: for each model size, type of numbers and scheme the speedups at 32 ranks, and where the time of a step goes."""
    machine, rows = machines.read(MACHINE), []
    for dtype in DTYPES:
        for width in MODEL_SIZES:
            net = network(width, dtype)
            alone = serial(net, BATCH_SIZE, machine)
            for scheme, plan in CASES:
                grid = grid_of(scheme, RANKS)
                cost, spread = (cost_on(net, grid, BATCH_SIZE, where, plan) for where in (machine, apart(machine)))
                rows.append(
                    {"numbers": dtype, "model size": width, "grid": grid, "plan": plan,
                     "speedup on 1 node": alone.seconds / cost.seconds, "on 32 nodes": alone.seconds / spread.seconds,
                     "1 rank ms": alone.seconds * 1e3, "1 node ms": cost.seconds * 1e3}
                    | {f"{part} ms": seconds * 1e3 for part, seconds in cost.parts.items()}
                    | {"32 nodes ms": spread.seconds * 1e3, "why, on 1 node": why(cost, alone)}
                )  # fmt: skip
    return rows


def why(cost, alone):
    """In words, how the time of a step is spent, beside 1/32 of the same part on one rank; the largest loss comes first."""
    sizes, parts = cost.grid.sizes, cost.parts
    samples, weights = -(-cost.batch_size // sizes["batch"]), "all weights"
    if sizes["model"] > 1:
        weights = f"1/{sizes['model']} of the weights"
    sums = gradient_bytes(cost)
    words = {
        "compute": f"products of {samples} samples with {weights}, {share_of_memory(cost):.0%} of it limited by memory",
        "update": f"every rank updates {weights}",
        "gradients": f"all-reduce, {sums / 1e6:.3g} MB a rank",
        "activations": f"activations layer by layer, {(cost.prediction.bytes - sums) / 1e6:.3g} MB a rank",
    }
    ideal = {part: seconds / RANKS for part, seconds in alone.parts.items()}
    lost = sorted(((parts[part] - ideal[part], part) for part in parts), reverse=True)
    return "; ".join(
        f"{words[part]}: {parts[part] * 1e3:.3g} ms" + (f" (1/{RANKS}: {ideal[part] * 1e3:.2g})" if ideal[part] else "")
        for seconds, part in lost
        if seconds > 0.1 * lost[0][0]
    )


def gradient_bytes(cost):
    """Bytes that the rank sends for the sums of gradients."""
    return sum(work.nbytes for work in cost.works if work.group is not None and work.layer == "gradients")


def share_of_memory(cost):
    """The share of the computing time spent in operations whose memory traffic takes longer than their arithmetic."""
    machine, ranks = cost.machine, cost.grid.size
    rate, bandwidth = machine.core["flops"] * 4 / cost.itemsize, machine.bandwidth(ranks)
    works = [work for work in cost.works if work.group is None and work.phase != "update"]
    slow = sum(cost.seconds_of(work) for work in works if work.nbytes / bandwidth > work.flops / rate)
    return slow / sum(cost.seconds_of(work) for work in works)


def fast_enough():
    """Rows: the smallest batch, of the powers of two, with which the planner's choice reaches the speedup, and its plan."""
    machine, rows = machines.read(MACHINE), []
    for dtype in DTYPES:
        for width in MODEL_SIZES:
            batch_size, chosen, speedup = smallest_batch(network(width, dtype), machine)
            rows.append(
                {"numbers": dtype, "model size": width, "global batch": batch_size, "grid": chosen.grid, "plan": chosen.plan,
                 "speedup": speedup} | {f"{part} ms": seconds * 1e3 for part, seconds in chosen.cost.parts.items()}
            )  # fmt: skip
    return rows


def smallest_batch(net, machine, ranks=RANKS):
    """(global batch, the planner's Candidate, its speedup over one rank) where that reaches TARGET, else of the largest."""
    batch_size = 1
    while True:
        chosen, _ = Planner(net, ranks, batch_size, machine).best(shown=0)
        speedup = serial(net, batch_size, machine).seconds / chosen.seconds
        if speedup >= TARGET or batch_size == LARGEST_BATCH:
            return batch_size, chosen, speedup
        batch_size *= 2


SET_UP = f"ethylene ({SHAPE[0]} inputs, {OUTPUTS} outputs), batch {BATCH_SIZE}, float64, the paper's algorithms"
TITLES = {
    "ratios": f"Printed, and predicted for Cori Haswell: {SET_UP}; {HIDDEN} hidden layers, but one in the last column. "
    "The order of the first two predictions is the reverse of the printed one; search.md explains the last one",
    "curves": "The predicted curves of Figures 5 to 7: speedups over one rank by the number of ranks; of 2-D the fastest grid",
    "predicted": f"Predicted for 32 ranks, batch {BATCH_SIZE}: where the time of a step goes. The parts of a step are those "
    "with all ranks on one node; the plan `laugier` is the paper's own algorithm",
    "fast_enough": "Predicted: the smallest global batch, a power of two, with which 32 ranks on one node are at least 20 "
    "times as fast as one, over all grids and plans",
}


@lru_cache
def tables():
    """{name: rows}, each a dict with the same keys."""
    return {"ratios": ratios(), "curves": curves(), "predicted": predicted(), "fast_enough": fast_enough()}


def options():
    parser = Parser(
        prog="papers.laugier2018.predicted", description="Does the cost model explain the speedups of Laugier et al. (2018)?"
    )
    parser.add_argument("--out", default="results/laugier2018/predicted.md", metavar="FILE.md",
                        help="the tables; the figure goes beside them, as .png")  # fmt: skip
    return parser


def main():
    args = options().parse_args()
    with user_input():
        beside = writable_beside(args.out, ".png", ("tables", "figure"))
    text = "# Laugier et al. 2018, predicted\n\n" + "".join(titled(TITLES[name], rows) for name, rows in tables().items())
    write_text(args.out, text)
    found = {assumed: {(kind, size): curve(kind, size, assumed) for kind in KINDS for size in SIZES} for assumed in CHOICES}
    figure.draw(found, printed(), beside)
    print(terminal(text))
    print(f"tables written to {args.out}, the figure to {beside}")


def printed():
    """What the figure shows of the paper: {kind of curve: (number of ranks or None, the number, words)}."""
    values = {name: cited.value for name, cited in KNOWN.values.items()}
    sizes = f"{values['batch_model_size']} and {values['batch_model_size_again']}"
    return {
        BATCH: (values["batch_ranks"], values["batch_speedup"], f"printed: {values['batch_speedup']}, sizes {sizes}"),
        MODEL: (None, values["model_speedup"], f"printed: {values['model_speedup']}, size {values['model_model_size']}, "
                "without a number of ranks"),
        OVER_BATCH: (None, values["integrated_ratio"], f"printed: {values['integrated_ratio']}, size "
                     f"{values['integrated_model_size']}, at its best"),
    }  # fmt: skip


if __name__ == "__main__":
    run_launcher(main)
