"""Where the time of a step goes on each number of ranks, as in Figures 5.1 to 5.10 of Marques 2016, and how efficiently.

There a bar is the time of one minibatch: communication, convolutions, and the computation of all other layers. Here each
is the mean over the ranks, so that they add up to the step: communication includes waiting, the other computation reading.

Below stand the efficiencies of the POP project (pop-coe.eu), of the time that is not reading:

| efficiency             | ratio                                                                             |
|------------------------|-----------------------------------------------------------------------------------|
| load balance           | mean / largest computing time of a rank                                           |
| communication          | largest computing time / elapsed                                                  |
| parallel               | load balance x communication                                                      |
| computation scaling    | computing time of all ranks together on the fewest ranks / on these               |
| global                 | parallel x computation scaling                                                    |
"""

from collections import defaultdict

from gridgrad.experiments.plots.figures import crowded, entitle, plt, save, starred
from gridgrad.nn.files.json_forms import AT_LEAST_0, SECONDS, TEXT, check
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.observe.span_observer import METHODS

PARTS = {"convolution": "#31688e", "other computation": "#7fc8a0", "communication and waiting": "#e08214"}
CONVOLUTIONS = "Conv2d", "HaloConv2d", "HandedConv2d"


PROFILED = {
    "layers": [{"kind": TEXT} | dict.fromkeys(METHODS, AT_LEAST_0)], "compute_max": SECONDS,
    "time": {"compute": SECONDS, "read": AT_LEAST_0, "communicate": AT_LEAST_0, "wait": AT_LEAST_0},
}  # fmt: skip


def parts(report):
    """{part: seconds a step}; ValueError if the run was not profiled."""
    try:
        check(report, PROFILED)
    except ValueError as error:
        where = f"{report['net']} on {report['grid']}"
        advice = "sweep again with --profile, or profile = true in its settings"
        raise ValueError(f"the run of {where} has no profile: {advice} ({error})") from None
    time = report["time"]
    convolution = sum(row[method] for row in report["layers"] if row["kind"] in CONVOLUTIONS for method in METHODS)
    other = time["compute"] - convolution + time["read"]
    return dict(zip(PARTS, (convolution, other, time["communicate"] + time["wait"])))


def efficiencies(report, fewest):
    """{efficiency: ratio} of a run, against that on the fewest ranks."""
    time, largest = report["time"], report["compute_max"]
    balance = time["compute"] / largest
    communication = largest / (time["compute"] + time["communicate"] + time["wait"])
    scaling = fewest["P"] * fewest["time"]["compute"] / (report["P"] * time["compute"])
    return {
        "load balance": balance,
        "communication": communication,
        "parallel": balance * communication,
        "computation scaling": scaling,
        "global": balance * communication * scaling,
    }


def middle_runs(reports):
    """{(net, batch size): {grid: report}}: of the repeats of a run the one in the middle, by its time; fewest ranks first."""
    runs = defaultdict(lambda: defaultdict(list))
    for report in reports:
        sizes = tuple(report["axes"].get(axis, 1) for axis in AXES)
        runs[report["net"], report["settings"]["batch_size"]][report["P"], sizes].append(report)
    middle = lambda repeats: sorted(repeats, key=lambda run: sum(parts(run).values()))[len(repeats) // 2]  # noqa: E731
    return {panel: {grid: middle(found[grid]) for grid in sorted(found)} for panel, found in runs.items()}


def draw_breakdown(reports, out):
    """A panel for each network and batch size: bars of the parts above, a table of the efficiencies below."""
    panels = middle_runs(reports)
    widths = [max(2.5, len(runs)) for runs in panels.values()]
    figure, axes = plt.subplots(2, len(panels), figsize=(max(8, 2 + 1.3 * sum(widths)), 7), height_ratios=[2.2, 1],
                                width_ratios=widths, layout="constrained", squeeze=False)  # fmt: skip
    for (bars, table), ((net, batch), runs) in zip(axes.T, panels.items()):
        labels = [label(grid, reports) for grid in runs]
        draw_bars(bars, list(runs.values()), labels)
        bars.set_title(f"{net.removeprefix('mlp:')}, batch {batch}", fontsize=11)
        draw_table(table, list(runs.values()), labels)
    axes[0, 0].set_ylabel("seconds a step, mean over ranks")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in reversed(PARTS.values())]
    names = list(reversed(PARTS))
    if crowded(reports):
        handles.append(plt.Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="black", hatch="//"))
        names.append("oversubscribed")
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    entitle(figure, reports, "Time of a training step", f"plan {reports[0]['settings']['plan']}")
    save(figure, out)


def label(grid, reports):
    """P, and the axes of the grid that it is spread over."""
    ranks, sizes = grid
    return "\n".join([starred(ranks, reports), *(f"{axis} {size}" for axis, size in zip(AXES, sizes) if size > 1)])


def draw_bars(panel, runs, labels):
    """Stacked parts, hollow where there are more ranks than cores; above each bar its speedup over the first."""
    total = {}
    for place, run in enumerate(runs):
        bottom = 0.0
        for part, seconds in parts(run).items():
            fill = {"facecolor": "white", "hatch": "//"} if run["oversubscribed"] else {"facecolor": PARTS[part]}
            panel.bar(place, seconds, 0.62, bottom, edgecolor=PARTS[part], **fill)
            bottom += seconds
        total[place] = bottom
        if place:
            panel.text(place, bottom, f"speedup {total[0] / bottom:.2f}", ha="center", va="bottom", fontsize=9)
    panel.set_xticks(range(len(runs)), labels, fontsize=9)
    panel.set_xlim(-0.5, len(runs) - 0.5)
    panel.set_ylim(0, 1.1 * max(total.values()))
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)


def draw_table(panel, runs, labels):
    """The efficiencies as numbers on colours."""
    columns = [efficiencies(run, runs[0]) for run in runs]
    names = list(columns[0])
    values = [[column[name] for column in columns] for name in names]
    panel.imshow(values, cmap="YlGn", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            panel.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=9, color="white" if value > 0.7 else "black")
    panel.set_xticks(range(len(runs)), labels, fontsize=9)
    panel.set_yticks(range(len(names)), names if panel.get_subplotspec().is_first_col() else [""] * len(names), fontsize=9)
    panel.set_xlabel("ranks P, grid")
    panel.set_ylabel("efficiency" if panel.get_subplotspec().is_first_col() else "")
    panel.tick_params(length=0)
