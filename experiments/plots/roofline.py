"""The roofline of one core, of the JSON that `summary --measure` writes: roofs and layers on logarithmic axes."""

from gridgrad.experiments.common.report import busy_words
from gridgrad.experiments.plots import style as looks
from gridgrad.nn.files.documents import AT_LEAST_0, SECONDS, TEXT, Optional, check, content_of_file

PASSES = {"forward": ("o", "forward"), "gradients": ("^", "gradient of the weights"),
          "input_gradient": ("v", "gradient of the input"), "backward": ("D", "backward")}  # fmt: skip
LINES = "-", "--", "-.", ":"  # of memory and of the caches, the farthest first
MEASURED = {
    "versions": {"processor": TEXT, "blas": TEXT}, "busy_cores": Optional(AT_LEAST_0), "flops_per_second": SECONDS,
    "bandwidths": [{"name": TEXT, "bytes_per_second": SECONDS}],
    "points": [{"family": TEXT, "pass": TEXT, "algorithm": TEXT, "flops": SECONDS, "intensity": SECONDS,
                "seconds": {"median": SECONDS, "min": SECONDS, "max": SECONDS}}],
}  # fmt: skip
NOTE = ("Intensity: the operations of the direct algorithm over the bytes of all arrays, each read or written once. Roofs are "
        "measured: large matrix products, and reading or copying arrays, whichever moves more. Winograd's algorithm computes "
        "fewer operations than are counted, and arrays may stay in a cache from one call to the next, so points may lie above "
        "a roof.")  # fmt: skip


def read(path):
    """The measurements in a file, checked; ValueError if it holds none."""
    content = content_of_file(path)
    try:
        check(content, MEASURED)
        if not content["points"] or not content["bandwidths"]:
            raise ValueError("it has no points")
        if unknown := {point["pass"] for point in content["points"]} - PASSES.keys():
            raise ValueError(f"there is no pass {min(unknown)}")
    except ValueError as error:
        raise ValueError(f"{path} holds no roofline that can be drawn ({error}): summary --measure writes one") from None
    return content


def draw(result, look=looks.FITTING):
    """A figure of what `read` returns."""
    width = look.width or looks.PAGE
    figure, [[axes]] = looks.frame(1, 1, width, max(2.6, 0.5 * width))
    found, peak, levels = result["points"], result["flops_per_second"], result["bandwidths"]
    families = list(dict.fromkeys(point["family"] for point in found))
    colours = {family: looks.COLOURS[number % len(looks.COLOURS)] for number, family in enumerate(families)}
    for point in found:
        middle, slowest, fastest = (point["flops"] / point["seconds"][name] / 1e9 for name in ("median", "max", "min"))
        colour = colours[point["family"]]
        fill = "white" if point["algorithm"] == "Winograd" else colour
        looks.draw_ranges(axes, [point["intensity"]], [middle], [slowest], [fastest], fmt=PASSES[point["pass"]][0],
                          color=colour, mfc=fill, ms=4.5, mew=0.9, lw=0.8, zorder=3)  # fmt: skip
    intensities = [point["intensity"] for point in found]
    memory = levels[-1]["bytes_per_second"]
    left, right = min(0.25, 0.5 * min(intensities)), 2 * max(*intensities, 2 * peak / memory)
    for level, style in zip(reversed(levels), LINES):
        rate = level["bytes_per_second"]
        x = left, peak / rate, right
        axes.plot(x, [min(peak, rate * intensity) / 1e9 for intensity in x], color="black", lw=1, ls=style, zorder=2)
    axes.annotate(f"matrix products, {peak / 1e9:.0f} GFLOP/s", (left, peak / 1e9), (4, 3), textcoords="offset points",
                  fontsize=looks.SMALL)  # fmt: skip
    slowest = min(point["flops"] / point["seconds"]["max"] for point in found)
    looks.log_axis(axes, [0.8 * min(slowest, left * memory) / 1e9, 2 * peak / 1e9])
    looks.log_axis(axes, [left, right], which="x")
    axes.set(xlim=(left, right), xlabel="arithmetic intensity (FLOP/byte)", ylabel="speed (GFLOP/s)")
    passes = {point["pass"] for point in found}
    legend = [(looks.mark(ls="", marker="s", color=colour), family) for family, colour in colours.items()]
    legend += [(looks.mark(ls="", marker=shape), words) for name, (shape, words) in PASSES.items() if name in passes]
    if any(point["algorithm"] == "Winograd" for point in found):
        legend.append((looks.mark(ls="", marker="o", mfc="white"), "Winograd's algorithm"))
    legend += [(looks.mark(ls=style), f"{level['name']}, {level['bytes_per_second'] / 1e9:.0f} GB/s")
                     for level, style in zip(reversed(levels), LINES)]  # fmt: skip
    where = f"One core of {result['versions']['processor']}, {result['versions']['blas']}, float32"
    words = f"{where}; medians and ranges of the rounds. {NOTE}{busy_words(result['busy_cores'] or 0)}"
    return looks.finish(figure, look, legend, [words])
