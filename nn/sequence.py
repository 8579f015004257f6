"""Layers that run one after another: their order, their passes, and which of them run as one."""

from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer
from gridgrad.nn.layers.activations import ReLU
from gridgrad.nn.layers.conv import Conv2d, PooledConv2d
from gridgrad.nn.layers.normalisation import BatchNorm
from gridgrad.nn.layers.pool import MaxPool2d
from gridgrad.nn.observer import observed


def name_and_order(layers, prefix=""):
    """The layers, named by their positions, with `prefix`, in the order in which they run; ValueError as `check_layers`."""
    layers = list(layers)
    check_layers(layers)
    for position, layer in enumerate(layers):
        layer.give_name(f"{prefix}{position}")
    for i in range(len(layers) - 1):
        # A maximum of an activation that never decreases is the activation of the maximum, of fewer elements.
        if layers[i].is_monotone and layers[i + 1].is_max_pooling:
            layers[i : i + 2] = layers[i + 1], layers[i]
    return layers


def check_layers(layers):
    """ValueError for what is no layer, and for a layer that is already part of a network or occurs twice."""
    places = {}  # {id of a layer: the first position in the list of it, or of the layer whose branch it is in}
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


def leaves(layers):
    """All layers that have no branches: a branching layer is replaced by the layers in its branches."""
    return (layer for layer in with_branches(layers) if not layer.children)


def has_parameters(layer):
    """Whether the layer, or one in its branches, has parameters."""
    return any(leaf.parameters for leaf in leaves([layer]))


def fuse(layers):
    """The layers as they run: neighbours become one layer where an array need not be written to memory between them."""
    fused = []
    for layer in layers:
        before = fused[-1] if fused else None
        if type(layer) is MaxPool2d and type(before) is Conv2d:
            fused[-1] = PooledConv2d(before, layer)
        elif type(layer) is ReLU and isinstance(before, BatchNorm) and before.relu is None:
            fused[-1] = before.rectified(layer)
        else:
            fused.append(layer)
    return fused


class Chunk:
    """The passes of consecutive layers: those of a network, of a part of it in a pipeline, or of a branch.
    layers: in the order in which they run. executed: what the passes call, with some neighbours as one layer (`fuse`)."""

    def __init__(self, layers):
        for i, layer in enumerate(layers):  # a layer may overwrite its input if the one before does not need that in backward
            layer.in_place = i > 0 and layers[i - 1].output_may_be_overwritten
        self.layers, self.executed = layers, fuse(layers)  # some of these are copies, so the marks come first
        self._backwards = self.executed[::-1]
        self._trained = [layer for layer in self._backwards if has_parameters(layer)]
        # Nobody may need the gradient of the input: then a backward pass ends with the first layer that has parameters.
        self._first = self._trained[-1] if self._trained else None
        self._behind = self._backwards[: self._backwards.index(self._first)] if self._trained else []
        self._passes, self._passes_behind = _backward_passes(self._backwards), _backward_passes(self._behind)

    def forward(self, x, context):
        """The output of the last layer for the input x of the first."""
        for layer in self.executed:
            x = layer.forward(x, context) if context.observer is None else context.run(layer, "forward", x)
        return x

    def backward(self, dy, context, input_gradient=True):
        """Both halves: write the gradients of the parameters; returns the gradient of the input, or None if not wanted."""
        for layer, phase in self._passes if input_gradient else self._passes_behind:
            result = getattr(layer, phase)(dy, context) if context.observer is None else context.run(layer, phase, dy)
            if phase != "gradients":
                dy = result
        if input_gradient:
            return dy
        if self._first and self._first.children:
            self._enter_branches("gradients", "backward", dy, context)
        elif self._first:
            context.run(self._first, "gradients", dy)
        return None

    def loss(self, loss, x, targets, context):
        """The loss, a float, of the outputs for x."""
        return observed(context.observer, loss, "forward", self.forward(x, context), targets, context, context=context)

    def backward_from(self, loss, context, half="backward", input_gradient=False):
        """`backward`, or its half `input_gradients`, from the gradient of a loss on."""
        dy = observed(context.observer, loss, "backward", context, context=context)
        return getattr(self, half)(dy, context, input_gradient)

    def input_gradients(self, dy, context, input_gradient=True):
        """One half: returns the gradient of the input, or None, and keeps in the context what `parameter_gradients` needs."""
        for layer in self._backwards if input_gradient else self._behind:
            keep_gradient(layer, dy, context)
            dy = context.run(layer, "input_gradient", dy)
        if input_gradient:
            return dy
        if self._first:
            keep_gradient(self._first, dy, context)
            if self._first.children:  # the layers in its branches need the gradients of their outputs as well
                self._enter_branches("input_gradient", "input_gradients", dy, context)
        return None

    def parameter_gradients(self, context):
        """The other half: write the gradients of the parameters."""
        for layer in self._trained:  # the layers in branches have kept the gradients of their own outputs
            context.run(layer, "gradients", context[layer].dy)

    def _enter_branches(self, phase, branch_phase, dy, context):
        """Call a pass of the branches of the first layer, without the gradient of the input. phase: for observers."""
        context.begin_pass(self._first, phase)
        self._first.without_input(branch_phase, dy, context)
        context.end_pass(self._first, phase)

    @property
    def size(self):
        """How many elements of the parameters this process holds."""
        return sum(p.size for leaf in leaves(self.layers) for p in leaf.parameters)


def _backward_passes(layers):
    """[(layer, name of a method)]: what a backward pass calls, both halves at once where a layer has a method for that."""
    passes = []
    for layer in layers:
        if type(layer).backward is not Layer.backward:
            passes.append((layer, "backward"))
        else:
            passes += [(layer, "gradients")] if layer.parameters else []
            passes.append((layer, "input_gradient"))
    return passes


def keep_gradient(layer, dy, context):
    """Keep a copy of the gradient of a layer's output for `parameter_gradients`: the layers before it overwrite the array."""
    if layer.parameters:
        kept = context[layer]
        kept.dy = kept.workspace("kept gradient", dy.shape, dy.dtype)
        xp.copyto(kept.dy, dy)


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
