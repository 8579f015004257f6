"""The figure of `roofline`: roofs and points on logarithmic axes."""

from textwrap import fill

import numpy as np

from gridgrad.experiments.common.report import busy_words
from gridgrad.experiments.plots.figures import draw_ranges, plt, save

MARKS = {
    "forward": ("o", "forward"),
    "gradients": ("^", "gradient of the weights"),
    "input_gradient": ("v", "gradient of the input"),
    "backward": ("D", "backward"),
}
LINES = "-", "--", "-.", ":"  # of memory and of the caches, the farthest first
NOTE = (
    "Intensity: the operations of the direct algorithm over the bytes of all arrays, each read or written once; the three "
    "passes of a layer have the same. Roofs are measured: large matrix products, and reading or copying arrays, whichever "
    "moves more. Hollow points may lie above the roof, because Winograd's algorithm computes fewer operations than are "
    "counted. Layers whose arrays stay in a cache from one call to the next may lie above the roof of memory."
)


def roof(intensity, peak, bandwidth):
    """The most operations a second at this intensity, in FLOP/byte. peak: FLOP/s. bandwidth: bytes/s."""
    return np.minimum(peak, bandwidth * intensity)


def draw(result, out):
    """Draw what `summary --measure` measures."""
    figure, panel = plt.subplots(figsize=(12, 7), layout="constrained")
    found, peak, levels = result["points"], result["flops_per_second"], result["bandwidths"]
    families = dict.fromkeys(point["family"] for point in found)
    colours = {family: f"C{number}" for number, family in enumerate(families)}
    for point in found:
        draw_point(panel, point, colours[point["family"]])
    intensities = [point["intensity"] for point in found]
    left, right = min(0.25, 0.5 * min(intensities)), 2 * max(*intensities, 2 * peak / levels[-1]["bytes_per_second"])
    for level, style in zip(reversed(levels), LINES):
        rate = level["bytes_per_second"]
        x = np.array([left, peak / rate, right])
        label = f"{level['name']}, {rate / 1e9:.0f} GB/s"
        panel.plot(x, roof(x, peak, rate) / 1e9, color="black", lw=1.2, ls=style, zorder=2, label=label)
    slowest = min(point["flops"] / point["seconds"]["max"] for point in found)
    lowest = min(slowest, roof(left, peak, levels[-1]["bytes_per_second"])) / 1e9
    panel.set(xscale="log", yscale="log", xlim=(left, right), ylim=(0.6 * lowest, 4 * peak / 1e9))
    panel.annotate(
        f"matrix products, {peak / 1e9:.0f} GFLOP/s", (left, peak / 1e9), (6, 4), textcoords="offset points", fontsize=9
    )
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set(xlabel="arithmetic intensity (FLOP/byte)", ylabel="speed (GFLOP/s; median and range of the rounds)")
    panel.grid(alpha=0.3)
    panel.set_axisbelow(True)
    legend(figure, panel, colours)
    versions = result["versions"]
    title = f"Roofline of one core: {versions['processor']}, {versions['blas']}, float32."
    panel.set_title(fill(title + busy_words(result["busy_cores"]), 100), fontsize=10)
    figure.supxlabel(fill(NOTE, 175), fontsize=8, x=0.01, ha="left")
    save(figure, out)


def draw_point(panel, point, colour):
    """One pass of a layer and its spread; hollow if Winograd's algorithm computes it."""
    middle, slowest, fastest = (point["flops"] / point["seconds"][name] / 1e9 for name in ("median", "max", "min"))
    style = {"color": colour, "mfc": "white" if point["algorithm"] == "Winograd" else colour, "ms": 7, "lw": 0.8, "zorder": 3}
    draw_ranges(panel, [point["intensity"]], [middle], [slowest], [fastest], fmt=MARKS[point["pass"]][0], **style)


def legend(figure, panel, colours):
    """What colours, marks and lines mean, beside the panel."""
    entry = lambda label, **style: plt.Line2D([], [], ls="", label=label, **style)  # noqa: E731
    handles = [entry("layers"), *(entry(family, marker="s", color=colour) for family, colour in colours.items())]
    handles += [entry(""), entry("passes"), *(entry(name, marker=mark, color="black") for mark, name in MARKS.values())]
    handles += [entry("Winograd's algorithm", marker="o", color="black", mfc="white"), entry(""), entry("roofs")]
    handles += panel.get_legend_handles_labels()[0][::-1]
    figure.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
