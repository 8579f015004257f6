"""Draw the pictures of docs/schemes, one for each way to train in parallel.

    python -m docs.draw_schemes --out docs/schemes

What stands in them is not drawn by hand: blocks are those of the Layouts with which the network would run, layers are those
that the first rank would run, and timelines are simulations of the real schedules and protocols.
"""

import argparse
from pathlib import Path

from docs.draw_timelines import draw_pipeline, draw_protocols
from docs.placed_ranks import on_every_rank
from docs.shapes import (
    ELSEWHERE,
    HALO,
    HEAD,
    RANKS,
    SAMPLES,
    TEXT,
    WEIGHTS,
    array,
    box,
    caption,
    frame,
    legend,
    plt,
    runs,
    save,
    words,
)
from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.nn.kernels import kernel_table
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning.good_partition import partition
from gridgrad.parallel.partitioning.naive import horizontal
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from gridgrad.parallel.placement.overlapped_layers import HaloConv2d
from gridgrad.parallel.placement.plan import weighted

SIDE, GAP, PAD = 0.78, 0.2, 0.16  # of a square that stands for an array; between these; within and around boxes
LINE = 0.19  # the height of a line of the list of layers
COLOURS = {"what the rank holds of a minibatch X and of the outputs Y": SAMPLES, "of the weights W": WEIGHTS,
           "what other ranks hold": ELSEWHERE}  # fmt: skip


def dense(hidden=32):
    return Sequential([Linear(24, hidden), ReLU(), Linear(hidden, 8)], input_shape=(24,))


def titled(sizes, what):
    return f"grid {','.join(f'{axis}={size}' for axis, size in sizes.items())}: {what}"


def matrices(rank, samples):
    """[(Held, colour, words below)] of the arrays of a rank: the minibatch, the weights and the outputs."""
    x, y = rank.input(samples), rank.output(samples)
    found = [(x, SAMPLES, in_two_lines(x.block[0], "samples"))]
    sides = "inputs", "outputs"
    for weight in rank.weights:
        whole = [part == slice(0, length) for part, length in zip(weight.block, weight.shape, strict=True)]
        names = [in_two_lines(part, name) for part, name, all_of_it in zip(weight.block, sides, whole, strict=True)
                 if not all_of_it]  # fmt: skip
        found.append((weight, WEIGHTS, "\n".join(names) or "all of it"))
    return [*found, (y, SAMPLES, in_two_lines(y.block[0], "samples"))]


def in_two_lines(part, name):
    return words(part, name).replace(f"{name} ", f"{name}\n")


