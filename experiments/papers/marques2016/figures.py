"""The figures of `reproduce marques2016`: where the time of a step goes, and how the master/slave algorithm scales."""

from textwrap import fill

from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.plots.style import colours_of, plt, save

PARTS = {"convolution": "#31688e", "computation": "#7fc8a0", "communication": "#e08214"}
SHORT = {"master/slave": "M", "masterless": "-"}
NODES = tuple(range(1, 33))
WIDTH = 7.2  # inches, with two panels a row: what a phone can show
PRINTED = {"color": "black", "ls": "none", "marker": "o", "ms": 4}


def draw_steps(rows, machine, out):
    """Stacked bars of the parts of a step of one batch size: a panel for each network.

    rows: of the table "split". machine: where they were measured, in words.
    """
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure, panels = grid_of(len(networks), 2.6)
    printed = False
    for panel, network in zip(panels, networks):
        mine = [row for row in rows if row["network"] == network]
        printed |= draw_bars(panel, mine)
        panel.set_title(f"{network}, batch {mine[0]['batch']}, {rounds_of(mine)}", fontsize=9)
        panel.set_ylabel("seconds a step", fontsize=8)
        panel.set_xlabel("ranks; M: master/slave, -: masterless", fontsize=8)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in PARTS.values()]
    handles += [plt.Rectangle((0, 0), 1, 1, color="grey"),
                plt.Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="grey", hatch="////"),
                plt.Line2D([], [], color="black", lw=2)]  # fmt: skip
    names = [*PARTS, "filled: measured", "hatched: predicted", *["a step at the printed speedup"] * printed]
    figure.legend(handles[: len(names)], names, loc="outside lower center", ncols=3, fontsize=8)
    title = f"Time of a training step, speedup over one rank above each bar (Marques 2016, Figures 5.1 to 5.5). {machine}"
    figure.suptitle(fill(title, 95), fontsize=9)
    save(figure, out)


def grid_of(count, height):
    """(figure, its panels) of so many panels, at most two in a row. height: of a row, in inches."""
    columns = min(count, 2)
    lines = -(-count // columns)
    size = WIDTH * columns / 2, 1.3 + height * lines
    figure, panels = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for panel in panels.flat[count:]:
        panel.remove()
    return figure, list(panels.flat[:count])


def rounds_of(rows):
    """In how many rounds these rows were measured, in words."""
    found = [row["rounds"] for row in rows if row["how"] == "measured"]
    words = f"{max(found)}" if min(found) == max(found) else f"{min(found)} to {max(found)}"
    return f"{words} round{'s' * (max(found) > 1)}"


def draw_bars(panel, rows):
    """The bars of one network and batch size; returns whether the thesis prints a speedup of any of them."""
    known, printed, highest = published("marques2016").tables["speedups of CPUs"], False, max(row["step, s"] for row in rows)
    for place, row in enumerate(rows):
        bottom = 0.0
        for part, colour in PARTS.items():
            seconds, predicted = row[f"{part}, s"], row["how"] == "predicted"
            fill = {"facecolor": "white", "hatch": "////"} if predicted else {"facecolor": colour}
            panel.bar(place, seconds, 0.7, bottom, edgecolor=colour, linewidth=0.8, **fill)
            bottom += seconds
        theirs = known.cited("speedup", row["network"], row["batch"], row["ranks"]) if row["form"] == "master/slave" else None
        if theirs:
            printed, line = True, rows[0]["step, s"] / theirs.value
            panel.hlines(line, place - 0.45, place + 0.45, color="black", lw=2)
            if bottom - 0.02 * highest < line < bottom + 0.1 * highest:  # it would strike the number out
                bottom = line + 0.01 * highest
        panel.text(place, bottom, f"{row['speedup']:.2f}", ha="center", va="bottom", fontsize=7)
    labels = [f"{row['ranks']}{SHORT.get(row['form'], '')}" for row in rows]
    panel.set_xticks(range(len(rows)), labels, fontsize=8)
    panel.tick_params(axis="y", labelsize=8)
    panel.set_ylim(0, 1.15 * highest)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    return printed


def draw_scaling(by_equation, equal_nodes, out):
    """Figures 5.11 and 5.12: seconds of a step, and beside it the speedup, against the number of nodes; a line a cluster.

    by_equation: {equation: {name: Cluster}}, the first equation for the seconds. equal_nodes: {name: Cluster} of nodes like the
    one that was measured.
    """
    styles = dict(zip(by_equation, ("-", "--")))
    names = by_equation[next(iter(by_equation))]
    clusters = {name: {equation: found[name] for equation, found in by_equation.items()} for name in names}
    clusters |= {name: {cluster.equation: cluster} for name, cluster in equal_nodes.items()}
    figure, panels = grid_of(2 * len(clusters), 2.5)
    for seconds, speedups, (name, found) in zip(panels[::2], panels[1::2], clusters.items()):
        draw_clusters(seconds, speedups, name, found, styles)
        points = printed_points(name)
        speedups.plot(points.keys(), points.values(), **PRINTED, label="printed")
    shown = {name: handle for panel in panels[:2] for handle, name in zip(*panel.get_legend_handles_labels())}
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=3, fontsize=8)
    title = (
        "Master and slaves on many nodes (Marques 2016, Figures 5.11 and 5.12): all lines predicted; dots are speedups that "
        "the thesis prints, of GPUs the best of all batch sizes. On CPUs the lines of the largest network are made of its dots"
    )
    figure.suptitle(fill(title, 95), fontsize=9)
    save(figure, out)


