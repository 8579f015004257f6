"""Owners in an HDF5 file, for `--plan FILE`: the program `partition` writes it, and any other program can."""

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import made_in_memory, own, read_array, reading
from gridgrad.parallel.plans.hypergraph import Owners

FORMAT = "gridgrad owners 1"
SUFFIX = ".h5"  # of the names of such files


def write_owners(owners, path):
    """Write attributes `format`, `ranks`, `loss`, and an array for each layer in `outputs` and `pairs`; whole or not at all."""
    kind = np.min_scalar_type(owners.ranks)
    with made_in_memory(path) as file:
        file.attrs.update({"format": FORMAT, "ranks": owners.ranks, "loss": owners.loss})
        for group in ("outputs", "pairs"):
            folder = file.create_group(group, track_order=True)
            for name, found in getattr(owners, group).items():
                folder.create_dataset(name, data=found.astype(kind), compression="gzip" if found.size else None)


def read_owners(path, net):
    """The Owners in a file, for a network. Raises OSError without the file, ValueError if it is none or does not fit."""
    with open(path, "rb", opener=limits.ordinary):  # a missing file is said in words of the system
        pass
    layers = {layer.name: layer for layer in net.leaves() if layer.kind}
    shapes = {"outputs": lambda layer: (layer.outputs,), "pairs": lambda layer: (layer.inputs, layer.outputs)}
    with reading(path, "not the owners of this network", "write it anew, for example by the program partition") as file:
        if file.attrs.get("format") != FORMAT:
            raise ValueError(f"it does not say that it is '{FORMAT}'")
        for name in ("ranks", "loss"):
            if not isinstance(file.attrs.get(name), np.integer):
                raise ValueError(f"the attribute {name} must be a whole number")
        outputs, pairs = (_arrays(file, group, layers, shape) for group, shape in shapes.items())
        owners = Owners(int(file.attrs["ranks"]), outputs, pairs, int(file.attrs["loss"]))
        owners.check(layers.values())
    return owners


def _arrays(file, group, layers, shape):
    """{name: array} of a group of a file. shape: a function of a layer. ValueError for a wrong array, before it is read."""
    folder, found = own(file, group, h5py.Group), {}
    for name in folder:
        if name not in layers:
            raise ValueError(f"there is no layer {name} with weights")
        what = f"the {group} of layer {name} {layers[name]!r}"
        found[name] = read_array(folder, name, shape(layers[name]), "iu", what)
    return found
