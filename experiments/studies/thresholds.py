"""Map which parallelism is the fastest for each model size and batch size, as predicted by the cost model.

    gridgrad study thresholds --ranks 32 --machine cori-haswell --out results/thresholds.png

Laugier et al. (2018) leave these thresholds to future work. For each width of a network with three hidden layers, as in the
paper, and each global batch, the model predicts the time of every grid with its best plan. The colour of the map shows the
fastest scheme: one rank alone, the pure batch or model grid, or a grid of both. Writes the figure and, beside it, the numbers
as JSON.
"""

from dataclasses import dataclass
from math import inf, isfinite, log2
from pathlib import Path

from matplotlib.colors import BoundaryNorm, ListedColormap
from tqdm import tqdm

from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole, whole_list
from gridgrad.experiments.common.parallel_schemes import scheme_of
from gridgrad.experiments.common.predicted_cost import rounded
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.plots.style import plt, save
from gridgrad.experiments.studies.laugier2018_predicted import BATCH_SIZE, HIDDEN, MODEL_SIZES, OUTPUTS, SHAPE, network
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import NoRoom, Planner, every_grid

SCHEMES = {"serial": "lightgrey", "batch": "#9ecae1", "model": "#fdae6b", "2d": "#a1d99b"}  # where equally fast, the first
NAMES = {"serial": "1 rank", "batch": "batch", "model": "model", "2d": "2-D: batch x model"}
WIDTHS, BATCH_SIZES = [2**k for k in range(5, 14)], [2**k for k in range(3, 17)]
LEVELS = [1, 2, 4, 8, 16, 24]  # of the speedup's contours


@dataclass
class Point:
    """The fastest plan of each scheme at one width and batch size. seconds, grids, plans: by scheme.

    Seconds are inf, and grid and plan are absent, where no plan fits the memory, or where the best plan replicates all weights
    and so equals the batch grid.
    """

    width: int
    batch_size: int
    seconds: dict
    grids: dict
    plans: dict

    @property
    def winner(self):
        return min(SCHEMES, key=lambda scheme: self.seconds.get(scheme, inf))

    @property
    def speedup(self):
        """The speedup of the winner over one rank; nan where one rank has too little memory."""
        serial = self.seconds["serial"]
        return serial / self.seconds[self.winner] if serial < inf else float("nan")


def point(net, width, ranks, batch_size, machine):
    """The Point of one network and batch size."""
    seconds, grids, plans = dict.fromkeys(SCHEMES, inf), {}, {}
    for sizes in [{"batch": 1, "model": 1}, *every_grid(ranks, ("batch", "model"))]:
        scheme = scheme_of(sizes)
        found = best(net, sizes, batch_size, machine)
        if found and scheme != "batch" and set(found.plan.split(",")) == {"replicate"}:
            continue
        if found and found.seconds < seconds[scheme]:
            seconds[scheme], grids[scheme], plans[scheme] = found.seconds, found.grid, found.plan
    return Point(width, batch_size, seconds, grids, plans)


def best(net, sizes, batch_size, machine):
    """The planner's Candidate for one grid; None if it needs more memory than there is."""
    try:
        return Planner(net, sizes["batch"] * sizes["model"], batch_size, machine, PlacementSpec(grid=sizes)).best(shown=0)[0]
    except NoRoom:
        return None


def scan(widths, batch_sizes, ranks, machine, dtype):
    """The Points of all widths and batch sizes, one row for each width."""
    nets = {width: network(width, dtype) for width in widths}
    rows = tqdm(widths, unit=" widths", delay=2, disable=None)
    return [[point(nets[width], width, ranks, batch_size, machine) for batch_size in batch_sizes] for width in rows]


def thresholds(rows):
    """For each width, {scheme: the global batches at which it wins}."""
    return {row[0].width: {scheme: [p.batch_size for p in row if p.winner == scheme] for scheme in SCHEMES} for row in rows}


def cells(row):
    """The row of the table that is printed, of the Points of one width."""
    speedups = [point.speedup for point in row if isfinite(point.speedup)]
    found = {"width": row[0].width}
    for scheme, sizes in thresholds([row])[row[0].width].items():
        found[NAMES[scheme]] = f"{sizes[0]} - {sizes[-1]}" if len(sizes) > 1 else sizes[0] if sizes else None
    return found | {"speedup over 1 rank": f"{min(speedups):.3g} - {max(speedups):.3g}" if speedups else None}


