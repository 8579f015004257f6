"""Pruning by magnitude: the network with the smallest weights of its Linear layers set to zero, for good."""

from copy import copy

import numpy as np

from gridgrad.nn.layers.linear import Linear
from gridgrad.nn.layers.sparse_linear import SparseLinear
from gridgrad.nn.sequential import Sequential


def prune(net, zeros, layer_by_layer=False):
    """A new Sequential whose Linear layers hold the largest weights of `net`, and zeros elsewhere, which stay in training.

    net: a Sequential, trained already; it is not changed. zeros: the fraction of all weights of its Linear layers that become
    zero, in [0, 1); biases do not count. Weights that an earlier pruning has set to zero are the smallest.
    layer_by_layer: whether every layer loses this fraction of its own weights, instead of all layers together.
    Raises ValueError for another fraction, or a network that has no Linear layer, or other layers with weights or branches.
    """
    if not 0 <= zeros < 1:
        raise ValueError(f"the fraction of zeros must be at least 0 and below 1, not {zeros}")
    state = net.state_dict()
    sizes = {layer.name: np.abs(state[f"{layer.name}.weight"].T) for layer in net.layers if isinstance(layer, Linear)}
    if not sizes:
        raise ValueError("the network has no Linear layer to prune")
    groups = [[name] for name in sizes] if layer_by_layer else [list(sizes)]
    patterns = {}
    for names in groups:
        least = threshold(np.concatenate([sizes[name].ravel() for name in names]), zeros)
        patterns |= {name: sizes[name] > least for name in names}
    return with_patterns(net, patterns, state)


def threshold(sizes, zeros):
    """The largest of the magnitudes that go, the fraction `zeros` of `sizes`, (n,); -1 if none goes."""
    count = round(zeros * len(sizes))
    return np.partition(sizes, count - 1)[count - 1] if count else -1.0


def with_patterns(net, patterns, state):
    """A new Sequential with SparseLinear layers in place of the Linear ones, and the values of a `state_dict`.

    net: a Sequential, which is not changed. patterns: {name of a layer: pattern}, for all of its Linear layers.
    Raises ValueError if other layers have weights or branches.
    """
    layers = []
    for layer in net.layers:
        if layer.name in patterns:
            layers.append(SparseLinear(patterns[layer.name], layer.has_bias))
            continue
        if layer.parameters or layer.buffers or layer.children:
            raise ValueError(f"layer {layer.name} {layer!r}: in a pruned network only Linear layers may have weights")
        layers.append(copy(layer))
        layers[-1].name = ""
    new = Sequential(layers, net.seed, net.dtype, net.input_shape)
    new.load_state_dict(state)
    new.step = net.step
    return new
