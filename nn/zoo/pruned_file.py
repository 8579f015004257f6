"""Files of pruned networks, in HDF5: which network it was, and its state, in which the weights are zero that were pruned."""

from pathlib import Path

import numpy as np

from gridgrad.nn.files.hdf5_arrays import made_in_memory, read_array, reading
from gridgrad.nn.layers.linear import Linear
from gridgrad.nn.zoo.pruning import with_patterns


def write(path, net, spec):
    """Write a pruned Sequential; the file appears whole or not at all.

    spec: the text by which `gridgrad.nn.zoo.network_names.build` made the network that was pruned.
    """
    with made_in_memory(path) as file:
        file.attrs.update({"net": spec, "features": net.input_shape[0], "outputs": net.output_shape(net.input_shape)[0]})
        for name, array in net.state_dict().items():
            file.create_dataset(name, data=array, compression="gzip")


def read(path, make):
    """The Sequential in a file: its weights are those of the file, and those which are zero there stay zero in training.

    make: a function from a text, the numbers of features and of outputs to the network that was pruned, which it only
    describes. Raises ValueError, which names the file, if anything in it is not as `write` makes it.
    """
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