def printed_points(name):
    """{nodes: speedup} that the thesis prints of the network and batch size of a cluster."""
    tables = published("marques2016").tables
    network, batch = ("50:500", 64) if "smallest" in name else ("500:1500", 1024)
    if name.startswith("CPUs"):
        lines = tables["speedups of CPUs"].lines()
        return {row["CPUs"]: row["speedup"] for row in lines if (row["network"], row["batch"]) == (network, batch)}
    lines = tables["5.2"].lines() if name.startswith("GPUs") else ()
    return {row["GPUs"]: row["speedup"] for row in lines if row["network"] == network}


def draw_clusters(seconds, speedups, name, clusters, styles):
    """Two panels of one cluster: the parts of a step by the first equation, and the speedup by each.

    clusters: {equation: Cluster}. styles: {equation: of its line}.
    """
    first = next(iter(clusters.values()))
    parts = [first.seconds(nodes) for nodes in NODES]
    seconds.stackplot(NODES, [[step[part] for step in parts] for part in PARTS], colors=PARTS.values(), labels=PARTS)
    seconds.set_title(fill(name, 45), fontsize=8)
    speedups.set_title(f"{first.network}, batch {first.batch_size}, {first.rate / 2**20:.0f} MiB/s", fontsize=8)
    speedups.axhline(first.limit, color="grey", ls=":", lw=1, label="only computation is left")
    for equation, cluster in clusters.items():
        found = [cluster.speedup(nodes) for nodes in NODES]
        speedups.plot(NODES, found, styles[equation], color="#31688e", label=f"equation {equation}")
    speedups.set_ylim(0, 1.1 * first.limit)
    seconds.set_ylabel("seconds a step", fontsize=8)
    speedups.set_ylabel("speedup over 1 node", fontsize=8)
    for panel in (seconds, speedups):
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
        panel.set_xlim(1, NODES[-1])
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
        panel.set_xlabel("nodes", fontsize=8)


def draw_rates(kinds, out):
    """Figures 5.13 to 5.15: the speedup against the number of nodes, a line for each transmission rate.

    kinds: {name: ({MiB/s: Cluster}, the most nodes)}.
    """
    figure, panels = grid_of(len(kinds), 2.8)
    for panel, (name, (by_rate, most)) in zip(panels, kinds.items()):
        for (rate, cluster), colour in zip(by_rate.items(), colours_of(by_rate).values()):
            nodes = range(1, most + 1)
            panel.plot(nodes, [cluster.speedup(count) for count in nodes], color=colour, label=f"{rate} MiB/s")
        panel.axhline(cluster.limit, color="grey", ls=":", lw=1, label="only computation is left")
        panel.axhline(1, color="black", lw=0.5)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlim(1, most)
        panel.set_ylim(0, 1.1 * cluster.limit)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("nodes", fontsize=8)
        panel.set_ylabel("speedup over the master alone", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    title = "500:1500 at batch 1024 by the rate of transmission (Marques 2016, Figures 5.13 to 5.15): all predicted by "
    figure.suptitle(fill(title + "equation 5.1 as printed", 95), fontsize=9)
    save(figure, out)
