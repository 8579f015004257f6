"""Where the time of a step goes on each number of ranks, as in Figures 5.1 to 5.10 of Marques 2016, and how efficiently.

There a bar is the time of one minibatch: communication, convolutions, and the computation of all other layers. Here each
is the mean over the ranks, so that they add up to the step, and reading and waiting are apart. Convolutions are told apart
where the runs were profiled, or all layers.

Below stand the efficiencies of the POP project (pop-coe.eu), of the time that is not reading:

| efficiency             | ratio                                                                             |
|------------------------|-----------------------------------------------------------------------------------|
| load balance           | mean / largest computing time of a rank                                           |
| communication          | largest computing time / elapsed                                                  |
| parallel               | load balance x communication                                                      |
| computation scaling    | computing time of all ranks together on the fewest ranks / on these, for a sample |
| global                 | parallel x computation scaling                                                    |

All numbers are medians over the runs.
"""

from functools import partial
from statistics import median

import numpy as np

from gridgrad.experiments.plots import paper
from gridgrad.experiments.plots.figures import plt
from gridgrad.experiments.plots.scaling import title_of, where_words
from gridgrad.experiments.scaling.summary import is_busy_alone
from gridgrad.nn.files.documents import AT_LEAST_0, SECONDS, TEXT, Optional, check
from gridgrad.parallel.observe.span_observer import METHODS

CONVOLUTION, OTHER, COMPUTE = "convolution", "other computation", "computation"
COLOURS = {
    CONVOLUTION: "#0072B2", OTHER: "#56B4E9", COMPUTE: "#0072B2", "reading": "#009E73", "communication": "#E69F00",
    "waiting": "#F0E442",
}  # fmt: skip # of Okabe and Ito (2008), dark beside light
CONVOLUTIONS = "Conv2d", "HaloConv2d", "HandedConv2d"
LAYERS = "#0072B2", "#56B4E9", "#004c78", "#a6d5f2", "#332288", "#88a5d8", "#117799"  # of computation by layers
MOST_LAYERS = len(LAYERS)  # of which the rest are put together
REST = "other layers, loss, update"
PROFILED = {
    "layers": Optional([{"layer": TEXT, "kind": TEXT} | dict.fromkeys(METHODS, AT_LEAST_0)]), "compute_max": SECONDS,
    "time": {"compute": SECONDS, "read": AT_LEAST_0, "communicate": AT_LEAST_0, "wait": AT_LEAST_0},
}  # fmt: skip
REMEDY = "sweep again with --profile, or profile = true in its settings"
BAR, LEFT, SIDE = 0.56, 1.15, 0.3  # inches of a bar with its surroundings, of what stands left of all bars, beside a panel
BARS, TABLE = 2.0, 1.0  # inches of the height of bars and of a table
FEWEST_BARS = 3  # for which there is room in every panel


def checked(run):
    """A run that says how its step was spent; ValueError if it does not."""
    try:
        check(run, PROFILED)
    except ValueError as error:
        raise ValueError(f"the run of {run['net']} on {run['grid']} does not say how its time was spent ({error}): measure it "
                         "again, with --anew") from None  # fmt: skip
    return run


def has_profile(run):
    """Whether the layers of a run were profiled."""
    return bool(run.get("layers"))


def parts_of(rows, layers=()):
    """What `parts` returns for each Row of a panel, medians over its runs. Without `layers` all are told apart alike."""
    profiled = all(has_profile(run) for row in rows for run in row.runs)
    return [middle([parts(run, layers, profiled) for run in row.runs]) for row in rows]


