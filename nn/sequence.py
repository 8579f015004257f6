"""Layers one after another: what a network and each branch of one have in common."""

from nn.device import xp
from nn.layer import Layer


def arranged(layers, prefix=""):
    """Name each layer by its position, and return them in the order in which they run.

    A monotone activation in front of a max-pooling runs behind it: the result is the same, bit by bit, for a fraction
    of the work. ValueError for a layer that is part of a network already, or that stands in two places of this one.
    """
    layers = list(layers)
    check_new(layers)
    for position, layer in enumerate(layers):
        layer.give_name(f"{prefix}{position}")
    for i in range(len(layers) - 1):
        if layers[i].is_monotone and layers[i + 1].takes_largest:
            layers[i : i + 2] = layers[i + 1], layers[i]
    return sharing(layers)


def check_new(layers):
    """Raise ValueError for what is no layer, for a layer that is part of a network already, and for one that occurs twice."""
    places = {}  # of each object, by its id: the first layer of the list that is it, or holds it in a branch
    for position, outer in enumerate(layers):
        for layer in with_branches([outer]):
            if not isinstance(layer, Layer):
                raise ValueError(f"layer {position} is {layer!r}, which is no layer: write one such as ReLU()")
            if layer.name:
                raise ValueError(f"layer {position} {outer!r} is part of a network already: make a new one")
            if id(layer) in places:
                where = f"layers {places[id(layer)]} and {position}" if places[id(layer)] != position else f"layer {position}"
                raise ValueError(f"the same object {layer!r} occurs twice, in {where}: make a new one for each place")
            places[id(layer)] = position


def with_branches(layers):
    """All layers, and all in their branches."""
    for layer in layers:
        yield layer
        for branch in getattr(layer, "children", ()):
            yield from with_branches(branch)


def sharing(layers):
    """The layers, each told whether it may overwrite its input, which the layer before does not need again."""
    for i, layer in enumerate(layers):
        layer.in_place = i > 0 and layers[i - 1].output_is_free
        for branch in layer.children:
            sharing(branch)
    return layers


def leaves(layers):
    """All layers, those of branches in place of what holds them."""
    for layer in layers:
        if layer.children:
            for branch in layer.children:
                yield from leaves(branch)
        else:
            yield layer


def forward(layers, x, context):
    if context.observer is None:  # as below, without the cost of `run`
        for layer in layers:
            x = layer.forward(x, context)
        return x
    for layer in layers:
        x = context.run(layer, "forward", x)
    return x


def backward(layers, dy, context):
    """Both halves of the backward pass; returns the gradient of the input."""
    if context.observer is None:
        for layer in reversed(layers):
            dy = layer.backward(dy, context)
        return dy
    for layer in reversed(layers):
        dy = context.run(layer, "backward", dy) if layer.fused else layer.backward(dy, context)
    return dy


def input_gradients(layers, dy, context):
    """The one half: returns the gradient of the input, and keeps what `parameter_gradients` needs."""
    for layer in reversed(layers):
        keep_gradient(layer, dy, context)
        dy = context.run(layer, "input_gradient", dy)
    return dy


def keep_gradient(layer, dy, context):
    """Keep the gradient of a layer's output until its `parameter_gradients`: the layers before overwrite it."""
    if layer.parameters:
        kept = context[layer]
        kept.dy = kept.workspace("kept gradient", dy.shape, dy.dtype)
        xp.copyto(kept.dy, dy)


def parameter_gradients(layers, context):
    """The other half, after `input_gradients`."""
    for layer in reversed(layers):
        if layer.parameters or layer.children:  # those that hold others have kept what these need
            context.run(layer, "gradients", context[layer].dy)
        if layer.parameters:
            context.written(layer)


def output_shape(layers, shape):
    """The shape of a sample behind the layers; ValueError naming the layer that does not fit."""
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def shapes(layers, shape):
    """(layer, shape of a sample before, shape behind) of each layer, those of branches before what holds them."""
    for layer in layers:
        for branch in layer.children:
            yield from shapes(branch, shape)
        before, shape = shape, layer.output_shape(shape)
        yield layer, before, shape
