"""A whole network placed: the layers that one rank runs."""

from dataclasses import dataclass

from parallel.placement.layout import Layout
from parallel.placement.partition import Split
from parallel.placement.placer import Placer
from parallel.placement.plans import CHOSEN, FIXED, choices, feature_sizes, parse_plan, weighted


@dataclass
class Placed:
    """What a plan makes of a network on one rank.

    layers: those of this rank, with the redistributions between them. plan: the choice of each layer with weights.
    splits: {axis: Split}, how each axis divides things. input, output: the Layouts of what goes in and comes out.
    """

    layers: list
    plan: list
    splits: dict
    input: Layout
    output: Layout


def place(net, grid, plan, shares=None, owners=None):
    """The network on one rank of a grid, a description that costs no memory: a Placed.

    grid: a ProcessGrid, or a description of one. plan, shares, owners, errors: see `parallelize`.
    """
    layers, shape = checked(net)
    words = parse_plan(plan, layers, feature_sizes(net, shape), grid.sizes[CHOSEN])
    for axis in FIXED.keys() & set(words):
        if grid.sizes[axis] > 1:
            raise ValueError(f"plan '{plan}': the axis {axis} splits the images already: leave {axis} out of one of the two")
    if "laugier" in words and any(p for layer in net.leaves() for p in layer.parameters if layer not in layers):
        raise ValueError("plan 'laugier' has no rule for layers such as BatchNorm: use another plan")
    placer = Placer(grid, choices(layers, words), shape, splits(grid.sizes, shares), checked_owners(owners, layers, grid))
    input = placer.layout
    placer.place(net.layers)
    placer.finish()
    return Placed(placer.layers, words, placer.splits, input, placer.layout)


def splits(sizes, shares=None):
    """{axis: Split} of a grid: even, or by `shares`, {axis: weights}. ValueError for shares that do not fit the grid."""
    for axis, weights in (shares or {}).items():
        if axis not in sizes:
            raise ValueError(f"shares: unknown axis {axis}; there are {', '.join(sizes)}")
        if len(weights) != sizes[axis]:
            raise ValueError(f"shares: {len(weights)} for the axis {axis}, which has {sizes[axis]} ranks: give one for each")
    return {axis: Split(size, tuple(shares[axis]) if shares and axis in shares else None) for axis, size in sizes.items()}


def checked_owners(owners, layers, grid):
    """The Partitions of the outputs of some layers; ValueError where one does not fit its layer or the grid."""
    outputs, ranks = {layer.name: layer.outputs for layer in layers}, grid.sizes[CHOSEN]
    for name, partition in (owners or {}).items():
        if name not in outputs:
            raise ValueError(f"owners: there is no layer {name} with weights")
        if (partition.length, partition.ranks) != (outputs[name], ranks):
            raise ValueError(f"owners: layer {name} has {outputs[name]} outputs and the axis {CHOSEN} {ranks} ranks, but the "
                             f"partition is of {partition.length} over {partition.ranks}")  # fmt: skip
    return owners if ranks > 1 else None


def checked(net):
    """(layers with weights, shape of a sample) of a network; ValueError if it can not be placed."""
    layers = weighted(net)
    if not layers:
        raise ValueError("there is nothing to parallelize: the net has no Linear or Conv2d layer")
    if net.input_shape is None and any(layer.takes_images for layer in net.leaves()):
        raise ValueError("the size of the images is not known: give Sequential(.., input_shape=(height, width, channels))")
    return layers, tuple(net.input_shape or (layers[0].inputs,))
