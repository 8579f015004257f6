"""Draw docs/grid.png: which samples, image rows and weights each rank of a process grid holds.

    python docs/draw_grid.py --out docs/grid.png

Above a 2-D grid and a fully connected layer, below a 3-D grid and a convolution.
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

SAMPLES, WEIGHTS, ELSEWHERE = "#3b7dd8", "#e08a1e", "#e9ebef"
EDGE, TEXT = "#5b6470", "#20252b"
CELL_WIDTH, CELL_HEIGHT, GAP = 2.5, 1.55, 0.14


def blocks(n, parts):
    """n things over `parts` ranks: the bounds of each rank's part, larger parts first."""
    sizes = [n // parts + (part < n % parts) for part in range(parts)]
    return [(sum(sizes[:part]), sum(sizes[: part + 1])) for part in range(parts)]


def array(axes, x, y, width, height, rows, columns, colour):
    """An array of which this rank holds a part. rows, columns: (start, stop) of that part, as fractions of the whole."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=ELSEWHERE, edgecolor=EDGE, linewidth=0.7))
    left, top = x + columns[0] * width, y + (1 - rows[0]) * height
    part = (columns[1] - columns[0]) * width, (rows[0] - rows[1]) * height
    axes.add_patch(Rectangle((left, top), *part, facecolor=colour, edgecolor=EDGE, linewidth=0.7))


def cell(axes, column, row, rank):
    """The box of a rank; returns its lower left corner."""
    x, y = column * (CELL_WIDTH + GAP), -row * (CELL_HEIGHT + GAP)
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), CELL_WIDTH, CELL_HEIGHT, boxstyle=shape, facecolor="white", edgecolor=EDGE))
    axes.text(x + 0.1, y + CELL_HEIGHT - 0.1, f"rank {rank}", fontsize=8.5, va="top", color=TEXT, weight="bold")
    return x, y


def fraction(block, n):
    return block[0] / n, block[1] / n


def arrow(axes, start, stop, text, colour, **place):
    """A double arrow along which ranks communicate."""
    axes.annotate("", stop, start, arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1.6})
    axes.text(*place.pop("at"), text, fontsize=8.5, color=colour, ha="center", va="center", **place)


def fully_connected(axes, batch=2, model=3, samples=64, neurons=100):
    """batch x model: a block of rows of X and a block of columns of W on each rank."""
    axes.set_title(f"grid batch={batch},model={model}: a layer of {neurons} neurons, {samples} samples", fontsize=10.5)
    rows, columns = blocks(samples, batch), blocks(neurons, model)
    for i, mine in enumerate(rows):
        for j, held in enumerate(columns):
            x, y = cell(axes, j, i, i * model + j)
            array(axes, x + 0.22, y + 0.3, 0.85, 0.8, fraction(mine, samples), (0, 1), SAMPLES)
            array(axes, x + 1.45, y + 0.3, 0.85, 0.8, (0, 1), fraction(held, neurons), WEIGHTS)
            text = {"fontsize": 6.8, "ha": "center", "va": "center", "color": TEXT}
            axes.text(x + 0.64, y + 0.16, f"samples {mine[0]}-{mine[1] - 1}", **text)
            axes.text(x + 1.87, y + 0.16, f"neurons {held[0]}-{held[1] - 1}", **text)
    right, bottom = model * (CELL_WIDTH + GAP) - GAP, -(batch - 1) * (CELL_HEIGHT + GAP)
    arrow(axes, (0, bottom - 0.22), (right, bottom - 0.22), "along model: activations (all-gather, reduce-scatter)",
          SAMPLES, at=(right / 2, bottom - 0.5))  # fmt: skip
    arrow(axes, (-0.22, CELL_HEIGHT), (-0.22, bottom), "along batch: gradients of the\nweights (all-reduce)",
          WEIGHTS, at=(-0.62, (CELL_HEIGHT + bottom) / 2), rotation=90)  # fmt: skip
    frame(axes, right, bottom, CELL_HEIGHT + 0.1)


def convolution(axes, batch=2, height=2, model=2, kernels=32):
    """batch x height x model: some rows of some images, and some kernels."""
    axes.set_title(f"grid batch={batch},height={height},model={model}: a convolution of {kernels} kernels", fontsize=10.5)
    filters = blocks(kernels, model)
    for b in range(batch):
        for i in range(height):
            for j, held in enumerate(filters):
                x, y = cell(axes, b * model + j + 0.12 * b, i, (b * height + i) * model + j)
                for image in range(2):  # the images of the minibatch, two of them drawn
                    here = (i / height, (i + 1) / height) if image == b else (0, 0)
                    array(axes, x + 0.16 + 0.6 * image, y + 0.47, 0.52, 0.66, here, (0, 1), SAMPLES)
                array(axes, x + 1.62, y + 0.47, 0.72, 0.66, (0, 1), fraction(held, kernels), WEIGHTS)
                rows, half = ("upper", "lower")[i], ("first", "second")[b]
                text = {"fontsize": 6.4, "ha": "center", "va": "center", "color": TEXT}
                axes.text(x + 0.72, y + 0.25, f"{rows} rows, {half}\nhalf of the images", **text)
                axes.text(x + 1.98, y + 0.25, f"kernels\n{held[0]}-{held[1] - 1}", **text)
    right = (batch * model + 0.12) * (CELL_WIDTH + GAP) - GAP
    bottom = -(height - 1) * (CELL_HEIGHT + GAP)
    plane = model * (CELL_WIDTH + GAP) - GAP
    for b in range(batch):
        left = b * (model + 0.12) * (CELL_WIDTH + GAP)
        arrow(axes, (left, bottom - 0.22), (left + plane, bottom - 0.22), "along model: activations", SAMPLES,
              at=(left + plane / 2, bottom - 0.5))  # fmt: skip
    arrow(axes, (0, CELL_HEIGHT + 0.2), (right, CELL_HEIGHT + 0.2),
          "along batch and height: gradients of the kernels", WEIGHTS, at=(right / 2, CELL_HEIGHT + 0.45))  # fmt: skip
    arrow(axes, (-0.22, CELL_HEIGHT), (-0.22, bottom), "along height: halos\n(rows at the borders)", SAMPLES,
          at=(-0.62, (CELL_HEIGHT + bottom) / 2), rotation=90)  # fmt: skip
    frame(axes, right, bottom, CELL_HEIGHT + 0.65)


def frame(axes, right, bottom, top):
    axes.set_xlim(-1.05, right + 0.1)
    axes.set_ylim(bottom - 0.75, top)
    axes.set_aspect("equal")
    axes.axis("off")


def main():
    parser = argparse.ArgumentParser(description="Draw what each rank of a process grid holds.")
    parser.add_argument("--out", default="docs/grid.png", help="the figure (.png, .pdf or .svg); default %(default)s")
    args = parser.parse_args()
    figure, (above, below) = plt.subplots(2, 1, figsize=(9.4, 7.4), height_ratios=(1, 1))
    fully_connected(above)
    convolution(below)
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=EDGE) for colour in (SAMPLES, WEIGHTS, ELSEWHERE)]
    labels = ["samples that the rank holds", "weights that it holds", "what other ranks hold"]
    figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(args.out, dpi=130)


if __name__ == "__main__":
    main()