def layer_seconds(run):
    """{"number kind" of a layer: the seconds that it computes in a step}, the longest first."""
    found = {}
    for row in run["layers"]:
        name = f"{row['layer']} {row['kind']}"
        found[name] = found.get(name, 0.0) + sum(row[method] for method in METHODS)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def parts(run, layers=(), profiled=True):
    """{part: seconds of a step} of a run, mean over the ranks, in the order in which bars stack them.

    layers: names of layers that are parts of their own; without any, convolutions are one if the run is `profiled`.
    """
    time = run["time"]
    if layers:
        known = layer_seconds(run)
        computing = {name: known.get(name, 0.0) for name in layers}
        computing[REST] = max(0.0, time["compute"] - sum(computing.values()))
    elif profiled:
        convolution = sum(row[method] for row in run["layers"] if row["kind"] in CONVOLUTIONS for method in METHODS)
        computing = {CONVOLUTION: convolution, OTHER: max(0.0, time["compute"] - convolution)}
    else:
        computing = {COMPUTE: time["compute"]}
    return computing | {"reading": time["read"], "communication": time["communicate"], "waiting": time["wait"]}


def efficiencies(run, fewest):
    """{efficiency: ratio} of a run, whose samples of a step are `samples`. fewest: `computing` on the fewest ranks."""
    time, largest = run["time"], run["compute_max"]
    balance = time["compute"] / largest
    communication = largest / (time["compute"] + time["communicate"] + time["wait"])
    scaling = fewest / computing(run)
    return {
        "load balance": balance,
        "communication": communication,
        "parallel": balance * communication,
        "computation scaling": scaling,
        "global": balance * communication * scaling,
    }


def computing(run):
    """Seconds that all ranks of a run together compute for a sample."""
    return run["P"] * run["time"]["compute"] / run["samples"]


def middle(found):
    """The medians, entry by entry, of dicts with the same entries."""
    return {name: median(one[name] for one in found) for name in found[0]}


def draw(lines, layers=False, width=None):
    """A figure of Lines: a panel for each, with bars and a table. layers: whether all layers are told apart; width: in inches.

    ValueError if a run does not say how its time was spent.
    """
    shown = [(line, rows) for line in lines if not line.is_predicted and (rows := [row for row in line.rows if row.runs])]
    if not shown:
        raise ValueError("there is no run that was measured: a breakdown shows nothing else")
    for _, rows in shown:
        for run in (run for row in rows for run in row.runs):
            checked(run)
            if layers and not has_profile(run):
                raise ValueError(f"the run of {run['net']} on {run['grid']} has no profile: {REMEDY}")
    needed = [BAR * max(FEWEST_BARS, len(rows)) + SIDE for _, rows in shown]
    width = width or (paper.COLUMN if LEFT + sum(needed) <= paper.COLUMN else paper.PAGE)
    blocks = in_rows(list(zip(shown, needed)), width - LEFT)
    columns = max(map(len, blocks))
    share = [max(FEWEST_BARS, *(len(block[i][0][1]) for block in blocks if i < len(block))) for i in range(columns)]
    frame = paper.frame(2 * len(blocks), columns, width, [BARS, TABLE] * len(blocks), width_ratios=share)
    names = layer_names(shown) if layers else ()
    for number, block in enumerate(blocks):
        for place, ((line, rows), _) in enumerate(block):
            bars, table = frame.panels[2 * number][place], frame.panels[2 * number + 1][place]
            draw_bars(bars, rows, names)
            draw_table(table, rows, place == 0)
            frame.fits.append((bars, partial(paper.entitle, bars, line.panel.network, f"{line.name}, {title_of([line])}")))
        frame.panels[2 * number][0].set_ylabel("ms a step, mean over ranks", fontsize=paper.NORMAL)
        for row in frame.panels[2 * number : 2 * number + 2]:
            for axes in row[len(block) :]:
                axes.set_axis_off()
    frame.legend = legend_of(shown, names)
    above = any(row.speedup and row.ranks > 1 for _, rows in shown for row in rows)
    words = "Medians of the runs" + ("; above the bars speedups over 1 rank." if above else ".")
    frame.words = [f"{where_words([line for line, _ in shown])} {words}"]
    return paper.finish(frame)


def in_rows(panels, width):
    """Lists of panels that fit beside each other. panels: [(panel, inches)]."""
    blocks, left = [[]], width
    for panel, inches in panels:
        if blocks[-1] and inches > left:
            blocks, left = [*blocks, []], width
        blocks[-1].append((panel, inches))
        left -= inches
    return blocks


