"""Laugier et al. 2018: what the cost model predicts for their set-up on Cori, and which batch size would be fast there.

    gridgrad study laugier2018-predicted --out results/laugier2018/predicted.md

All numbers are *predicted*. The paper does not say how many of the 32 ranks share a node, nor how deep the network is: ranks
are taken as all on one node, and as one on each of 32; hidden layers as three. The model knows peak rates and memory. It does
not know caches, the overhead of the interpreter, or the minibatch that rank 0 sends to the others. So the one rank that it
compares with is too fast, and the predicted speedups are too small.
"""

from dataclasses import replace

from gridgrad.experiments.common import predicted_reports
from gridgrad.experiments.common.markdown import table
from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import terminal
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.performance import machine as machines
from gridgrad.parallel.performance.planner import Planner

MACHINE, RANKS, BATCH_SIZE = "cori-haswell", 32, 100
SHAPE, OUTPUTS, HIDDEN = [16], 2, 3  # ethylene
MODEL_SIZES = (512, 1024)
DTYPES = ("float64", "float32")  # theirs, NumPy's default; ours
CASES = [  # scheme, plan, {model size: what the paper publishes}
    ("batch", "fewest-bytes", {512: "5.8x", 1024: "5.8x"}),
    ("model", "laugier", {1024: "1.2x"}),
    ("model", "fewest-bytes", {1024: "1.2x"}),
    ("2d", "laugier", {512: "0.99x of batch"}),
    ("2d", "fewest-bytes", {512: "0.99x of batch"}),
]
CLAIMS = [  # scheme, model size, how many times as fast as the batch grid on so many ranks
    ("batch", 1024, 5.8, 1),
    ("batch", 512, 5.8, 1),
    ("model", 1024, 1.2, 1),
    ("2d", 512, 0.99, RANKS),
]
TARGET = 20.0  # times as fast as one rank
LARGEST_BATCH = 65536


def network(width, dtype):
    """The network of the paper for a model size."""
    return published(f"mlp:{','.join([str(width)] * HIDDEN)},relu", SHAPE, OUTPUTS, dtype)


def apart(machine):
    """The machine with one rank on each node."""
    return replace(machine, node=machine.node | {"ranks": 1}, name=f"{machine.name}, one rank a node")


def serial(net, batch_size, machine):
    """The Cost of a step on one rank."""
    return predicted_reports.cost(net, "batch", 1, batch_size, machine)[1]


def predicted():
    """Rows: for each model size, type of numbers and scheme the speedups at 32 ranks, and where the time of a step goes."""
    machine, rows = machines.read(MACHINE), []
    for dtype in DTYPES:
        for width in MODEL_SIZES:
            net = network(width, dtype)
            alone = serial(net, BATCH_SIZE, machine)
            for scheme, plan, known in CASES:
                grid, cost = predicted_reports.cost(net, scheme, RANKS, BATCH_SIZE, machine, plan)
                _, spread = predicted_reports.cost(net, scheme, RANKS, BATCH_SIZE, apart(machine), plan)
                rows.append(
                    {"numbers": dtype, "model size": width, "grid": grid, "plan": plan, "published": known.get(width),
                     "speedup on 1 node": alone.seconds / cost.seconds, "on 32 nodes": alone.seconds / spread.seconds,
                     "1 rank ms": alone.seconds * 1e3, "1 node ms": cost.seconds * 1e3}
                    | {f"{part} ms": seconds * 1e3 for part, seconds in cost.parts.items()}
                    | {"32 nodes ms": spread.seconds * 1e3, "why, on 1 node": why(cost, alone)}
                )  # fmt: skip
    return rows


def claims():
    """Rows: each published ratio beside what is predicted for the paper's algorithm and type of numbers.

    The last column is how many times as long as predicted the one rank would have to take for the published speedup to follow
    on 32 nodes; below 1 it cannot, and the 32 ranks must have been slower.
    """
    machine, rows = machines.read(MACHINE), []
    for scheme, width, ratio, over in CLAIMS:
        node, nodes = (predicted_ratio(scheme, width, over, where) for where in (machine, apart(machine)))
        rows.append(
            {"scheme": scheme, "model size": width, "times as fast as": "1 rank" if over == 1 else f"batch on {over}",
             "published": ratio, "predicted on 1 node": node, "predicted on 32 nodes": nodes,
             "published if 1 rank takes (x predicted)": ratio / nodes if over == 1 else None}
        )  # fmt: skip
    return rows


def predicted_ratio(scheme, width, over, machine):
    """How many times as fast a scheme on 32 ranks is as the batch grid on `over`, by the paper's algorithm."""
    net = network(width, DTYPES[0])
    step = lambda name, ranks: predicted_reports.cost(net, name, ranks, BATCH_SIZE, machine, "laugier")[1].seconds  # noqa: E731
    return step("batch", over) / step(scheme, RANKS)


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
        "activations": f"activations layer by layer, {(cost.bytes_sent - sums) / 1e6:.3g} MB a rank",
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


TITLES = {
    "claims": "The published ratios at 32 ranks, batch 100, and those that the cost model predicts for the paper's algorithm "
    "in float64 on Cori Haswell. The paper gives neither seconds nor ranks on a node, so what separates them can not be told",
    "predicted": "Predicted by the cost model for 32 ranks of Cori Haswell, batch 100, beside what was published. The parts of "
    "a step are those with all ranks on one node; the plan `laugier` is the paper's own algorithm",
    "fast_enough": "Predicted: the smallest global batch, a power of two, with which 32 ranks on one node are at least 20 "
    "times as fast as one, over all grids and plans",
}


def tables():
    """{name: rows}, each a dict with the same keys."""
    return {"claims": claims(), "predicted": predicted(), "fast_enough": fast_enough()}


def options():
    parser = Parser(
        prog="study laugier2018-predicted", description="Does the cost model explain the speedups of Laugier et al. (2018)?"
    )
    parser.add_argument("--out", default="results/laugier2018/predicted.md", metavar="FILE.md", help="the tables")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        check_writable(args.out)
    text = "# Laugier et al. 2018, predicted\n\n" + "".join(table(TITLES[name], rows) for name, rows in tables().items())
    write_text(args.out, text)
    print(terminal(text))


if __name__ == "__main__":
    run_launcher(main)
