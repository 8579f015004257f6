"""Where the time of a step goes on each number of ranks, as in Figures 5.1 to 5.10 of Marques 2016, and how efficiently.

A bar is the time of a step, the mean over the ranks, so that the parts add up. Convolutions are told apart where the runs were
profiled. Below stand the efficiencies of the POP project (pop-coe.eu), of the time that is not reading; "computation scaling"
is the computing time of all ranks together on the fewest ranks over that on these, for a sample.

Of traces a bar is the mean step of one. Where one of them sums its gradients at once and another bucket by bucket, the part of
the all-reduce that is hidden behind backward is told, on the rank that arrives last and so waits for no other: (alone -
exposed) / coverable, at most 1. `alone` are the seconds of the blocking all-reduce, `exposed` those spent on buckets after
backward. `coverable` is what backward could hide at best, if each bucket takes a share of `alone` in proportion to its bytes,
and starts as soon as it is written and the one before it has arrived.
"""

from collections import defaultdict
from statistics import median

import numpy as np

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.plots import timeline
from gridgrad.experiments.plots.curves import names_of
from gridgrad.experiments.plots.scaling import title_of, where_words
from gridgrad.experiments.scaling.summary import is_busy_alone
from gridgrad.nn.files.documents import AT_LEAST_0, SECONDS, check
from gridgrad.parallel.observe.span_observer import METHODS

CONVOLUTION, OTHER, COMPUTE = "convolution", "other computation", "computation"
COLOURS = {
    CONVOLUTION: looks.COMPUTE, OTHER: "#56B4E9", COMPUTE: looks.COMPUTE, "reading": "#009E73",
    "communication": looks.COMMUNICATE, "waiting": looks.WAIT,
}  # fmt: skip
CONVOLUTIONS = "Conv2d", "HaloConv2d", "HandedConv2d"
TIMED = {
    "compute_max": SECONDS,
    "time": {"compute": SECONDS, "read": AT_LEAST_0, "communicate": AT_LEAST_0, "wait": AT_LEAST_0},
}
BAR, LEFT, SIDE = 0.56, 1.15, 0.3  # inches of a bar with its surroundings, of what stands left of all bars, beside a panel
BARS, TABLE = 2.0, 1.0  # inches of the height of bars and of a table
FEWEST_BARS = 3  # for which there is room in every panel
HOLLOW = "//////"  # the hatch of bars of more ranks than cores


