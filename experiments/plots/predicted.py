"""Scaling as predicted by the cost model (`sweep --predict`), beside what was measured (`sweep`).

A panel for each network: the speedup over one rank for strong scaling, the efficiency for weak scaling, a dashed line a
scheme; measured points are drawn into the panels of strong scaling. Refuses predictions and runs that do not compare.
"""

import textwrap
from math import prod
from statistics import median

from gridgrad.experiments.common.parallel_schemes import grid_of, scheme_of
from gridgrad.experiments.common.predicted_reports import AUTO
from gridgrad.experiments.plots.figures import draw_ranges, measured_on, plt, save, sizes_of
from gridgrad.nn.files.json_forms import PLAIN, SECONDS, TEXT, TRUTH, WHOLE, Kind, check
from gridgrad.nn.files.json_text import contents_of_lines
from gridgrad.parallel.grid.process_grid import parse_grid

COLOURS = {"batch": "tab:blue", "model": "tab:orange", "2d": "tab:green", "height": "tab:red", AUTO: "black"}
PREDICTION = {
    "predicted": Kind("true", lambda value: value is True), "scaling": Kind("strong or weak", ("strong", "weak").__contains__),
    "scheme": Kind(f"one of {', '.join(COLOURS)}", list(COLOURS).__contains__), "net": TEXT, "grid": TEXT, "P": WHOLE,
    "machine": TEXT, "ranks_per_node": WHOLE, "threads": WHOLE, "shape": [WHOLE], "outputs": WHOLE, "fits": TRUTH,
    "seconds_per_step": {"median": SECONDS}, "settings": {"batch_size": WHOLE, "dtype": PLAIN, "plan": PLAIN},
}  # fmt: skip
SAME = {  # what a network's measured runs and its predictions must share: (how it is called, where each has it)
    "global batch size": (lambda run: run["settings"]["batch_size"],) * 2,
    "type of numbers": (lambda run: run["settings"]["dtype"],) * 2,
    "plan": (lambda run: run["settings"]["plan"],) * 2,
    "threads a rank": (lambda run: run["versions"]["threads"], lambda run: run["threads"]),
    "features": (lambda run: run["features"], lambda run: prod(run["shape"])),
    "outputs": (lambda run: run["outputs"],) * 2,
}


def read_predicted(paths):
    """{(network, scaling): its reports} of files that `sweep --predict` wrote.

    ValueError if a line is not one, or if a network's reports differ in machine, batch or type of numbers.
    """
    panels = {}
    for path in paths:
        for number, report in contents_of_lines(path):
            try:
                check(report, PREDICTION)
                report["axes"] = sizes_of(report)
            except ValueError as error:
                raise ValueError(f"{path}: line {number} is not a report of sweep --predict ({error})") from None
            panels.setdefault((report["net"], report["scaling"]), []).append(report)
    for (net, scaling), reports in panels.items():
        for what in alike(reports[0]):
            found = sorted({str(alike(report)[what]) for report in reports})
            if len(found) > 1:
                raise ValueError(
                    f"predictions of {net}, {scaling} scaling, differ in {what} ({', '.join(found)}): draw them apart"
                )
        if min(report["P"] for report in reports) > 1:
            raise ValueError(f"no prediction of {net} on 1 rank to compare with; add 1 to --predict of the sweep")
    machines = {report["machine"] for reports in panels.values() for report in reports}
    if len(machines) != 1:
        raise ValueError(
            f"{', '.join(map(str, paths))}: predictions of {', '.join(sorted(machines)) or 'nothing'}: draw one machine"
        )
    return panels


def alike(report):
    """The settings that all predictions of a network must have in common."""
    batch = report["settings"]["batch_size"] / (report["P"] if report["scaling"] == "weak" else 1)
    return {"batch size": batch, "type of numbers": report["settings"]["dtype"], "shape": report["shape"]}


def seconds(report):
    return report["seconds_per_step"]["median"]


def compared(measured, panels):
    """{network: measured reports}; ValueError if there is no prediction for one, or it is of something else."""
    runs = {}
    for run in measured:
        runs.setdefault(run["net"], []).append(run)
    for net, mine in runs.items():
        if (net, "strong") not in panels:
            raise ValueError(f"no predictions of {net} for strong scaling: add it to --nets of sweep --predict")
        if min(run["P"] for run in mine) > 1:
            raise ValueError(f"no serial run (1 rank) of {net} to compare with; add 1 to --ranks of the sweep")
        for what, (ours, theirs) in SAME.items():
            found, expected = ours(mine[0]), theirs(panels[net, "strong"][0])
            if found != expected:
                raise ValueError(
                    f"{net}: {what} is {found} where it was measured but {expected} where predicted: draw them apart"
                )
    return runs


