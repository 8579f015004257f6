"""Partitions of VGG16 as a picture: which rank owns which filters, and what crosses between ranks from layer to layer."""

import numpy as np

from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.experiments.plots.style import plt, save
from gridgrad.parallel.partitioning.chains import Chain

COLORS = "#4477aa", "#ee8866", "#44aa77", "#ddbb44", "#aa3377", "#66ccee", "#888888", "#994455"
BAR = 0.56  # width, where the distance of layers is 1
STEPS = 30  # points of the edge of a band
FAINT, CLEAR = "#b0b0b0", "#202020"


def layers():
    """The layers of VGG16 as a Chain whose costs are MiB of float32 of 32 images; the input is its first layer."""
    sizes = [np.prod(vgg16.IMAGE), *(side**2 for side in vgg16.POOLED), *[1] * len(vgg16.NEURONS)]
    works = np.array([0, *vgg16.WORKS]) / [1, *vgg16.FILTERS, *vgg16.NEURONS]
    return Chain([1, *vgg16.FILTERS, *vgg16.NEURONS], works, vgg16.melements(sizes) * vgg16.ITEM_BYTES)


def counts_of(owners):
    """How many filters of each layer each rank owns, (layers, ranks); ranks in the order in which the network gets to them."""
    found = np.array([np.bincount(owners.outputs[name], minlength=owners.ranks) for name in vgg16.layer_names()])
    order = sorted(range(owners.ranks), key=lambda rank: np.flatnonzero(found[:, rank])[0] if found[:, rank].any() else np.inf)
    found = found[:, order]
    image = np.eye(1, owners.ranks, dtype=int)  # the input is at a rank that computes from it
    return np.vstack([image, found])


def equal_counts(ranks):
    """Counts of the horizontal partition."""
    filters = layers().filters[1:, None]
    shares = filters * (np.arange(ranks) + 1) // ranks - filters * np.arange(ranks) // ranks
    return np.vstack([np.eye(1, ranks, dtype=int), shares])


def draw(partitions, path):
    """Write the picture of coarse partitions, one above the other; beside them, in small, the horizontal one.

    partitions: some Owners, of as many ranks.
    """
    chain, ranks = layers(), partitions[0].ranks
    figure = plt.figure(figsize=(15, 4.3 * len(partitions) + 0.6), layout="constrained")
    grid = figure.add_gridspec(len(partitions), 2, width_ratios=(3.4, 1))
    for row, owners in enumerate(partitions):
        panel, counts = figure.add_subplot(grid[row, 0]), counts_of(owners)
        draw_partition(panel, chain, counts, large=True)
        loads = chain.loads(counts) / chain.work * ranks
        panel.set_title(
            f"Coarse hypergraph partition, max/avg work {loads.max():.3f}: {chain.volume(counts):,.0f} MiB cross in "
            f"{chain.messages(counts).sum()} messages", fontsize=12,
        )  # fmt: skip
        patches = [plt.Rectangle((0, 0), 1, 1, color=COLORS[rank % len(COLORS)]) for rank in range(ranks)]
        names = [f"rank {rank}: {load:.2f} of the mean work" for rank, load in enumerate(loads)]
        panel.legend(patches, names, ncols=ranks, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=9)
    panel, equal = figure.add_subplot(grid[:, 1]), equal_counts(ranks)
    draw_partition(panel, chain, equal, large=False)
    panel.set_title(
        f"For contrast, horizontal: every layer divided\nequally, {chain.volume(equal):,.0f} MiB in "
        f"{chain.messages(equal).sum()} messages", fontsize=10,
    )  # fmt: skip
    patches = [plt.Rectangle((0, 0), 1, 1, color=COLORS[rank % len(COLORS)]) for rank in range(ranks)]
    names = [f"rank {rank}" for rank in range(ranks)]
    panel.legend(patches, names, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.04), frameon=False, fontsize=9)
    figure.suptitle(
        f"VGG16 on {ranks} ranks, forward pass of 32 images, float32. A bar is a layer: its filters by the rank that has them. "
        "A band is the maps that one rank sends\nto another for the next layer, after pooling, and the numbers above are MiB "
        "of all of them.", fontsize=10,
    )  # fmt: skip
    save(figure, path)


def draw_partition(panel, chain, counts, large):
    """Bars of layers and bands of what crosses. large: with the names of all layers, and the MiB above each gap."""
    tops = np.cumsum(counts, axis=1) / chain.filters[:, None]
    bottoms = tops - counts / chain.filters[:, None]
    # what each rank sends to each other at each layer, (layers - 1, ranks, ranks), senders first
    crossing = chain.costs[:-1, None, None] * counts[:-1, :, None] * (counts[1:, None, :] > 0)
    crossing[:, range(counts.shape[1]), range(counts.shape[1])] = 0
    for layer in range(len(counts)):
        for rank in np.flatnonzero(counts[layer]):
            low, high, color = bottoms[layer, rank], tops[layer, rank], COLORS[rank % len(COLORS)]
            panel.bar(layer, high - low, BAR, low, color=color, edgecolor="white", linewidth=0.8, zorder=3)
            if large and high - low > 0.06:
                style = {"ha": "center", "va": "center", "fontsize": 8, "color": "white", "zorder": 4}
                panel.text(layer, (low + high) / 2, str(counts[layer, rank]), **style)
    for layer, pairs in enumerate(crossing):
        for sender, receiver in np.argwhere(pairs > 0):
            receivers = np.flatnonzero(pairs[sender] > 0)
            place = list(receivers).index(receiver)
            part = (tops - bottoms)[layer, sender] / len(receivers)
            start = bottoms[layer, sender] + place * part
            senders = np.flatnonzero(pairs[:, receiver] > 0)
            height = (tops - bottoms)[layer + 1, receiver] / len(senders)
            end = bottoms[layer + 1, receiver] + list(senders).index(sender) * height
            band(panel, layer, (start, start + part), (end, end + height), COLORS[sender % len(COLORS)], large)
        if large:
            total = pairs.sum()
            panel.text(layer + 0.5, 1.02, f"{total:.3g}" if total else "0", ha="center", fontsize=10 if total else 8,
                       weight="bold" if total else "normal", color=CLEAR if total else FAINT)  # fmt: skip
    names = ["input", *vgg16.LAYERS]
    shown = range(len(names)) if large else (1, 5, 10, 14)
    panel.set_xticks(list(shown), [names[layer] for layer in shown], rotation=35 if large else 0, fontsize=9)
    panel.set_yticks([])
    panel.set(xlim=(-0.5, len(names) - 0.5), ylim=(0, 1.09 if large else 1.0))
    panel.spines[["top", "right", "left"]].set_visible(False)
    if large:
        panel.set_ylabel("filters of a layer")


def band(panel, layer, start, end, color, large):
    """A band from the right of a layer's bar to the left of the next one. start, end: (low, high)."""
    t = np.linspace(0, 1, STEPS)
    bent = t * t * (3 - 2 * t)
    x = layer + BAR / 2 + t * (1 - BAR)
    low, high = (a + bent * (b - a) for a, b in zip(start, end))
    panel.fill_between(x, low, high, color=color, alpha=0.55 if large else 0.4, linewidth=0, zorder=2)
