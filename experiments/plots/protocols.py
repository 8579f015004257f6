"""The figure of `protocols`: the score of each protocol over virtual seconds, without and with a straggler, and over epochs."""

from matplotlib.ticker import StrMethodFormatter

from gridgrad.experiments.plots.figures import plt, save

# Colours of Okabe and Ito (2008), which people with any colour vision tell apart, each with several kinds of lines.
COLOURS = "#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9"
LINES = {"ls": "-", "marker": "o"}, {"ls": "--", "marker": "s"}, {"ls": ":", "marker": "^"}
STYLES = [{"color": colour, "ms": 4, "mfc": "white", "lw": 1.3} | line for line in LINES for colour in COLOURS]
LABELS = {"accuracy": "test accuracy (%)", "mse": "test mean squared error (standardised)"}
SHOWN = 0.85  # the share of all accuracies, the best ones, that a panel is sure to show


def draw(results, out):
    """results: of `protocols`; those in virtual time are drawn, but of no sorted samples. out: what matplotlib can write."""
    results = [result for result in results if result["time"] == "virtual" and not result["sorted"]]
    names = list(dict.fromkeys(run["protocol"] for result in results for run in result["runs"]))
    styles = {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}
    size = 15, 4 * len(results) + 1
    figure, rows = plt.subplots(len(results), 3, figsize=size, squeeze=False, sharey="row", layout="constrained")
    for result, panels in zip(results, rows):
        slow = max(run["straggler"] for run in result["runs"])
        for panel, entry, straggler in zip(panels, ("seconds", "seconds", "epoch"), (1, slow, 1)):
            for run in result["runs"]:
                if run["straggler"] == straggler:
                    x, y = ([row[name] for row in run["history"]] for name in (entry, "score"))
                    panel.plot(x, y, **styles[run["protocol"]])
            label(panel, result, straggler)
            panel.set_xlabel("virtual time (s)" if entry == "seconds" else "epochs")
        panels[0].set_ylabel(LABELS[result["score"]])
    handles = [plt.Line2D([], [], **styles[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=9)
    save(figure, out)


def label(panel, result, straggler):
    """Set what all panels of a result have in common. straggler: the factor of the slow worker."""
    scores = sorted(row["score"] for run in result["runs"] for row in run["history"])
    if result["score"] == "accuracy" and scores:
        panel.set_ylim(bottom=scores[round((1 - SHOWN) * (len(scores) - 1))] - 1)
    elif scores:
        panel.set_yscale("log")
        for which in (panel.yaxis.set_major_formatter, panel.yaxis.set_minor_formatter):
            which(StrMethodFormatter("{x:g}"))
    if result["settings"]["target"]:
        panel.axhline(result["settings"]["target"], color="#888888", lw=0.8)
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    who = f"one of them {straggler:g} times as slow" if straggler > 1 else "equally fast"
    panel.set_title(f"{result['net']} on {result['dataset']}\n{result['workers']} workers, {who}", fontsize=9)