def layer_names(shown):
    """The layers that take the longest in any of the runs, in the order of the network."""
    found = {}
    for run in (run for _, rows in shown for row in rows for run in row.runs):
        for name, seconds in layer_seconds(run).items():
            found[name] = max(found.get(name, 0.0), seconds / run["time"]["compute"])
    most = sorted(found, key=lambda name: -found[name])[:MOST_LAYERS]
    return sorted(most, key=lambda name: [int(word) if word.isdigit() else 0 for word in name.split()[0].split(".")])


def colour_of(part, names):
    """The colour of a part of a bar."""
    return LAYERS[names.index(part)] if part in names else COLOURS.get(part, "#bbbbbb")


def draw_bars(axes, rows, names):
    """Stacked parts, hollow where there are more ranks than cores; above each bar its speedup, a cross on a busy machine."""
    tops = []
    for place, (row, of_row) in enumerate(zip(rows, parts_of(rows, names))):
        bottom = 0.0
        for part, seconds in of_row.items():
            colour = colour_of(part, names)
            fill = {"facecolor": "white", "hatch": "//////"} if row.oversubscribed else {"facecolor": colour}
            axes.bar(place, 1e3 * seconds, 0.66, 1e3 * bottom, edgecolor=colour, lw=0.6, **fill)
            bottom += seconds
        tops.append(1e3 * bottom)
        words = f"{row.speedup.value:.2f}" if row.speedup and row.ranks > 1 else ""
        words = f"× {words}".strip() if is_busy_alone(row) else words
        axes.annotate(words, (place, tops[-1]), (0, 1.5), textcoords="offset points", ha="center", fontsize=paper.SMALL)
    axes.set_xticks([])
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(0, 1.12 * max(tops))


def draw_table(axes, rows, is_first):
    """The efficiencies as numbers on colours, below the bars, with the ranks and the grid of each."""
    fewest = median(map(computing, with_samples(rows[0])))
    columns = [middle([efficiencies(run, fewest) for run in with_samples(row)]) for row in rows]
    names = list(columns[0])
    values = [[column[name] for column in columns] for name in names]
    edges = (np.arange(count + 1) - 0.5 for count in (len(columns), len(names)))
    axes.pcolormesh(*edges, values, cmap="YlGn", vmin=0, vmax=1)  # in SVG these are shapes, where an image would be a link
    axes.invert_yaxis()
    axes.grid(False)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            colour = "white" if value > 0.7 else "black"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=paper.SMALL, color=colour)
    axes.set_xticks(range(len(rows)), [label(row) for row in rows], fontsize=paper.SMALL)
    axes.set_yticks(range(len(names)), names if is_first else [""] * len(names), fontsize=paper.SMALL)
    axes.tick_params(length=0)


def with_samples(row):
    """The runs of a Row, each with the samples of a step."""
    return [run | {"samples": row.batch} for run in row.runs]


def label(row):
    """The number of ranks, and the axes of the grid that it is spread over."""
    axes = [word.replace("=", " ") for word in row.grid.split(",") if not word.endswith("=1")]
    return "\n".join([f"{row.ranks} rank{'s' * (row.ranks > 1)}", *(axes if len(axes) > 1 else [])])


def legend_of(shown, names):
    """[(handle, label)]: the parts, those at the top of a bar first, then what marks mean."""
    found = list(dict.fromkeys(part for _, rows in shown for of_row in parts_of(rows, names) for part in of_row))
    handles = [(plt.Rectangle((0, 0), 1, 1, color=colour_of(part, names)), part) for part in found]
    if any(row.oversubscribed for _, rows in shown for row in rows):
        handles.append((plt.Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="black", hatch="//////"),
                        "hollow: more ranks than cores"))  # fmt: skip
    if any(is_busy_alone(row) for _, rows in shown for row in rows):
        handles.append((plt.Line2D([], [], ls="", marker="x", color="black", ms=4), "measured on a busy machine"))
    return handles
