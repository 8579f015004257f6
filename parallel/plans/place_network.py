"""Placing a whole network on a process grid: from a serial network and a plan to the layers that one rank runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral, Real

import numpy as np

from gridgrad.nn.sequence import shapes
from gridgrad.parallel.grid.process_grid import MODEL, STAGE
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.placement.partition import Split
from gridgrad.parallel.placement.placer import Placer, at_stage
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.plans import FEWEST_BYTES, PLANS, by_axis, candidates, fewest_bytes, words_of

LARGEST = 1e100  # bound of a share, so that sums and products of shares stay finite


@dataclass
class Placed:
    """A network as one rank runs it."""

    plan: list  # the word of each layer with weights
    splits: dict  # {axis: Split}
    input: Layout  # of the minibatch
    output: Layout
    chunks: list  # [[layer, ..], ..], one list without a pipeline
    between: list  # the Layout before each chunk and behind the last one

    def __post_init__(self):
        for axis, placement in self.output.placements.items():
            if placement.adjoint != placement:
                raise ValueError(
                    f"the outputs are {placement} along the axis {axis}, so that their gradients must be {placement.adjoint}; "
                    f"but those of a loss are {placement}: end with a placement that is its own adjoint"
                )

    @property
    def layers(self):
        return [layer for chunk in self.chunks for layer in chunk]


def place(net, grid, plan, shares=None, owners=None, cuts=(), places=(0,)):
    """Placed: a serial Sequential on a rank of a ProcessGrid or GridDescription, without memory. cuts: positions where chunks
    begin. places: the rank of each chunk. The rest is as in `parallelize`. ValueError if something does not fit."""
    layers, shape = checked(net)
    words = words_of(plan, layers)
    allowed = [candidates(layer.kind) if word == FEWEST_BYTES else (word,) for word, layer in zip(words, layers, strict=True)]
    sizes = {layer: (prod(before), prod(after)) for layer, before, after in shapes(net.layers, shape)}
    words = fewest_bytes([sizes[layer] for layer in layers], grid.sizes[MODEL], allowed)
    for word in dict.fromkeys(words):
        PLANS[word].check(plan, grid)
    owners = PLANS[words[0]].checked_owners(owners, layers, grid)
    placer = Placer(grid, by_axis(layers, words), shape, splits(grid.sizes, shares), owners)
    chunks, between = [], [placer.layout]
    parts = cut(net.layers, cuts)
    for number, (part, placer.stage) in enumerate(zip(parts, places, strict=True), 1):
        begin = len(placer.layers)
        placer.place(part)
        if number < len(parts):
            placer.whole_values(part[-1].name if part else "")  # summed before they are sent, they are fewer
        else:
            placer.finish()
        chunks.append(placer.layers[begin:])
        between.append(placer.layout)
    input, output = at_stage(between[0], places[0]), at_stage(between[-1], places[-1])
    return Placed(words, placer.splits, input, output, chunks, between)


def check_cuts(cuts, layers):
    """Raise ValueError unless a network can be cut there. cuts: the positions of the layers with which new chunks begin."""
    whole = isinstance(cuts, tuple | list) and all(isinstance(one, Integral) for one in cuts)
    if not whole or list(cuts) != sorted(cuts) or cuts and not 0 <= cuts[0] <= cuts[-1] <= len(layers):
        raise ValueError(
            f"cuts {cuts!r}: they must be whole numbers that do not decrease, from 0 to {len(layers)}: the positions of the "
            f"layers with which new chunks begin"
        )


def cut(layers, cuts):
    """The chunks of a list of layers. cuts: where each chunk after the first begins."""
    bounds = [0, *cuts, len(layers)]
    return [layers[start:stop] for start, stop in zip(bounds, bounds[1:])]


def splits(sizes, shares=None):
    """{axis: Split} of a grid of `sizes`: even, or by shares {axis: a weight for each rank}; ValueError if these do not fit."""
    shares = shares_by_axis(shares)
    if STAGE in shares:
        raise ValueError(f"shares: the axis {STAGE} divides layers, not their arrays: choose where to cut the network instead")
    for axis, weights in shares.items():
        if axis not in sizes:
            raise ValueError(f"shares: unknown axis {axis}; there are {', '.join(sizes)}")
        sized = isinstance(weights, Sequence | np.ndarray) and not isinstance(weights, str)
        if not sized or not all(isinstance(w, Real) and 0 <= w < LARGEST for w in weights):
            raise ValueError(
                f"shares: those of the axis {axis} must be numbers of at least 0, one for each rank, not {weights!r}"
            )
        if not any(weights):
            raise ValueError(f"shares: some rank of the axis {axis} must have a share above 0")
        if len(weights) != sizes[axis]:
            raise ValueError(f"shares: {len(weights)} for the axis {axis}, which has {sizes[axis]} ranks: give one for each")
    return {axis: Split(size, tuple(shares[axis]) if axis in shares else None) for axis, size in sizes.items()}


def shares_by_axis(shares):
    """shares as a dict, {} for None; ValueError for anything else."""
    if not isinstance(shares, dict | None):
        raise ValueError(
            f"shares must be a dict such as {{'model': (3, 2)}}, one number for each rank of an axis, not {shares!r}"
        )
    return shares or {}


def checked(net):
    """(layers with weights, shape of a sample) of a network; ValueError if it cannot be placed."""
    layers = weighted(net)
    if not layers:
        raise ValueError("there is nothing to parallelize: the net has no Linear or Conv2d layer, and no autoencoder")
    if net.input_shape is None and any(layer.takes_images for layer in net.leaves()):
        raise ValueError("the size of the images is not known: give Sequential(.., input_shape=(height, width, channels))")
    return layers, tuple(net.input_shape or (layers[0].inputs,))
