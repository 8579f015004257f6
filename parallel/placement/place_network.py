"""A whole network placed: the layers that one rank runs."""

from dataclasses import dataclass

from nn import Conv2d, Flatten
from nn.pool import Pool2d
from parallel.placement.layout import Layout
from parallel.placement.placer import Placer
from parallel.placement.plans import INPUT, along_height, feature_sizes, parse_plan, weighted


@dataclass
class Placed:
    """What a plan makes of a network on one rank.

    layers: those of this rank, with the redistributions between them. plan: the choice of each layer with weights.
    input, output: the Layouts of what goes in and comes out.
    """

    layers: list
    plan: list
    input: Layout
    output: Layout


def place(net, grid, plan):
    """The network on one rank of a grid, a description that costs no memory: a Placed.

    grid: a ProcessGrid, or an Outline of one. plan, errors: as of `parallelize`.
    """
    layers, shape = checked(net)
    model = parse_plan(plan, layers, feature_sizes(net, shape), grid.sizes["model"])
    if "height" in model and grid.sizes["height"] > 1:
        raise ValueError(f"plan '{plan}': the axis height splits the images already: leave height out of one of the two")
    if "laugier" in model and any(p for layer in net.leaves() for p in layer.parameters if layer not in layers):
        raise ValueError("plan 'laugier' has no rule for layers such as BatchNorm: use another plan")
    choices = {"height": dict(zip(layers, along_height(layers))), "model": dict(zip(layers, model))}
    start = {axis: INPUT[choices[axis][layers[0]]] for axis in choices}
    placer = Placer(grid, choices, shape, start)
    input = placer.layout
    placer.place(net.layers)
    placer.finish()
    return Placed(placer.layers, model, input, placer.layout)


def checked(net):
    """(layers with weights, shape of a sample) of a network; ValueError if it can not be placed."""
    layers = weighted(net)
    if not layers:
        raise ValueError("there is nothing to parallelize: the net has no Linear or Conv2d layer")
    if net.input_shape is None and any(isinstance(layer, Conv2d | Pool2d | Flatten) for layer in net.leaves()):
        raise ValueError("the size of the images is not known: give Sequential(.., input_shape=(height, width, channels))")
    return layers, tuple(net.input_shape or (layers[0].inputs,))
