"""Draw docs/grid.png: which samples, image rows and weights each rank of a process grid holds.

    python -m docs.draw_grid --out docs/grid.png

Above a 2-D grid and a fully connected layer, below a 3-D grid and a convolution. All blocks are those of the Layouts with which
the network would run.
"""

import argparse

from docs.placed_ranks import on_every_rank
from docs.shapes import ELSEWHERE, SAMPLES, WEIGHTS, array, arrow, box, caption, frame, legend, plt, save, words
from gridgrad.nn import Conv2d, Linear, Sequential

WIDTH, HEIGHT, GAP = 2.5, 1.55, 0.14


def fully_connected(axes, sizes, samples=64, neurons=100):
    """batch x model: a block of rows of X and a block of columns of W on each rank."""
    net = Sequential([Linear(30, neurons)], input_shape=(30,))
    title = ",".join(f"{axis}={size}" for axis, size in sizes.items())
    axes.set_title(f"grid {title}: a layer of {neurons} neurons, {samples} samples", fontsize=10.5)
    for number, rank in enumerate(on_every_rank(net, sizes, "out")):
        x, y = rank.coordinates["model"] * (WIDTH + GAP), -rank.coordinates["batch"] * (HEIGHT + GAP)
        mine, (weight,) = rank.input(samples), rank.weights
        box(axes, (x, y), (WIDTH, HEIGHT), f"rank {number}")
        array(axes, (x + 0.22, y + 0.3), (0.85, 0.8), mine.shape, mine.block, SAMPLES)
        array(axes, (x + 1.45, y + 0.3), (0.85, 0.8), weight.shape, weight.block, WEIGHTS)
        caption(axes, x + 0.64, y + 0.16, words(mine.block[0], "samples"))
        caption(axes, x + 1.87, y + 0.16, words(weight.block[1], "neurons"))
    right, bottom = sizes["model"] * (WIDTH + GAP) - GAP, -(sizes["batch"] - 1) * (HEIGHT + GAP)
    arrow(axes, (0, bottom - 0.22), (right, bottom - 0.22), "along model: activations (all-gather, reduce-scatter)",
          SAMPLES, at=(right / 2, bottom - 0.5))  # fmt: skip
    arrow(axes, (-0.22, HEIGHT), (-0.22, bottom), "along batch: gradients of the\nweights (all-reduce)",
          WEIGHTS, at=(-0.62, (HEIGHT + bottom) / 2), rotation=90)  # fmt: skip
    frame(axes, -1.05, right + 0.1, bottom - 0.75, HEIGHT + 0.1)


def convolution(axes, sizes, samples=8, side=28, kernels=32):
    """batch x height x model: some rows of some images, and some kernels."""
    net = Sequential([Conv2d(16, kernels, 3, padding=1)], input_shape=(side, side, 16))
    title = ",".join(f"{axis}={size}" for axis, size in sizes.items())
    axes.set_title(f"grid {title}: a convolution of {kernels} kernels, {samples} images of {side} rows", fontsize=10.5)
    for number, rank in enumerate(on_every_rank(net, sizes, "out")):
        place = rank.coordinates
        x = (place["batch"] * (sizes["model"] + 0.12) + place["model"]) * (WIDTH + GAP)
        y = -place["height"] * (HEIGHT + GAP)
        mine, (weight,) = rank.input(samples), rank.weights
        box(axes, (x, y), (WIDTH, HEIGHT), f"rank {number}")
        array(axes, (x + 0.2, y + 0.47), (1.0, 0.66), mine.shape[1::-1], mine.block[1::-1], SAMPLES)  # rows down, images across
        array(axes, (x + 1.62, y + 0.47), (0.72, 0.66), (1, kernels), (slice(0, 1), weight.block[-1]), WEIGHTS)
        caption(axes, x + 0.7, y + 0.25, f"{words(mine.block[1], 'rows')}\nof {words(mine.block[0], 'images')}")
        caption(axes, x + 1.98, y + 0.25, words(weight.block[-1], "kernels").replace(" ", "\n"))
    right = (sizes["batch"] * sizes["model"] + 0.12 * (sizes["batch"] - 1)) * (WIDTH + GAP) - GAP
    bottom, plane = -(sizes["height"] - 1) * (HEIGHT + GAP), sizes["model"] * (WIDTH + GAP) - GAP
    for b in range(sizes["batch"]):
        left = b * (sizes["model"] + 0.12) * (WIDTH + GAP)
        arrow(axes, (left, bottom - 0.22), (left + plane, bottom - 0.22), "along model: activations", SAMPLES,
              at=(left + plane / 2, bottom - 0.5))  # fmt: skip
    arrow(axes, (0, HEIGHT + 0.2), (right, HEIGHT + 0.2), "along batch and height: gradients of the kernels", WEIGHTS,
          at=(right / 2, HEIGHT + 0.45))  # fmt: skip
    arrow(axes, (-0.22, HEIGHT), (-0.22, bottom), "along height: halos\n(rows at the borders)", SAMPLES,
          at=(-0.62, (HEIGHT + bottom) / 2), rotation=90)  # fmt: skip
    frame(axes, -1.05, right + 0.1, bottom - 0.75, HEIGHT + 0.65)


def main():
    parser = argparse.ArgumentParser(description="Draw what each rank of a process grid holds.")
    parser.add_argument("--out", default="docs/grid.png", help="the figure (.png, .pdf or .svg); default %(default)s")
    args = parser.parse_args()
    figure, (above, below) = plt.subplots(2, 1, figsize=(9.4, 7.4), height_ratios=(1, 1))
    fully_connected(above, {"batch": 2, "model": 3})
    convolution(below, {"batch": 2, "height": 2, "model": 2})
    legend(
        figure, {"samples that the rank holds": SAMPLES, "weights that it holds": WEIGHTS, "what other ranks hold": ELSEWHERE}
    )
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    save(figure, args.out)


if __name__ == "__main__":
    main()