def draw_predicted(measured, panels, out):
    """See the module's text. measured: reports from `figures.read`, or none. panels: from `read_predicted`."""
    runs = compared(measured, panels)
    nets, scalings = (list(dict.fromkeys(key[i] for key in panels)) for i in (0, 1))
    columns = min(len(nets), 3)
    rows = len(scalings) if len(nets) == columns else -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.6 + 4.9 * columns, 0.6 + 4.2 * rows), layout="constrained",
                                squeeze=False)  # fmt: skip
    places = sorted(panels, key=lambda key: (scalings.index(key[1]), nets.index(key[0])))
    legend = {}
    for panel, key in zip(axes.flat, places):
        draw_lines(panel, panels[key], key)
        if key[1] == "strong" and key[0] in runs:
            draw_points(panel, runs[key[0]])
        for handle, name in zip(*panel.get_legend_handles_labels()):
            legend.setdefault(name, handle)
    for panel in axes.flat[len(places) :]:
        panel.set_axis_off()
    machine = panels[places[0]][0]["machine"]
    heading = f"dashed: predicted ({machine})"
    figure.legend(legend.values(), legend, title=heading, loc="outside lower center", ncols=1 + 2 * columns, fontsize=9)
    title = f"{' and '.join(scalings).capitalize()} scaling predicted by the cost model for {machine}"
    if runs:
        title += f"\npoints: measured on {measured_on(measured[0]['versions'])}"
    figure.suptitle("\n".join(textwrap.fill(line, int(11 * figure.get_figwidth())) for line in title.split("\n")), fontsize=11)
    save(figure, out)


def draw_lines(panel, reports, key):
    """The predicted curves of a network. key: (network, scaling)."""
    net, scaling = key
    serial = min(seconds(report) for report in reports if report["P"] == 1)
    ranks = sorted({report["P"] for report in reports})
    strong = scaling == "strong"
    panel.plot(ranks, ranks if strong else [1] * len(ranks), "-", color="grey", lw=1, label="ideal")
    for scheme in dict.fromkeys(report["scheme"] for report in reports):
        mine = sorted((report for report in reports if report["scheme"] == scheme), key=lambda report: report["P"])
        values = [serial / seconds(report) for report in mine]
        wide = 2.4 if scheme == AUTO else 1.5
        panel.plot([report["P"] for report in mine], values, "--", color=COLOURS[scheme], lw=wide, label=f"{scheme}, predicted")
        short = [(report["P"], value) for report, value in zip(mine, values) if not report["fits"]]
        if short:
            panel.plot(*zip(*short), "x", color=COLOURS[scheme])
            panel.plot([], [], "kx", label="needs more memory than a rank has")
    node = reports[0]["ranks_per_node"]
    if 1 < node < ranks[-1]:
        panel.axvline(node, color="grey", ls=":", lw=1, label=f"{node} ranks: a node")
    batch = f"{alike(reports[0])['batch size']:g}"
    panel.set_title(f"{net}, {f'global batch {batch}' if strong else f'batch {batch} a rank'}", fontsize=10)
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if strong:
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}" if value >= 1 else f"{value:.3g}")
    else:
        panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.set_xlabel("ranks P")
    panel.set_ylabel("speedup over 1 rank" if strong else "efficiency: time on 1 rank / time on P")


def draw_points(panel, runs):
    """Measured speedups: the median and the range of the repeats; hollow where ranks share cores."""
    times = {}
    for run in runs:
        times.setdefault(tuple(run["axes"].items()), []).append(run)
    serial = median(seconds(run) for run in runs if run["P"] == 1)
    for grid, mine in times.items():
        ranks, sizes = mine[0]["P"], dict(grid)
        scheme = scheme_of(sizes)
        if ranks == 1 or not is_of(scheme, ranks, sizes):
            continue
        values = [serial / seconds(run) for run in mine]
        fill = "white" if mine[0]["oversubscribed"] else COLOURS[scheme]
        note = ", oversubscribed" if mine[0]["oversubscribed"] else ""
        style = {"color": COLOURS[scheme], "markerfacecolor": fill, "ms": 6, "capsize": 3}
        label = f"{scheme}, measured{note}"
        draw_ranges(panel, [ranks], [median(values)], [min(values)], [max(values)], fmt="o", label=label, **style)


def is_of(scheme, ranks, sizes):
    """Whether a grid is the one that the scheme has: there are more of several axes than are predicted."""
    grid = grid_of(scheme, ranks)
    return grid is not None and {a: n for a, n in parse_grid(grid).items() if n > 1} == {
        a: n for a, n in sizes.items() if n > 1
    }
