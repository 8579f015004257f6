"""The figure of `convergence`: the accuracy of each way over epochs and over seconds."""

from gridgrad.experiments.plots.figures import measured_on, plt, save

ACCURACIES = "training_accuracy", "test_accuracy"
# Colours of Okabe and Ito (2008), which people with any colour vision tell apart, with a marker for each. The first markers are
# the largest, so that all are seen where synchronous ways agree.
STYLES = ("#000000", "o"), ("#0072B2", "s"), ("#009E73", "^"), ("#D55E00", "D"), ("#CC79A7", "v"), ("#E69F00", "P")


def draw(result, out):
    """result: what `convergence` measured for one problem. out: the figure, a file that matplotlib can write."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    target = result["settings"]["target"]
    for panel, entry in zip(panels, ("epoch", "seconds")):
        for size, way, (colour, marker) in zip(range(11, 0, -1), result["ways"], STYLES):
            x, training, test = (
                [row[name] for row in way["history"]] for name in (entry, "training_accuracy", "test_accuracy")
            )
            label = f"{way['way']}{' (diverged)' * bool(way['diverged'])}"
            panel.plot(x, training, color=colour, marker=marker, ms=size, mfc="none", label=label)
            panel.plot(x, test, color=colour, lw=0.9, ls=":")
        panel.axhline(target, color="#666666", lw=1, ls="--", label=f"target, {target:g} %")
        panel.plot([], [], color="#666666", ls=":", label="test images")
        panel.set_xlim(left=0)
        panel.grid(alpha=0.3)
    panels[0].set(xlabel="epochs", ylabel="accuracy on training and test images (%)")
    panels[1].set(xlabel="seconds of training steps")
    panels[0].legend()
    figure.suptitle(
        f"{result['net']} on {result['samples']} images of {result['dataset']}, {result['ranks']} ranks, "
        f"batch {result['batch_size']}, learning rate {result['lr']:g}\n{measured_on(result['versions'])}",
        fontsize=10,
    )
    save(figure, out)
