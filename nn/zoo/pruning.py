"""Pruning by magnitude: a network with the smallest weights of its Linear layers set to zero, for good; and its HDF5 file."""

from copy import copy
from pathlib import Path

import numpy as np

from gridgrad.nn.files.hdf5_arrays import made_in_memory, read_array, reading
from gridgrad.nn.layers.linear import Linear, SparseLinear
from gridgrad.nn.sequential import Sequential


def prune(net, zeros, layer_by_layer=False):
    """A new Sequential whose Linear layers hold the largest weights of `net`, and zeros elsewhere, which stay in training.
    zeros: the fraction of the weights of all Linear layers, or of each if `layer_by_layer`, in [0, 1); biases do not count.
    ValueError for another fraction, or if there is no Linear layer, or other layers have weights or branches."""
    if not 0 <= zeros < 1:
        raise ValueError(f"the fraction of zeros must be at least 0 and below 1, not {zeros}")
    state = net.state_dict()
    sizes = {layer.name: np.abs(state[f"{layer.name}.weight"].T) for layer in net.layers if isinstance(layer, Linear)}
    if not sizes:
        raise ValueError("the network has no Linear layer to prune")
    groups = [[name] for name in sizes] if layer_by_layer else [list(sizes)]
    patterns = {}
    for names in groups:
        together = np.concatenate([sizes[name].ravel() for name in names])
        count = round(zeros * len(together))
        largest_to_go = np.partition(together, count - 1)[count - 1] if count else -1.0
        patterns |= {name: sizes[name] > largest_to_go for name in names}
    return with_patterns(net, patterns, state)


def with_patterns(net, patterns, state):
    """A new Sequential with SparseLinear layers for the Linear ones of `net`, and the values of a `state_dict`.
    patterns: {name of a Linear layer: pattern}, for all. ValueError if other layers have weights or branches."""
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


def write(path, net, spec):
    """Write a pruned Sequential; the file appears whole or not at all. spec: the name of the network that was pruned."""
    with made_in_memory(path) as file:
        file.attrs.update({"net": spec, "features": net.input_shape[0], "outputs": net.output_shape(net.input_shape)[0]})
        for name, array in net.state_dict().items():
            file.create_dataset(name, data=array, compression="gzip")


def read(path, make):
    """The Sequential in a file; weights that are zero there stay zero in training. ValueError names the file if it is damaged.
    make: a function from a name and the numbers of features and of outputs to the network that was pruned."""
    if not Path(path).is_file():
        raise ValueError(f"no file {path}: the program pruned writes it, with --out {path}")
    with reading(path, "no pruned network", "write it anew by the program pruned") as file:
        spec, sizes = file.attrs.get("net"), [file.attrs.get(name) for name in ("features", "outputs")]
        if not isinstance(spec, str) or not all(isinstance(size, np.integer) and size > 0 for size in sizes):
            raise ValueError("the name of the network, its features or its outputs are missing")
        net = make(spec, *map(int, sizes))
        state = {f"{layer.name}.{p.name}": _values(file, layer, p) for layer in net.leaves() for p in layer.parameters}
        patterns = {layer.name: state[f"{layer.name}.weight"].T != 0 for layer in net.layers if isinstance(layer, Linear)}
        return with_patterns(net, patterns, state)


def _values(file, layer, p):
    """The array of a Parameter, in PyTorch's layout. ValueError for anything but finite numbers of the right shape."""
    name, shape = f"{layer.name}.{p.name}", tuple(p.shape[axis] for axis in p.torch_axes)
    return read_array(file, name, shape, "f", name)
