"""A figure of the rows of an item: numbers of the paper, measured and predicted ones side by side."""

from textwrap import fill

from gridgrad.experiments.papers.cited import DERIVED, PRINTED, READ
from gridgrad.experiments.papers.items import KEPT, MEASURED, OURS, PREDICTED, is_number
from gridgrad.experiments.plots.style import plt, save

COLOURS = {PRINTED: "#777777", READ: "#999999", DERIVED: "#bbbbbb", MEASURED: "#1f77b4", KEPT: "#8fbbdb", PREDICTED: "#e39a3b"}
WORDS = {PRINTED: "printed in the paper", READ: "read off the paper", DERIVED: "derived from the paper",
         **OURS}  # fmt: skip


def draw_item(item, path):
    """Draw a panel for each quantity of an item, with bars for each of its rows, and write it to `path`."""
    quantities = list(dict.fromkeys(row.quantity for row in item.rows))
    figure, panels = plt.subplots(
        len(quantities), 1, figsize=(7, 0.8 + 2.4 * len(quantities)), layout="constrained", squeeze=False
    )
    shown = set()
    for panel, quantity in zip(panels[:, 0], quantities):
        rows = [row for row in item.rows if row.quantity == quantity]
        for place, row in enumerate(rows):
            values = {kind: value for kind, value in row.values.items() if is_number(value)}
            for number, (kind, value) in enumerate(values.items()):
                at = place + 0.26 * (number - (len(values) - 1) / 2)
                bars = panel.bar(at, value, 0.24, color=COLOURS[kind])
                panel.bar_label(bars, fmt="%.3g", fontsize=8)
                shown.add(kind)
        panel.set_xticks(
            range(len(rows)), [fill(row.label.removesuffix(f": {quantity}"), 60 // len(rows)) for row in rows], fontsize=8
        )
        panel.set_ylabel(quantity)
        panel.margins(y=0.15)
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind]) for kind in COLOURS if kind in shown]
    figure.legend(handles, [WORDS[kind] for kind in COLOURS if kind in shown], loc="outside lower center", ncols=4)
    figure.suptitle(fill(f"{item.name}: {item.title}", 90), fontsize=10)
    save(figure, path)