def as_json(rows, ranks, machine, dtype):
    """The numbers behind the figure: seconds and speedups are predicted."""
    points = [
        {"width": p.width, "batch_size": p.batch_size, "winner": p.winner, "speedup": finite(p.speedup),
         "grid": p.grids.get(p.winner), "plan": p.plans.get(p.winner),
         "seconds": {scheme: finite(seconds) for scheme, seconds in p.seconds.items()}}
        for row in rows for p in row
    ]  # fmt: skip
    return {"predicted": True, "machine": machine.name, "ranks": ranks, "dtype": dtype, "features": SHAPE[0],
            "hidden_layers": HIDDEN, "outputs": OUTPUTS, "winners": thresholds(rows), "points": points}  # fmt: skip


def finite(number):
    """A number with six digits; None if it is not finite, which JSON cannot hold."""
    return rounded(number) if isfinite(number) else None


def draw(rows, ranks, machine, dtype, out):
    """Draw the map: colours show the fastest scheme, contour lines its speedup over one rank."""
    figure, panel = plt.subplots(figsize=(10, 6.4), layout="constrained")
    x, y = ([log2(value) for value in values] for values in ([p.batch_size for p in rows[0]], [row[0].width for row in rows]))
    order = list(SCHEMES)
    winners = [[order.index(p.winner) for p in row] for row in rows]
    colours, bounds = ListedColormap(SCHEMES.values()), BoundaryNorm(range(len(order) + 1), len(order))
    panel.pcolormesh(x, y, winners, cmap=colours, norm=bounds, shading="nearest")
    speedups = [[p.speedup for p in row] for row in rows]
    if len(x) > 1 and len(y) > 1:
        lines = panel.contour(x, y, speedups, LEVELS, colors="black", linewidths=1)
        panel.clabel(lines, fmt=lambda level: f"{level:g}x", fontsize=9)
    for width in MODEL_SIZES:
        panel.plot(log2(BATCH_SIZE), log2(width), "*", color="crimson", ms=13, mec="white", zorder=3)
        panel.annotate(
            f"Laugier 2018: {width}", (log2(BATCH_SIZE), log2(width)), (9, -4), textcoords="offset points", fontsize=9
        )
    panel.set_xticks(x, [f"{2**value:g}" for value in x], rotation=45)
    panel.set_yticks(y, [f"{2**value:g}" for value in y])
    panel.set(xlabel="global batch (samples)", ylabel=f"width of each of the {HIDDEN} hidden layers (units)")
    panel.set_xlim(min(*x, log2(BATCH_SIZE)) - 0.5, max(*x, log2(BATCH_SIZE)) + 0.5)
    panel.set_ylim(min(y) - 0.5, max(y) + 0.5)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in SCHEMES.values()]
    handles.append(plt.Line2D([], [], color="black", lw=1))
    names = [*NAMES.values(), "speedup over 1 rank"]
    figure.legend(handles, names, title="fastest", loc="outside right upper")
    network = f"{SHAPE[0]} features, {OUTPUTS} outputs, relu, {dtype}; each grid with its best plan"
    panel.set_title(f"Predicted: the fastest scheme on {ranks} ranks of {machine.name}\n{network}", fontsize=11)
    save(figure, out)


def options():
    parser = Parser(
        prog="study thresholds",
        description="Which parallelism is predicted to be the fastest, by model size and batch? Starts no job.",
    )
    add = parser.add_argument
    add("--ranks", type=whole(2), default=32, metavar="P", help="number of ranks")
    words = f"a file that calibrate wrote, or one of {', '.join(machines.names())}"
    add("--machine", default="cori-haswell", metavar="NAME", help=words)
    add("--widths", type=whole_list, default=WIDTHS, metavar="N,N,..", help="widths of the hidden layers")
    add("--batch-sizes", type=whole_list, default=BATCH_SIZES, metavar="B,B,..", help="samples in the global minibatch")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add("--out", default="results/thresholds.png", metavar="FILE", help="the figure; the numbers go beside it, as .json")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        numbers = Path(args.out).with_suffix(".json")
        if numbers == Path(args.out):
            raise ValueError(f"--out {args.out}: name the figure (.png, .pdf or .svg); the numbers go beside it")
        check_writable(args.out)
        machine = machines.read(args.machine)
        rows = scan(sorted(set(args.widths)), sorted(set(args.batch_sizes)), args.ranks, machine, args.dtype)
        draw(rows, args.ranks, machine, args.dtype, args.out)
    write_json(numbers, as_json(rows, args.ranks, machine, args.dtype), indent=None)
    print(f"The global batches at which a scheme is predicted to be the fastest on {args.ranks} ranks of {machine.name}:")
    print(table(list(map(cells, rows))))
    print(f"figure written to {args.out}, numbers to {numbers}")


if __name__ == "__main__":
    run_launcher(main)
