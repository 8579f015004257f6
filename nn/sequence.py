"""Functions on a list of layers that run one after another: a network, or one branch of a branching layer."""

from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer


def name_and_order(layers, prefix=""):
    """Name each layer by its position, with `prefix`, and return the layers in the order in which they run.

    A monotone activation in front of a max-pooling runs after it: the result is bitwise the same, and the activation has
    fewer elements to compute. Raises ValueError for a layer that is already part of a network, or that occurs twice.
    """
    layers = list(layers)
    check_layers(layers)
    for position, layer in enumerate(layers):
        layer.give_name(f"{prefix}{position}")
    for i in range(len(layers) - 1):
        if layers[i].is_monotone and layers[i + 1].is_max_pooling:
            layers[i : i + 2] = layers[i + 1], layers[i]
    return mark_in_place(layers)


def check_layers(layers):
    """Raise ValueError for an object that is not a layer, a layer that is already in a network, or one that occurs twice."""
    places = {}  # for the id of each layer: the position in the list where it, or the layer that contains it, first occurs
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
    """All layers of the list, each followed by the layers in its branches."""
    for layer in layers:
        yield layer
        for branch in getattr(layer, "children", ()):
            yield from with_branches(branch)


def mark_in_place(layers):
    """Set `in_place` of each layer, in branches too, and return the layers.

    A layer may overwrite its input if the preceding layer does not need its output for the backward pass.
    """
    for i, layer in enumerate(layers):
        layer.in_place = i > 0 and layers[i - 1].output_may_be_overwritten
        for branch in layer.children:
            mark_in_place(branch)
    return layers


def leaves(layers):
    """All layers that have no branches: a branching layer is replaced by the layers in its branches."""
    for layer in layers:
        if layer.children:
            for branch in layer.children:
                yield from leaves(branch)
        else:
            yield layer


def has_parameters(layer):
    """Whether the layer, or one in its branches, has parameters."""
    return any(leaf.parameters for leaf in leaves([layer]))


def forward(layers, x, context):
    """The output of the last layer for the input x of the first."""
    if context.observer is None:  # as below, without the cost of `run`
        for layer in layers:
            x = layer.forward(x, context)
        return x
    for layer in layers:
        x = context.run(layer, "forward", x)
    return x


def backward(layers, dy, context):
    """Both halves of the backward pass of all layers; returns the gradient of the first layer's input."""
    if context.observer is None:
        for layer in reversed(layers):
            dy = layer.backward(dy, context)
        return dy
    for layer in reversed(layers):
        dy = context.run(layer, "backward", dy) if layer.has_fused_backward else layer.backward(dy, context)
    return dy


def backward_without_input(layers, dy, context):
    """Write the gradients of all parameters of the layers, but do not compute the gradient of the first layer's input."""
    first, behind = split_at_first_parameters(layers)
    for layer in first:
        dy = backward(behind, dy, context)
        if layer.children:
            context.begin_pass(layer, "gradients")
            layer.backward_without_input(dy, context)
            context.end_pass(layer, "gradients")
            return
        context.run(layer, "gradients", dy)
        context.written(layer)


def split_at_first_parameters(layers):
    """(the first layer that has parameters, as a list of one; the layers behind it). Both are empty if no layer has any.

    Without parameters in front of that layer, its input's gradient may not be needed.
    """
    first = next((i for i, layer in enumerate(layers) if has_parameters(layer)), len(layers))
    return layers[first : first + 1], layers[first + 1 :]


def input_gradients(layers, dy, context):
    """One half of the backward pass: returns the gradient of the first layer's input.

    The context then holds what `parameter_gradients` needs for the other half.
    """
    for layer in reversed(layers):
        keep_gradient(layer, dy, context)
        dy = context.run(layer, "input_gradient", dy)
    return dy


def input_gradients_without_input(layers, dy, context):
    """`input_gradients` without computing the gradient of the first layer's input."""
    first, behind = split_at_first_parameters(layers)
    for layer in first:
        dy = input_gradients(behind, dy, context)
        keep_gradient(layer, dy, context)
        if layer.children:  # the layers in its branches need the gradients of their outputs as well
            context.begin_pass(layer, "input_gradient")
            layer.input_gradients_without_input(dy, context)
            context.end_pass(layer, "input_gradient")


def keep_gradient(layer, dy, context):
    """Store a copy of the gradient of a layer's output for `parameter_gradients`: the preceding layers overwrite the array."""
    if layer.parameters:
        kept = context[layer]
        kept.dy = kept.workspace("kept gradient", dy.shape, dy.dtype)
        xp.copyto(kept.dy, dy)


def parameter_gradients(layers, context):
    """The other half, after `input_gradients`: writes the gradients of all parameters."""
    for layer in reversed(layers):
        if has_parameters(layer):  # the layers in branches have stored the gradients of their own outputs
            context.run(layer, "gradients", context[layer].dy)
        if layer.parameters:
            context.written(layer)


def output_shape(layers, shape):
    """The shape of one output sample for an input sample of `shape`. Raises ValueError naming the layer that cannot take it."""
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def shapes(layers, shape):
    """(layer, shape of an input sample, shape of an output sample) for each layer; a branching layer follows its branches."""
    for layer in layers:
        for branch in layer.children:
            yield from shapes(branch, shape)
        before, shape = shape, layer.output_shape(shape)
        yield layer, before, shape
