"""The figures of `reproduce marques2016`: where the time of a step goes, and how the master/slave algorithm scales."""

import textwrap

from gridgrad.experiments.plots.figures import colours_of, plt, save

PARTS = {"convolution": "#31688e", "computation": "#7fc8a0", "communication": "#e08214"}
SHORT = {"master/slave": "M", "masterless": "-"}
NODES = tuple(range(1, 33))


def draw_steps(rows, machine, out):
    """Stacked bars of the parts of a step: a column of panels for each network, a row for each batch size.

    rows: of the table "split". machine: where they were measured, in words.
    """
    networks, sizes = (list(dict.fromkeys(row[name] for row in rows)) for name in ("network", "batch"))
    figure, panels = plt.subplots(len(sizes), len(networks), figsize=(1.5 + 3.1 * len(networks), 1.8 + 2.0 * len(sizes)),
                                  layout="constrained", squeeze=False)  # fmt: skip
    for line, size in zip(panels, sizes):
        for panel, network in zip(line, networks):
            mine = [row for row in rows if (row["network"], row["batch"]) == (network, size)]
            draw_bars(panel, mine)
            panel.set_title(f"{network}, batch {size}, {rounds_of(mine)}", fontsize=9)
        line[0].set_ylabel("seconds a step")
    for panel in panels[-1]:
        panel.set_xlabel("ranks; M: master/slave, -: masterless")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in PARTS.values()]
    handles += [plt.Rectangle((0, 0), 1, 1, color="grey"),
                plt.Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="grey", hatch="////")]  # fmt: skip
    names = [*PARTS, "filled: measured", "hatched: predicted"]
    columns = len(names) if len(networks) > 2 else len(PARTS)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=9)
    title = (
        "Time of a training step, speedup over one rank above each bar (Marques 2016, Figures 5.1 to 5.5; its GPUs, Figures "
    )
    title += f"5.6 to 5.10, were not measured). {machine}"
    figure.suptitle(textwrap.fill(title, int(12.5 * figure.get_figwidth())), fontsize=10)
    save(figure, out)


def rounds_of(rows):
    """In how many rounds these rows were measured, in words."""
    found = [row["rounds"] for row in rows if row["how"] == "measured"]
    words = f"{max(found)}" if min(found) == max(found) else f"{min(found)} to {max(found)}"
    return f"{words} round{'s' * (max(found) > 1)}"


def draw_bars(panel, rows):
    """The bars of one network and batch size."""
    for place, row in enumerate(rows):
        bottom = 0.0
        for part, colour in PARTS.items():
            seconds, predicted = row[f"{part}, s"], row["how"] == "predicted"
            fill = {"facecolor": "white", "hatch": "////"} if predicted else {"facecolor": colour}
            panel.bar(place, seconds, 0.7, bottom, edgecolor=colour, linewidth=0.8, **fill)
            bottom += seconds
        panel.text(place, bottom, f"{row['speedup']:.2f}", ha="center", va="bottom", fontsize=7)
    labels = [f"{row['ranks']}{SHORT.get(row['form'], '')}" for row in rows]
    panel.set_xticks(range(len(rows)), labels, fontsize=8)
    panel.tick_params(axis="y", labelsize=8)
    panel.set_ylim(0, 1.15 * max(row["step, s"] for row in rows))
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)


def draw_scaling(by_equation, equal_nodes, out):
    """Figures 5.11 and 5.12: seconds of a step above, the speedup below, against the number of nodes; equal nodes below them.

    by_equation: {equation: {name: Cluster}}, the first equation for the seconds. equal_nodes: {name: Cluster} of nodes like the
    one that was measured.
    """
    equations = list(by_equation)
    groups = [
        {name: {equation: by_equation[equation][name] for equation in equations} for name in by_equation[equations[0]]},
        {name: {cluster.equation: cluster} for name, cluster in equal_nodes.items()},
    ]
    groups = [group for group in groups if group]
    width, styles = max(map(len, groups)), dict(zip(equations, ("-", "--")))
    figure, panels = plt.subplots(2 * len(groups), width, figsize=(0.6 + 3 * width, 0.8 + 5.4 * len(groups)),
                                  layout="constrained", squeeze=False)  # fmt: skip
    for group, (seconds, speedups) in zip(groups, panels.reshape(-1, 2, width)):
        for above, below, (name, clusters) in zip(seconds, speedups, group.items()):
            draw_clusters(above, below, name, clusters, styles)
        for panel in (*seconds[len(group) :], *speedups[len(group) :]):
            panel.remove()
        seconds[0].set_ylabel("seconds a step, predicted")
        speedups[0].set_ylabel("speedup over 1 node, predicted")
    found = {name: handle for panel in panels[:2, 0] for handle, name in zip(*panel.get_legend_handles_labels())}
    figure.legend(found.values(), found, loc="outside lower center", ncols=len(found), fontsize=9)
    figure.suptitle("Master and slaves on many nodes (Marques 2016, Figures 5.11 and 5.12): all predicted", fontsize=11)
    save(figure, out)


def draw_clusters(above, below, name, clusters, styles):
    """Two panels of one cluster: the parts of a step by the first equation, and the speedup by each.

    clusters: {equation: Cluster}. styles: {equation: of its line}.
    """
    first = next(iter(clusters.values()))
    parts = [first.seconds(nodes) for nodes in NODES]
    above.stackplot(NODES, [[step[part] for step in parts] for part in PARTS], colors=PARTS.values(), labels=PARTS)
    about = f"{first.network}, batch {first.batch_size}, {first.rate / 2**20:.0f} MiB/s"
    above.set_title(f"{name}\n{about}\nequation {first.equation}", fontsize=8.5)
    below.axhline(first.limit, color="grey", ls=":", lw=1, label="only computation is left")
    for equation, cluster in clusters.items():
        speedups = [cluster.speedup(nodes) for nodes in NODES]
        below.plot(NODES, speedups, styles[equation], color="#31688e", label=f"equation {equation}")
    below.set_ylim(0, 1.1 * first.limit)
    for panel in (above, below):
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
        panel.set_xlim(1, NODES[-1])
        panel.grid(alpha=0.3)
    below.set_xlabel("nodes")


def draw_rates(kinds, out):
    """Figures 5.13 to 5.15: the speedup against the number of nodes, a line for each transmission rate.

    kinds: {name: ({MiB/s: Cluster}, the most nodes)}.
    """
    figure, panels = plt.subplots(1, len(kinds), figsize=(1 + 3 * len(kinds), 4.2), layout="constrained", squeeze=False)
    for panel, (name, (by_rate, most)) in zip(panels[0], kinds.items()):
        for (rate, cluster), colour in zip(by_rate.items(), colours_of(by_rate).values()):
            nodes = range(1, most + 1)
            panel.plot(nodes, [cluster.speedup(count) for count in nodes], color=colour, label=f"{rate} MiB/s")
        panel.axhline(cluster.limit, color="grey", ls=":", lw=1, label="only computation is left")
        panel.axhline(1, color="black", lw=0.5)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlim(1, most)
        panel.set_ylim(0, 1.1 * cluster.limit)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("nodes")
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("speedup over the master alone, predicted")
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=9)
    figure.suptitle("500:1500 at batch 1024 by the rate of transmission (Marques 2016, Figures 5.13 to 5.15): all predicted by "
                    "equation 5.1 as printed", fontsize=11)  # fmt: skip
    save(figure, out)
