"""Draw docs/house.png, the folders of the code, and docs/step.png, what four ranks hold and send in a training step.

    python -m docs.draw_how_it_works --out docs

All blocks of the step are those of the Layouts with which the network would run.
"""

import argparse
import math
from pathlib import Path

from matplotlib.patches import Rectangle

from docs.placed_ranks import on_every_rank
from docs.shapes import EDGE, SAMPLES, TEXT, WEIGHTS, array, box, caption, frame, legend, plt, save
from gridgrad.nn import Linear, ReLU, Sequential
from gridgrad.parallel.placement.partition import Partition

# ----- the folders, from the top: what a folder imports stands below it
PROGRAMS = ("experiments", "train, sweep, plot, explain, bench, .."), ("datasets", "samples and their order")
PARALLEL = (
    (("choose", "grid, plan, shares"), ("calibration", "measure a machine"), ("protocols", "workers that train apart")),
    (("training", "the network of a rank, its steps"), ("faults", "who hangs, what is not finite"),
     ("observe", "profiles and traces")),
    (("prediction", "what a step takes"), ("pipeline", "schedules, as data"), ("partitioning", "hypergraphs and cuts"),
     ("checkpoint", "save, resume")),
    (("sync", "which gradients are summed, who updates what"), ("plans", "how a layer's weights are divided")),
    (("placement", "the heart: Partition, placements, Layout, the table of moves, Redistribute, the Placer"),),
    (("grid", "ranks on axes, their collectives"), ("job", "ranks that start and end together")),
)  # fmt: skip
SERIAL = (
    ("layers", "Linear, Conv2d, .."), ("kernels", "products on BLAS"), ("optimizers", "SGD, Adam, .."),
    ("zoo", "known networks"), ("files", "weights, HDF5"),
)  # fmt: skip
WIDE, LOW, BETWEEN, INSIDE = 10.0, 0.62, 0.14, 0.3


def row_of_boxes(axes, boxes, top):
    """Boxes of equal widths side by side, each with its name and what it does; returns their lower edge."""
    each = (WIDE - BETWEEN * (len(boxes) - 1)) / len(boxes)
    for number, (name, words) in enumerate(boxes):
        x = number * (each + BETWEEN)
        box(axes, (x, top - LOW), (each, LOW), name)
        axes.text(x + 0.1, top - 0.32, words, fontsize=7.6, va="top", color=TEXT)
    return top - LOW


def around(axes, top, bottom, title, colour):
    """The frame of a package behind its folders."""
    left, wide = -INSIDE, WIDE + 2 * INSIDE
    axes.add_patch(Rectangle((left, bottom), wide, top - bottom, facecolor=colour, edgecolor=EDGE, linewidth=0.8, zorder=0))
    axes.text(left + 0.12, top - 0.08, title, fontsize=9, va="top", color=TEXT, weight="bold")


def draw_house(path):
    figure, axes = plt.subplots(figsize=(9.4, 6.9))
    low = row_of_boxes(axes, PROGRAMS, 0.0)
    top = low - 0.3
    low = top - 0.36
    for boxes in PARALLEL:
        low = row_of_boxes(axes, boxes, low) - BETWEEN
    around(axes, top, low - 0.08, "parallel: NumPy and MPI", "#e4edf8")
    top = low - 0.38
    low = row_of_boxes(axes, SERIAL, top - 0.36)
    around(axes, top, low - 0.22, "nn: the serial network, NumPy alone", "#fbefdd")
    axes.annotate("", (WIDE + 0.62, low), (WIDE + 0.62, 0), arrowprops={"arrowstyle": "->", "color": EDGE, "linewidth": 1.4})
    axes.text(WIDE + 0.85, low / 2, "imports", fontsize=8.5, rotation=270, ha="center", va="center", color=EDGE)
    frame(axes, -INSIDE - 0.05, WIDE + 1.05, low - 0.3, 0.08)
    save(figure, path)


# ----- the step
SIDE, APART, LABEL = 0.66, 0.3, 4.9
ROW, MOVE = 1.1, 0.5  # the height of a moment, and of a collective in front of it
PARTIAL = "////"


def held(axes, x, y, name, shape, block, colour, partial=False):
    """An array of which the rank holds a block; hatched where that is a partial sum."""
    array(axes, (x, y), (SIDE, SIDE), shape, block, colour)
    if partial:
        (rows, columns), (a, b) = shape, (range(length)[part] for length, part in zip(shape, block, strict=True))
        corner = x + b.start / columns * SIDE, y + (1 - a.stop / rows) * SIDE
        part = len(b) / columns * SIDE, len(a) / rows * SIDE
        axes.add_patch(Rectangle(corner, *part, fill=False, edgecolor="white", hatch=PARTIAL, linewidth=0))
    caption(axes, x + SIDE / 2, y + SIDE + 0.13, name, weight="bold")


