"""Figures 1 to 4 of Hegde and Usmani 2016, from the tables of `reproduce hegde2016`."""

from textwrap import fill

import numpy as np
from matplotlib.ticker import NullFormatter

from gridgrad.experiments.common.report import busy_words
from gridgrad.experiments.papers.hegde2016.fits import FittedLine, Power
from gridgrad.experiments.plots.style import draw_ranges, plt, save

NO_GPU = "No GPU was measured, as CuPy finds none here: speedups are those of several CPU threads over one."
MS = "time (ms; median and range of the timings)"
SPEEDUP = "times as fast as one CPU thread\n(median and range of the ratios)"


def remark(versions):
    """What to say about the devices that were measured. versions: by the names of the devices."""
    return "Speedups are over one CPU thread." if any(name.startswith("GPU") for name in versions) else NO_GPU


def draw(tables, out):
    """Write figure1.png to figure4.png to the folder `out`; no figure of speedups where there is one device with one thread."""
    out.mkdir(parents=True, exist_ok=True)
    conv, dense = "convolution of 96 kernels of 11x11, stride 4, on images of 224x224", "fully connected layer of n x n"
    for number, (title, name, panels, draw_panel) in enumerate((
        (f"Forward pass of the {conv}", "convolution_times", "channels", convolution_times),
        (f"Speedup of the {conv}", "convolution_speedups", "channels", convolution_speedups),
        (f"Forward pass of a {dense}", "dense_times", "batch", dense_times),
        (f"Speedup of a {dense}", "dense_speedups", "batch", dense_speedups),
    ), 1):  # fmt: skip
        if tables[name]:
            draw_figure(tables, name, panels, draw_panel, title, out / f"figure{number}.png")


def draw_figure(tables, name, column, draw_panel, title, path):
    """A panel for each value of a column of the table `name`. draw_panel: takes the panel, tables, and the rows by device."""
    kinds = list(dict.fromkeys(row[column] for row in tables[name]))
    figure, panels = plt.subplots(1, len(kinds), figsize=(6 * len(kinds), 5), layout="constrained", squeeze=False)
    for panel, kind in zip(panels[0], kinds):
        devices = {}
        for row in tables[name]:
            if row[column] == kind:
                devices.setdefault(row["device"], []).append(row)
        draw_panel(panel, tables, devices)
        panel.set_title(f"{kind} {'channel' if column == 'channels' else 'sample'}{'s' * (kind != 1)}", fontsize=10)
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
        panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16))  # below, where nothing is drawn
    versions = tables["versions"]
    first = next(iter(versions.values()))
    where = f"{first['processor']}, {first['blas']}. {remark(versions)}{busy_words(tables['busy_cores'])}"
    figure.suptitle(f"{title}\n{fill(where, 85 * len(kinds))}", fontsize=10)
    save(figure, path)


def marks(panel, rows, x, names, **style):
    """Medians and their range. names: the columns of the median, the least and the largest value."""
    draw_ranges(panel, *([row[name] for row in rows] for name in (x, *names)), capsize=2, ms=5, lw=1, **style)


def convolution_times(panel, tables, devices):
    """Times over the batch size with their lines, and the published lines where they are of such images."""
    channels = next(iter(devices.values()))[0]["channels"]
    sizes = sorted({row["batch"] for rows in devices.values() for row in rows})
    ends = np.geomspace(sizes[0], sizes[-1])  # a line with an intercept is bent on logarithmic axes
    fits = [row for row in tables["convolution_slopes"] if row["channels"] == channels]
    for number, (name, rows) in enumerate(devices.items()):
        marks(panel, rows, "batch", ("median_ms", "min_ms", "max_ms"), fmt="o", color=f"C{number}")
        fit = next(row for row in fits if row["device"] == name)
        label = f"{name}: {fit['ms_an_image']:.3g} ms an image, $R^2$ = {fit['R2']:.4f}"
        panel.plot(
            ends, FittedLine(fit["ms_an_image"], fit["intercept_ms"], fit["R2"])(ends), color=f"C{number}", lw=1.2, label=label
        )
    for fit, style in zip((row for row in fits if row["R2"] is None), ("--", ":")):
        label = f"{fit['device']}: {fit['ms_an_image']}, if in ms an image"
        panel.plot(ends, fit["ms_an_image"] * ends, color="grey", ls=style, lw=1.2, label=label)
    logarithmic(panel, sizes)
    panel.set(yscale="log", xlabel="batch size (images)", ylabel=MS)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def dense_times(panel, tables, devices):
    """Times over n on logarithmic axes with their powers."""
    batch = next(iter(devices.values()))[0]["batch"]
    for number, (name, rows) in enumerate(devices.items()):
        marks(panel, rows, "n", ("median_ms", "min_ms", "max_ms"), fmt="o", color=f"C{number}")
        n = np.array([row["n"] for row in rows])
        fit = next(row for row in tables["dense_fits"] if (row["device"], row["batch"]) == (name, batch))
        power = Power(fit["factor_ms"], fit["exponent"], fit["R2"])
        panel.plot(
            n, power(n), color=f"C{number}", lw=1.2, label=f"{name}: $n^{{{power.exponent:.2f}}}$, $R^2$ = {power.r2:.3f}"
        )
    logarithmic(panel, n)
    panel.set(yscale="log", xlabel="n: inputs and outputs", ylabel=MS)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def logarithmic(panel, sizes):
    """A logarithmic axis x with ticks at powers of two."""
    panel.set_xscale("log", base=2)
    ticks = [size for size in sorted(set(sizes)) if size & (size - 1) == 0]
    panel.set_xticks(ticks, [str(size) for size in ticks])
    panel.xaxis.set_minor_formatter(NullFormatter())


def convolution_speedups(panel, tables, devices):
    speedups(panel, devices, "batch", "batch size (images)")


def dense_speedups(panel, tables, devices):
    speedups(panel, devices, "n", "n: inputs and outputs")


def speedups(panel, devices, size, words):
    """Speedups over one CPU thread by size."""
    for number, (name, rows) in enumerate(devices.items(), 1):
        marks(panel, rows, size, ("speedup", "min", "max"), fmt="o-", color=f"C{number}", label=name)
    panel.axhline(1, color="C0", lw=1, label="1 CPU thread")
    logarithmic(panel, [row[size] for row in rows])
    panel.set(xlabel=words, ylabel=SPEEDUP)
    panel.set_ylim(bottom=0)
