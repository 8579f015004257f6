"""`explain --map`: which parallelism is predicted to be the fastest for each width of a network and each global batch.

Laugier et al. (2018) leave these thresholds to future work. For each width and batch every grid of the axes batch and model is
priced with its best plan: one rank alone, pure batch, pure model, or both.
"""

import re
from contextlib import suppress
from math import inf, isfinite, log2, prod

from tqdm import tqdm

from gridgrad.experiments.common.options import writable_beside
from gridgrad.experiments.common.parallel_schemes import scheme_of
from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.common.tables import rounded, table
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import NoRoom, Planner, every_grid

SCHEMES = {"serial": "lightgrey", "batch": "#9ecae1", "model": "#fdae6b", "2d": "#a1d99b"}  # where equally fast, the first
NAMES = {"serial": "1 rank", "batch": "batch", "model": "model", "2d": "2-D: batch x model"}
WIDTH = re.compile(r"\bW\b")  # stands for the width in the name of the network
LEVELS = [1, 2, 4, 8, 16, 24]  # of the speedup's contours


def write(args, machine):
    """Draw the map of --map, write its numbers beside it, a point for each width and batch, and print for which batches each
    scheme is the fastest. args: the options of explain."""
    numbers = writable_beside(args.map, ".json", ("figure", "numbers"))
    if not WIDTH.search(args.net):
        raise ValueError("--map needs a network with W in place of its width, such as --net mlp:W,W,W,relu --shape 16")
    points = []
    for width in tqdm(sorted(set(args.widths)), unit=" widths", delay=2, disable=None):
        net = published(WIDTH.sub(str(width), args.net), args.shape, args.outputs, args.dtype)
        points += [{"width": width, **point(net, args.ranks, size, machine)} for size in sorted(set(args.batch_sizes))]
    winners = {p["width"]: {scheme: [] for scheme in SCHEMES} for p in points}
    for p in points:
        winners[p["width"]][p["winner"]].append(p["batch_size"])
    found = {"predicted": True, "machine": machine.name, "ranks": args.ranks, "dtype": args.dtype,
             "features": prod(net.input_shape), "hidden_layers": len(WIDTH.findall(args.net)), "outputs": args.outputs,
             "winners": winners, "points": points}  # fmt: skip
    draw(found, args.net, args.map)
    write_json(numbers, found, indent=None)
    rows = []
    for width, of_scheme in winners.items():
        speedups = [p["speedup"] for p in points if p["width"] == width and p["speedup"]]
        ends = {NAMES[name]: " - ".join(map(str, dict.fromkeys((sizes[0], sizes[-1])))) if sizes else None
                for name, sizes in of_scheme.items()}  # fmt: skip
        gain = f"{min(speedups):.3g} - {max(speedups):.3g}" if speedups else None
        rows.append({"width": width, **ends, "speedup over 1 rank": gain})
    print(f"The global batches at which a scheme is predicted to be the fastest on {args.ranks} ranks of {machine.name}:")
    print(f"{table(rows)}\nfigure written to {args.map}, numbers to {numbers}")


def point(net, ranks, batch_size, machine):
    """The fastest plan of each scheme. A scheme has no seconds where no plan fits the memory, or where it equals pure batch."""
    seconds, chosen = dict.fromkeys(SCHEMES, inf), {}
    for sizes in [{BATCH: 1, MODEL: 1}, *every_grid(ranks, (BATCH, MODEL))]:
        scheme = scheme_of(sizes)
        with suppress(NoRoom):
            found = Planner(net, prod(sizes.values()), batch_size, machine, PlacementSpec(sizes)).best(shown=0)[0]
            same = scheme != BATCH and set(found.plan.split(",")) == {"replicate"}
            if not same and found.seconds < seconds[scheme]:
                seconds[scheme], chosen[scheme] = found.seconds, found
    winner = min(SCHEMES, key=seconds.get)
    best = chosen.get(winner)
    speedup = rounded(seconds["serial"] / best.seconds) if isfinite(seconds["serial"]) else None
    return {"batch_size": batch_size, "winner": winner, "speedup": speedup, "grid": best and best.grid,
            "plan": best and best.plan,
            "seconds": {name: rounded(one) if isfinite(one) else None for name, one in seconds.items()}}  # fmt: skip


def draw(found, net, out):
    """Draw the map: colours show the fastest scheme, contour lines its speedup over one rank."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    from gridgrad.experiments.plots.style import DPI, NORMAL, PAGE, SMALL, plt, save

    figure, panel = plt.subplots(figsize=(PAGE, 4.6), layout="constrained")
    order, points, widths = list(SCHEMES), found["points"], list(found["winners"])
    rows = [[p for p in points if p["width"] == width] for width in widths]
    sizes = [p["batch_size"] for p in rows[0]]
    x, y = list(map(log2, sizes)), list(map(log2, widths))
    winners = [[order.index(p["winner"]) for p in row] for row in rows]
    colours, bounds = ListedColormap(SCHEMES.values()), BoundaryNorm(range(len(order) + 1), len(order))
    panel.pcolormesh(x, y, winners, cmap=colours, norm=bounds, shading="nearest")
    if len(x) > 1 and len(y) > 1:
        lines = panel.contour(x, y, [[p["speedup"] or float("nan") for p in row] for row in rows], LEVELS, colors="black",
                              linewidths=1)  # fmt: skip
        panel.clabel(lines, fmt=lambda level: f"{level:g}x", fontsize=SMALL)
    panel.set_xticks(x, sizes, rotation=45, fontsize=SMALL)
    panel.set_yticks(y, widths, fontsize=SMALL)
    panel.set_xlabel("global batch (samples)", fontsize=NORMAL)
    panel.set_ylabel("W, the width of the hidden layers (units)", fontsize=NORMAL)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in SCHEMES.values()]
    handles.append(plt.Line2D([], [], color="black", lw=1))
    figure.legend(handles, [*NAMES.values(), "speedup over 1 rank"], title="fastest", loc="outside right upper", fontsize=SMALL,
                  title_fontsize=NORMAL)  # fmt: skip
    title = f"Predicted: the fastest scheme on {found['ranks']} ranks of {found['machine']}"
    panel.set_title(f"{title}\n{net}, {found['dtype']}; each grid with its best plan", fontsize=NORMAL)
    save(figure, out, DPI)
