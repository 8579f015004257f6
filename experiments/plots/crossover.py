"""The figure of the study `crossover`: grids beside each other, by batch size.

On the left one batch size: the seconds of a step on each grid and the megabytes that a rank sends. With several batch sizes
the same over the batch size on the right, where the lines cross.
"""

from matplotlib.ticker import LogLocator

from gridgrad.experiments.plots.figures import VERSIONS, colours_of, measured_on, plt, save
from gridgrad.nn.files.documents import AT_LEAST_0, SECONDS, TEXT, WHOLE, Each, Optional, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.parallel.grid.process_grid import parse_grid

PARTS = {"compute": "#31688e", "wait": "#b5b5b5", "communicate": "#e08214"}
STEP, SENT = "seconds a step (median, min to max of rounds)", "MB that a rank sends in a step"
REPORT = {
    "net": TEXT, "features": WHOLE, "ranks": WHOLE, "link": TEXT, "versions": VERSIONS,
    "batch_faster_from": Each(Optional(AT_LEAST_0)),
    "rows": [{
        "grid": TEXT, "batch_size": WHOLE, "bytes": Each(AT_LEAST_0),
        "seconds": {"min": SECONDS, "median": SECONDS, "max": SECONDS},
        "time": dict.fromkeys(PARTS, AT_LEAST_0) | {"compute": SECONDS},
    }],
}  # fmt: skip


def read(path):
    """A report of `crossover`; ValueError if the file holds none."""
    try:
        result = content_of(read_limited(path))
        check(result, REPORT)
        if not result["rows"]:
            raise ValueError("it has no rows")
        for row in result["rows"]:
            row["axes"] = {axis: size for axis, size in parse_grid(row["grid"]).items() if size > 1}
            row["megabytes"] = sum(row["bytes"].values()) / result["ranks"] / 1e6
            least, middle, most = (row["seconds"][name] for name in ("min", "median", "max"))
            if not least <= middle <= most:
                raise ValueError("a median lies outside its range")
            row["spread"] = middle - least, most - middle
    except ValueError as error:
        raise ValueError(f"{path} is no report of crossover ({error}); run crossover again") from None
    return result


def label(row):
    """A grid as it is called in the figure."""
    return " x ".join(f"{axis} {size}" for axis, size in row["axes"].items()) or "serial"


def draw_bars(seconds, megabytes, rows):
    """One batch size: stacked parts of the median step and its spread; bytes below."""
    places = range(len(rows))
    bottom = [0.0] * len(rows)
    for part, colour in PARTS.items():
        shares = [row["time"][part] / sum(row["time"].values()) * row["seconds"]["median"] for row in rows]
        seconds.bar(places, shares, 0.6, bottom, color=colour, label=part)
        bottom = [a + b for a, b in zip(bottom, shares)]
    seconds.errorbar(places, bottom, list(zip(*(row["spread"] for row in rows))), color="black", ls="", capsize=4, lw=1.2)
    for panel, heights, unit in (
        (seconds, [row["seconds"]["max"] for row in rows], "s"),
        (megabytes, [row["megabytes"] for row in rows], "MB"),
    ):
        values = bottom if panel is seconds else heights
        for place, height, value in zip(places, heights, values):
            panel.annotate(f"{value:.3g} {unit}", (place, height), (0, 3), textcoords="offset points", ha="center", fontsize=9)
        panel.set_ylim(0, max(heights) * 1.15 or 1)
        panel.set_xticks(places, [label(row) for row in rows])
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    megabytes.bar(places, [row["megabytes"] for row in rows], 0.6, color=PARTS["communicate"])
    seconds.set(title=f"Global batch {rows[0]['batch_size']}", ylabel=STEP)
    megabytes.set(ylabel=SENT, xlabel="grid")
    seconds.legend(title="of a step")


def draw_lines(seconds, megabytes, rows, crossings):
    """Over the batch size, a line a grid. crossings: {grid: batch size from which the first grid is faster, or None}."""
    grids = {row["grid"]: row for row in rows}
    colours = colours_of(grids)
    for grid, example in grids.items():
        mine = [row for row in rows if row["grid"] == grid]
        sizes, style = [row["batch_size"] for row in mine], {"color": colours[grid], "marker": "o", "lw": 1.5}
        medians = [row["seconds"]["median"] for row in mine]
        seconds.errorbar(sizes, medians, list(zip(*(row["spread"] for row in mine))), capsize=3, label=label(example), **style)
        megabytes.plot(sizes, [row["megabytes"] for row in mine], **style)
        if crossings.get(grid):
            for panel in (seconds, megabytes):
                panel.axvline(crossings[grid], color=colours[grid], ls="--", lw=1)
    sizes = sorted({row["batch_size"] for row in rows})
    for panel in (seconds, megabytes):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_minor_formatter("")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.grid(alpha=0.3)
    title = "All batch sizes"
    if any(crossings.values()):
        title += "; dashed: from here on the pure batch grid is faster"
    seconds.set(title=title, ylabel=STEP)
    megabytes.set(ylabel=SENT, xlabel="samples of the global minibatch")
    seconds.legend(title="grid")


def draw(result, at, out):
    """The figure of a report, with the bars of the batch size `at`; ValueError if that was not measured."""
    sizes = sorted({row["batch_size"] for row in result["rows"]})
    if at not in sizes:
        raise ValueError(f"--at {at}: there are the batch sizes {', '.join(map(str, sizes))}")
    columns = 2 if len(sizes) > 1 else 1
    figure, panels = plt.subplots(
        2, columns, figsize=(6.5 * columns, 8), height_ratios=(3, 2), layout="constrained", squeeze=False
    )
    draw_bars(*panels[:, 0], [row for row in result["rows"] if row["batch_size"] == at])
    if columns == 2:
        draw_lines(*panels[:, 1], result["rows"], result["batch_faster_from"])
    figure.suptitle(
        f"{result['net']} on {result['features']} features, {result['ranks']} ranks, {result['link']}\n"
        + measured_on(result["versions"]),
        fontsize=10,
    )
    save(figure, out)


def bars_of(result):
    """The batch size of the bars, where none is named: 64, else the smallest."""
    sizes = {row["batch_size"] for row in result["rows"]}
    return 64 if 64 in sizes else min(sizes)