def moments(samples, inputs, hidden, outputs):
    """[(what happens, with which collective along which axis or "", a function from a Rank to its arrays)], in order of time.

    An array is (name, shape, block, colour, whether it is a partial sum).
    """
    everything = slice(0, outputs)

    def weights(rank, names, partial=False):
        return [(name, held.shape, held.block, WEIGHTS, partial) for name, held in zip(names, rank.weights, strict=True)]

    def minibatch(rank):
        return [("X", (samples, inputs), rank.input(samples).block, SAMPLES, False), *weights(rank, ("W1", "W2"))]

    def activations(rank):
        rows, columns = rank.input(samples).block[0], rank.weights[0].block[1]
        return [("H", (samples, hidden), (rows, columns), SAMPLES, False),
                ("Y", (samples, outputs), (rows, everything), SAMPLES, True)]  # fmt: skip

    def outputs_of(name):
        return lambda rank: [(name, (samples, outputs), rank.output(samples).block, SAMPLES, False)]

    def gradient(rank):
        return [("dY", (samples, outputs), (rank.input(samples).block[0], everything), SAMPLES, False)]

    def bucket(name):
        def arrays(rank):
            length = sum(math.prod(held.layout.local_shape(rank.coordinates)) for held in rank.weights)
            mine = Partition.even(length, 2).part(rank.coordinates["batch"])
            return [(name, (1, length), (slice(0, 1), mine), WEIGHTS, False)]

        return arrays

    return [
        ("what a rank holds before the step", "", minibatch),
        ("forward: both layers\nH is half of the features; Y is a partial sum", "", activations),
        ("Partial -> Shard: the outputs\nof half of the samples; the loss", "reduce-scatter along model", outputs_of("Y")),
        ("backward: Shard -> Replicate,\nthe adjoint of the move before", "all-gather along model", gradient),
        ("gradients of the weights,\npartial sums over a rank's own samples", "", lambda r: weights(r, ("dW1", "dW2"), True)),
        ("Partial -> Shard: the sum of the slice\nthat a rank owns, while backward goes on", "reduce-scatter along batch",
         bucket("gradients")),
        ("the optimizer updates that slice", "", bucket("parameters")),
        ("Shard -> Replicate:\nthe parameters of the block", "all-gather along batch", lambda r: weights(r, ("W1", "W2"))),
    ]  # fmt: skip


def draw_step(path, samples=8, inputs=12, hidden=16, outputs=3):
    ranks = on_every_rank(
        Sequential([Linear(inputs, hidden), ReLU(), Linear(hidden, outputs)], input_shape=(inputs,)), {"batch": 2, "model": 2}
    )
    wide = 3 * (SIDE + APART)
    figure, axes = plt.subplots(figsize=(10.4, 6.7))
    middles = [LABEL + (wide + 0.25) * number + wide / 2 for number in range(len(ranks))]
    for number, (rank, middle) in enumerate(zip(ranks, middles, strict=True)):
        caption(axes, middle, 0.8, f"rank {number}", fontsize=9, weight="bold")
        caption(axes, middle, 0.52, f"batch={rank.coordinates['batch']}, model={rank.coordinates['model']}", fontsize=7.6)
    y = ROW - SIDE
    for words, move, arrays in moments(samples, inputs, hidden, outputs):
        y -= ROW
        if move:
            collective(axes, move, middles, ranks, y + SIDE + 0.02)
            y -= MOVE
        axes.text(0, y + SIDE / 2, words, fontsize=7.8, va="center", color=TEXT, linespacing=1.2)
        for rank, middle in zip(ranks, middles, strict=True):
            shown = arrays(rank)
            left = middle - (len(shown) * (SIDE + APART) - APART) / 2
            for place, found in enumerate(shown):
                held(axes, left + place * (SIDE + APART), y, *found)
    frame(axes, -0.05, middles[-1] + wide / 2 + 0.1, y - 0.1, 0.95)
    legend(figure, {"of the minibatch": SAMPLES, "of the weights": WEIGHTS, "hatched: a partial sum": "white"})
    save(figure, path)


def collective(axes, words, middles, ranks, y):
    """Lines between the ranks that differ along the axis which the words end with."""
    axis = words.split()[-1]
    colour = SAMPLES if axis == "model" else WEIGHTS
    for number, rank in enumerate(ranks):
        others = {name: at for name, at in rank.coordinates.items() if name != axis}
        for other in range(number + 1, len(ranks)):
            if others == {name: at for name, at in ranks[other].coordinates.items() if name != axis}:
                height = y - 0.13 * (number if axis == "batch" else 0)
                style = {"arrowstyle": "<->", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", (middles[other], height), (middles[number], height), arrowprops=style)
    axes.text(0, y - 0.06, words, fontsize=8.2, va="center", color=colour, weight="bold")


def main():
    parser = argparse.ArgumentParser(description="Draw the folders of the code, and a training step.")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder of the figures; default %(default)s")
    folder = parser.parse_args().out
    draw_house(folder / "house.png")
    draw_step(folder / "step.png")


if __name__ == "__main__":
    main()