def draw_dense(path, sizes, what, samples=32, columns=2, **options):
    """A box for each rank with all arrays of a network of two fully connected layers; below, the layers of the first rank."""
    ranks = on_every_rank(dense(), sizes, **options)
    shown = [matrices(rank, samples) for rank in ranks]
    width = len(shown[0]) * (SIDE + GAP) - GAP + 2 * PAD
    height = SIDE + HEAD + 0.72
    rows = len(ranks) // columns
    wide, deep = columns * (width + PAD) - PAD, rows * (height + PAD)
    lines = layers_of(ranks[0], sizes)
    figure, axes = plt.subplots(figsize=(wide * 0.72, (deep + LINE * len(lines) + 0.9) * 0.72))
    axes.set_title(titled(sizes, what), fontsize=10.5)
    for number, arrays in enumerate(shown):
        left, bottom = number % columns * (width + PAD), -(number // columns) * (height + PAD)
        box(axes, (left, bottom), (width, height), f"rank {number}")
        for place, (held, colour, below) in enumerate(arrays):
            x, y = left + PAD + place * (SIDE + GAP), bottom + 0.5
            array(axes, (x, y), (SIDE, SIDE), held.shape, held.block, colour)
            caption(axes, x + SIDE / 2, y + SIDE + 0.09, held.name, weight="bold")
            caption(axes, x + SIDE / 2, y - 0.06, below, va="top")
    bottom = -(rows - 1) * (height + PAD) - 0.3
    write_lines(axes, lines, bottom)
    longest = max(map(len, lines)) * 0.105
    middle, half = wide / 2, max(wide, longest) / 2
    frame(axes, min(0, middle - half) - 0.1, middle + half + 0.1, bottom - LINE * (len(lines) + 0.5), height + 0.05)
    legend(figure, COLOURS)
    save(figure, path)


def layers_of(rank, sizes):
    """The lines that say what a rank runs, and along which axes the gradients of each weight are summed."""
    lines = ["layers of rank 0, with their communication:"]
    lines += [f"  {layer!r}" for layer in rank.placed.layers]
    for weight in rank.weights:
        summed = [axis for axis in weight.layout.replicated if sizes.get(axis, 1) > 1]
        lines.append(
            f"gradient of {weight.name}: {'summed along ' + ' and '.join(summed) if summed else 'complete on the rank'}"
        )
    return lines


def write_lines(axes, lines, top):
    for number, line in enumerate(lines):
        caption(axes, 0, top - LINE * number, line, ha="left", va="top", family="monospace", fontsize=7)


def draw_domain(path, ranks=4, side=28, samples=8):
    """The rows of the images that each rank owns and those that it needs, its samples behind the convolution, its weights."""
    layers = [Conv2d(1, 8, 5, padding=2), ReLU(), Flatten(), Linear(8 * side * side, 10)]
    sizes = {"height": ranks}
    shown = on_every_rank(Sequential(layers, input_shape=(side, side, 1)), sizes)
    width, height = 4 * (1.15 + GAP) - GAP + 2 * PAD, 1.15 + HEAD + 0.62
    lines = layers_of(shown[0], sizes)
    figure, axes = plt.subplots(figsize=(11, 5.2))
    axes.set_title(titled(sizes, f"{side} rows of images, a 5x5 convolution, a fully connected layer, {samples} samples"),
                   fontsize=10.5)  # fmt: skip
    for number, rank in enumerate(shown):
        left, bottom = number % 2 * (width + PAD), -(number // 2) * (height + PAD)
        box(axes, (left, bottom), (width, height), f"rank {number}")
        halo = next(layer.move for layer in rank.placed.layers if type(layer) is HaloConv2d)
        owned, needed = (shard.partition.part(number) for shard in (halo.source, halo.target))
        kernels, weight = rank.weights
        behind, everything = rank.output(samples), slice(0, 1)
        arrays = [
            (
                "each image",
                (side, 1),
                (needed, everything),
                HALO,
                f"owns {words(owned, 'rows')}\nneeds {words(needed, 'rows')}",
            ),
            ("kernels W1", (1, 8), (everything, kernels.block[-1]), WEIGHTS, words(kernels.block[-1], "kernels")),
            ("Linear: X", (samples, 1), (behind.block[0], everything), SAMPLES, words(behind.block[0], "samples")),
            ("Linear: W2", (weight.shape[0], 10), weight.block, WEIGHTS, "all of it"),
        ]
        for place, (name, shape, block, colour, below) in enumerate(arrays):
            x, y = left + PAD + place * (1.15 + GAP), bottom + 0.47
            array(axes, (x, y), (1.15, 1.15), shape, block, colour)
            if colour == HALO:
                array_over(axes, (x, y), 1.15, side, owned)
            caption(axes, x + 0.57, y + 1.15 + 0.09, name, weight="bold")
            caption(axes, x + 0.57, y - 0.06, below, va="top")
    bottom = -(height + PAD) - 0.3
    write_lines(axes, lines, bottom)
    frame(axes, -0.1, 2 * (width + PAD), bottom - LINE * (len(lines) + 0.5), height + 0.05)
    legend(figure, {"what the rank owns of images, then of samples": SAMPLES, "the halo, from its neighbours": HALO,
                    "weights": WEIGHTS, "what other ranks hold": ELSEWHERE})  # fmt: skip
    save(figure, path)


def array_over(axes, place, side, rows, owned):
    """The owned rows, over an array in which those that are needed are drawn."""
    top, bottom = (1 - edge / rows for edge in (owned.start, owned.stop))
    axes.add_patch(plt.Rectangle((place[0], place[1] + bottom * side), side, (top - bottom) * side, facecolor=SAMPLES))


def draw_hypergraph(path, name="mnist-cnn", shape=(28, 28, 1), ranks=4):
    """Who owns the outputs of each layer: each layer cut evenly, and the partition of the hypergraph."""
    net = network_names.build(name, shape, 10)
    work, layers = of_network(net), weighted(net)
    even = work.owners(horizontal(work, ranks), ranks)
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.7), sharey=True)
    for panel, title, owners in zip(panels, ("every layer cut evenly", "hypergraph partition"),
                                    (even, partition(net, ranks)), strict=True):  # fmt: skip
        found = measure(work, work.parts(owners), ranks)
        panel.set_title(f"{title}: {found.volume:,} elements a sample in {found.messages} messages,\n"
                        f"max/avg work {found.work.max():.2f}", fontsize=10)  # fmt: skip
        for place, layer in enumerate(layers):
            mine = owners.outputs[layer.name]
            for rank in range(ranks):
                for start, stop in runs((mine == rank).nonzero()[0]):
                    panel.bar(place, (stop - start) / len(mine), 0.62, start / len(mine), color=RANKS[rank], edgecolor="white",
                              linewidth=0.5)  # fmt: skip
        panel.set_xticks(
            range(len(layers)), [f"{type(layer).__name__}\n{layer.outputs} outputs" for layer in layers], fontsize=8
        )
        panel.set(yticks=(0, 0.5, 1), ylim=(1, 0))
        panel.set_yticks((0, 0.5, 1), ["first output", "", "last output"], fontsize=8)
        panel.spines[["top", "right", "left", "bottom"]].set_visible(False)
        panel.tick_params(length=0)
    figure.suptitle(f"{name} on {ranks} ranks: who owns which filters and neurons", fontsize=10.5, color=TEXT)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    legend(figure, {f"rank {rank}": RANKS[rank] for rank in range(ranks)})
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/schemes.")
    parser.add_argument("--out", default="docs/schemes", help="the folder of the pictures; default %(default)s")
    folder = Path(parser.parse_args().out)
    kernel_table.use(kernel_table.PLAIN)  # nothing is timed here: no table of this processor need be measured
    two_layers = "two fully connected layers, 32 samples"
    draw_dense(folder / "batch.png", {"batch": 4}, two_layers)
    draw_dense(folder / "model.png", {"model": 4}, two_layers)
    draw_dense(folder / "integrated.png", {"batch": 2, "model": 2}, two_layers)
    shares = (3, 2, 1.5, 1)
    unequal = f"{two_layers}, shares {','.join(map(str, shares))}"
    draw_dense(folder / "unequal.png", {"batch": 4}, unequal, shares={"batch": shares})
    draw_domain(folder / "domain.png")
    draw_pipeline(folder / "pipeline.png")
    draw_hypergraph(folder / "hypergraph.png")
    draw_protocols(folder / "protocols.png")


if __name__ == "__main__":
    main()
