"""What the pictures of the documents are made of: boxes of ranks, arrays of which a rank holds a part, arrows, and captions."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from gridgrad.parallel.placement.partition import indices

SAMPLES, WEIGHTS, ELSEWHERE, HALO = "#3b7dd8", "#e08a1e", "#e9ebef", "#a9cbf5"
RANKS = "#4477aa", "#ee8866", "#44aa77", "#ddbb44", "#aa3377", "#66ccee", "#888888", "#994455"
EDGE, TEXT = "#5b6470", "#20252b"
HEAD = 0.36  # the height of the line "rank 0" at the top of a box


def runs(part):
    """A part of a dimension as a list of (start, stop) of consecutive indices."""
    held = indices(part)
    if not len(held):
        return []
    gaps = np.flatnonzero(np.diff(held) > 1)
    starts, stops = np.r_[held[0], held[gaps + 1]], np.r_[held[gaps], held[-1]] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def words(part, name):
    """A part in words, such as "samples 0-31"; only "no samples" if it is empty."""
    found = [f"{start}-{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in runs(part)]
    return f"{name} {','.join(found)}" if found else f"no {name}"


def array(axes, place, size, shape, block, colour):
    """An array of `shape` (rows, columns) at `place`, of which a rank holds `block`, a part of each of both dimensions."""
    (x, y), (width, height), (rows, columns) = place, size, shape
    axes.add_patch(Rectangle(place, width, height, facecolor=ELSEWHERE, edgecolor=EDGE, linewidth=0.7))
    for first, last in runs(block[0]):
        for left, right in runs(block[1]):
            corner = x + left / columns * width, y + (1 - last / rows) * height
            part = (right - left) / columns * width, (last - first) / rows * height
            axes.add_patch(Rectangle(corner, *part, facecolor=colour, edgecolor=EDGE, linewidth=0.7))


def box(axes, place, size, title):
    """The box of a rank, with its title in the upper left corner."""
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(place, *size, boxstyle=style, facecolor="white", edgecolor=EDGE))
    axes.text(place[0] + 0.1, place[1] + size[1] - 0.1, title, fontsize=8.5, va="top", color=TEXT, weight="bold")


def caption(axes, x, y, text, **style):
    """Small text whose middle is at (x, y)."""
    axes.text(x, y, text, **{"fontsize": 6.8, "ha": "center", "va": "center", "color": TEXT, "linespacing": 1.1} | style)


def arrow(axes, start, stop, text, colour, **place):
    """A double arrow along which ranks communicate."""
    axes.annotate("", stop, start, arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1.6})
    axes.text(*place.pop("at"), text, fontsize=8.5, color=colour, ha="center", va="center", **place)


def frame(axes, left, right, bottom, top):
    """Show this part of the plane, without axes and with equal scales."""
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.axis("off")


def legend(figure, entries):
    """What colours mean, below a figure: {words: colour}."""
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=EDGE) for colour in entries.values()]
    figure.legend(handles, list(entries), loc="lower center", ncols=len(entries), frameon=False, fontsize=9)


def save(figure, path):
    figure.savefig(path, dpi=130, bbox_inches="tight", pad_inches=0.12)
    plt.close(figure)