def draw(lines, look=looks.FITTING):
    """A figure of Lines: a panel for each, with bars and a table."""
    shown = [(line, rows) for line in lines if not line.is_predicted and (rows := [row for row in line.rows if row.runs])]
    if not shown:
        raise ValueError("there is no run that was measured: a breakdown shows nothing else")
    for run in (run for _, rows in shown for row in rows for run in row.runs):
        try:
            check(run, TIMED)
        except ValueError as error:
            raise ValueError(f"the run of {run['net']} on {run['grid']} does not say how its time was spent ({error}): measure "
                             "it again, with --anew") from None  # fmt: skip
    inches = BAR * max(FEWEST_BARS, *(len(rows) for _, rows in shown)) + SIDE  # of a panel
    width = look.width or (looks.COLUMN if LEFT + inches * len(shown) <= looks.COLUMN else looks.PAGE)
    columns = min(len(shown), max(1, int((width - LEFT) / inches)))
    blocks = -(-len(shown) // columns)
    figure, panels = looks.frame(2 * blocks, columns, width, [BARS, TABLE] * blocks)
    pairs = [pair for i in range(0, 2 * blocks, 2) for pair in zip(*panels[i : i + 2])]
    found = {}
    for number, ((line, rows), (bars, table)) in enumerate(zip(shown, pairs)):
        profiled = all(run.get("layers") for row in rows for run in row.runs)
        columns_of = [medians(parts(run, profiled) for run in row.runs) for row in rows]
        found |= columns_of[0]
        speedups = [f"{row.speedup.value:.2f}" if row.speedup and row.ranks > 1 else "" for row in rows]
        above = [f"× {speedup}".strip() if is_busy_alone(row) else speedup for row, speedup in zip(rows, speedups)]
        draw_bars(bars, columns_of, above, [row.oversubscribed for row in rows])
        draw_table(table, rows, number % columns == 0)
        looks.label(bars, "", "ms a step, mean over ranks", line.panel.network, f"{line.name}, {title_of([line])}")
    for axes in (axes for pair in pairs[len(shown) :] for axes in pair):
        axes.set_axis_off()
    of_rows = [row for _, rows in shown for row in rows]
    legend = [(looks.patch(COLOURS[part]), part) for part in found]
    if any(row.oversubscribed for row in of_rows):
        legend.append((looks.patch("white", edgecolor="black", hatch=HOLLOW), "hollow: more ranks than cores"))
    if any(map(is_busy_alone, of_rows)):
        legend.append((looks.mark(ls="", marker="x", ms=4), "measured on a busy machine"))
    above = "; above the bars speedups over 1 rank" if any(row.speedup and row.ranks > 1 for row in of_rows) else ""
    return looks.finish(figure, look, legend, [f"{where_words([line for line, _ in shown])} Medians of the runs{above}."])


def parts(run, profiled):
    """{part: seconds of a step} of a run, mean over the ranks, in the order in which bars stack them."""
    time = run["time"]
    computing = {COMPUTE: time["compute"]}
    if profiled:
        convolution = sum(row[method] for row in run["layers"] if row["kind"] in CONVOLUTIONS for method in METHODS)
        computing = {CONVOLUTION: convolution, OTHER: max(0.0, time["compute"] - convolution)}
    return computing | {"reading": time["read"], "communication": time["communicate"], "waiting": time["wait"]}


def efficiencies(run, scaling):
    """{efficiency: ratio} of a run. scaling: that of its computation."""
    time, largest = run["time"], run["compute_max"]  # the mean over the ranks, and the computing time of the slowest
    balance = time["compute"] / largest
    communication = largest / (time["compute"] + time["communicate"] + time["wait"])
    parallel = balance * communication
    return {"load balance": balance, "communication": communication, "parallel": parallel, "computation scaling": scaling,
            "global": parallel * scaling}  # fmt: skip


def medians(found):
    """The medians, entry by entry, of dicts with the same entries."""
    found = list(found)
    return {name: median(one[name] for one in found) for name in found[0]}


def draw_bars(axes, columns, words, hollow):
    """Stacked bars. columns: {part: seconds} of each. words: above each. hollow: whether each is."""
    tops = []
    for place, (parts, text, is_hollow) in enumerate(zip(columns, words, hollow)):
        bottom = 0.0
        for part, seconds in parts.items():
            fill = {"facecolor": "white", "hatch": HOLLOW} if is_hollow else {"facecolor": COLOURS[part]}
            axes.bar(place, 1e3 * seconds, 0.66, bottom, edgecolor=COLOURS[part], lw=0.6, **fill)
            bottom += 1e3 * seconds
        axes.annotate(text, (place, bottom), (0, 1.5), textcoords="offset points", ha="center", fontsize=looks.SMALL)
        tops.append(bottom)
    axes.set(xticks=[], xlim=(-0.5, len(columns) - 0.5), ylim=(0, 1.12 * max(tops)))


def draw_table(axes, rows, is_first):
    """The efficiencies as numbers on colours, below the bars, with the ranks and the grid of each."""
    computing = [[run["P"] * run["time"]["compute"] / row.batch for run in row.runs] for row in rows]  # by all, for a sample
    scalings = [[median(computing[0]) / seconds for seconds in of_row] for of_row in computing]
    columns = [medians(map(efficiencies, row.runs, of_row)) for row, of_row in zip(rows, scalings)]
    names = list(columns[0])
    values = [[column[name] for column in columns] for name in names]
    edges = (np.arange(count + 1) - 0.5 for count in (len(columns), len(names)))
    axes.pcolormesh(*edges, values, cmap="YlGn", vmin=0, vmax=1)  # in SVG these are shapes, where an image would be a link
    axes.invert_yaxis()
    axes.grid(False)
    for (y, x), value in np.ndenumerate(values):
        axes.text(
            x, y, f"{value:.2f}", ha="center", va="center", fontsize=looks.SMALL, color="white" if value > 0.7 else "black"
        )
    spread = [[word.replace("=", " ") for word in row.grid.split(",") if not word.endswith("=1")] for row in rows]
    labels = ["\n".join([counted(row.ranks, "rank"), *(of if len(of) > 1 else [])]) for row, of in zip(rows, spread)]
    axes.set_xticks(range(len(rows)), labels)
    axes.set_yticks(range(len(names)), names if is_first else [""] * len(names))
    axes.tick_params(length=0)


# ----- of traces


def draw_traces(paths, look=looks.FITTING):
    """(the figure of traces of `train --trace`, a bar for each; sentences about what is hidden of the all-reduce)."""
    spans, means = {}, {}
    for path, name in names_of(paths).items():
        ranks, spans[name] = timeline.read(path)
        sums, steps = defaultdict(float), len(timeline.steps_of(path, spans[name]))
        for span in spans[name]:
            sums[span["cat"] if span["cat"] in ("step", "waiting") else timeline.kind_of(span)] += span["dur"] / 1e6
        communication = sums["communicate"] - sums["waiting"]  # which lies within collectives
        found = {"reading": sums["read"], "communication": communication, "waiting": sums["waiting"] + sums["wait"]}
        found = {COMPUTE: sums["step"] - sum(found.values())} | found
        means[name] = {part: max(0.0, value) / steps / len(ranks) for part, value in found.items()}
    said = list(hidden_words(spans))
    figure, [[axes]] = looks.frame(1, 1, look.width or looks.COLUMN, looks.ROW_INCHES[1])
    totals = [f"{1e3 * sum(of_trace.values()):.3g} ms" for of_trace in means.values()]
    draw_bars(axes, list(means.values()), totals, [False] * len(means))
    axes.set_xticks(range(len(means)), list(means))
    axes.set_ylabel("ms a step, mean over ranks")
    legend = [(looks.patch(COLOURS[part]), part) for part in next(iter(means.values()))]
    return looks.finish(figure, look, legend, ["Means of the steps of each trace.", *said]), said


def hidden_words(traces):
    """Sentences about the all-reduce of traces, {name: spans}, that sum gradients bucket by bucket, beside one that does
    not."""
    by_step = {name: gradient_steps(spans) for name, spans in traces.items()}
    plain = [name for name, steps in by_step.items() if steps and not any(s["flights"] for of in steps for s in of)]
    alone = min((median(min(s["blocking"] for s in of) for of in by_step[name]) for name in plain), default=None)
    for name, steps in by_step.items():
        if name in plain or not steps or not alone:
            continue
        found = [min((s["exposed"], least_exposed(s["flights"], s["end"], alone)) for s in of) for of in steps]
        exposed, coverable = median(one for one, _ in found), max(0.0, alone - median(least for _, least in found))
        hidden = median(min(max(alone - one, 0) / (alone - least), 1) if alone > least else 0 for one, least in found)
        yield (f"{name}: the all-reduce of the gradients takes {alone / 1e3:.3g} ms alone, of which backward could hide "
               f"{coverable / 1e3:.3g}; {exposed / 1e3:.3g} ms are left after it: {100 * hidden:.0f} % is hidden.")  # fmt: skip


def gradient_steps(spans):
    """[[`of_gradients` of a rank in a step, ..] of a step, ..] of the steps that sum gradients."""
    of_rank, found = defaultdict(list), defaultdict(list)
    for span in sorted(spans, key=lambda span: (span["ts"], span["cat"] != "step")):
        if span["cat"] == "step":
            of_rank[span["pid"]] = []  # the spans that follow belong to this step
            found[span["name"]].append(of_rank[span["pid"]])
        of_rank[span["pid"]].append(span)
    return [[of_gradients(mine) for mine in ranks] for ranks in found.values()
            if any(span["name"].startswith("gradients ") for mine in ranks for span in mine)]  # fmt: skip


def of_gradients(spans):
    """Microseconds of a rank in a step: `blocking` in calls, `exposed` in those after the `end` of backward. `flights` are
    [(start, bytes)] of buckets."""
    backward = (" gradients", " input_gradient", " backward")
    ends = (span["ts"] + span["dur"] for span in spans if span["cat"] == "layer" and span["name"].endswith(backward))
    end, mine = max(ends, default=0), [span for span in spans if span["name"].startswith("gradients ")]
    calls = [span for span in mine if span["cat"] != "flight"]
    flights = sorted((span["ts"], span["args"]["bytes"]) for span in mine if span["cat"] == "flight")
    blocking, exposed = (sum(span["dur"] for span in calls if span["ts"] >= start) for start in (0, end))
    return {"blocking": blocking, "exposed": exposed, "end": end, "flights": flights}


def least_exposed(flights, end, alone):
    """The least microseconds of communication that remain when backward ends, if all buckets together take `alone`."""
    total, arrived = sum(sent for _, sent in flights) or 1, 0.0
    for start, sent in flights:
        arrived = max(arrived, start) + alone * sent / total
    return max(arrived - end, 0.0)
