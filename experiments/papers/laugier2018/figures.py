"""Figures 5 to 7 of Laugier et al. 2018 as they are predicted, with the numbers that the paper prints.

A row for each kind of curve: over the number of ranks, a line for each model size. On the left what the cost model takes, with
all ranks on one node (solid) and one on each node (dashed); on the right the same with the settings of the paper's code.
"""

from gridgrad.experiments.plots.style import colours_of, plt, save

NAMES = {"batch": "batch: speedup over one rank", "model": "model: speedup over one rank", "2-D": "2-D: speedup over one rank",
         "2-D over batch": "2-D over batch on as many ranks"}  # fmt: skip
TITLES = "the cost model: all ranks on one node,\ndashed: one rank a node", "with the settings of the paper's code"
CRIMSON = "crimson"


def draw(curves, printed, out):
    """Draw the curves and write the figure to `out`.

    curves: {what is assumed: {(kind, model size): {ranks: value}}}, of which the first two are on the left and the last one on
    the right. printed: {kind: (ranks or None, value, words)}; without a number of ranks it is a horizontal line.
    """
    solid, dashed, right = curves.values()
    kinds = list(dict.fromkeys(kind for kind, _ in solid))
    sizes = list(dict.fromkeys(size for _, size in solid))
    colours = colours_of(sizes)
    figure, panels = plt.subplots(
        len(kinds), 2, figsize=(8, 1 + 2.6 * len(kinds)), layout="constrained", sharex=True, sharey="row"
    )
    for kind, row in zip(kinds, panels):
        for panel, lines in zip(row, (((solid, "-"), (dashed, "--")), ((right, "-"),))):
            for found, style in lines:
                for size in sizes:
                    ranks, values = zip(*found[kind, size].items())
                    panel.plot(ranks, values, style, color=colours[size], marker=".", lw=1.3)
            if kind in printed:
                draw_printed(panel, *printed[kind])
            panel.set_xscale("log", base=2)
            panel.set_yscale("log", base=2)
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.grid(alpha=0.3)
        row[0].set_ylabel(NAMES[kind], fontsize=9)
    for panel, title in zip(panels[0], TITLES):
        panel.set_title(title, fontsize=10)
    for panel in panels[-1]:
        panel.set_xlabel("ranks P")
    handles = [plt.Line2D([], [], color=colours[size], marker=".") for size in sizes]
    figure.legend(handles, [f"size {size}" for size in sizes], loc="outside lower center", ncols=len(sizes), fontsize=9)
    figure.suptitle("Laugier et al. 2018, predicted for Cori (red: printed in the paper)", fontsize=11)
    save(figure, out)


def draw_printed(panel, ranks, value, words):
    """A number of the paper: a star, or a line where it has no number of ranks."""
    if ranks is None:
        panel.axhline(value, color=CRIMSON, lw=1)
    else:
        panel.plot(ranks, value, "*", color=CRIMSON, ms=12, mec="white", zorder=3)
    panel.annotate(words, (0.02, 0.97), xycoords="axes fraction", va="top", fontsize=7.5, color=CRIMSON)
