"""Owners in an HDF5 file, for `--plan FILE`: the program `partition` writes it, and any other program can."""

import h5py
import numpy as np

from parallel.placement.owners import Owners

FORMAT = "gridgrad owners 1"
SUFFIX = ".h5"  # of the names of such files


def write_owners(owners, path):
    """Write Owners: the attributes `format`, `ranks` and `loss`, and an array for each layer in `outputs` and in `pairs`."""
    kind = np.min_scalar_type(owners.ranks)
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": FORMAT, "ranks": owners.ranks, "loss": owners.loss})
        for group in ("outputs", "pairs"):
            folder = file.create_group(group, track_order=True)
            for name, found in getattr(owners, group).items():
                folder.create_dataset(name, data=found.astype(kind), compression="gzip" if found.size else None)


def read_owners(path, net):
    """The Owners in a file, for a network. Raises OSError without the file, ValueError if it is none or does not fit."""
    with open(path, "rb"):  # a missing file is said in words of the system
        pass
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise ValueError(f"it does not say that it is '{FORMAT}'")
            arrays = [{name: found[()] for name, found in file[group].items()} for group in ("outputs", "pairs")]
            owners = Owners(int(file.attrs["ranks"]), *arrays, int(file.attrs["loss"]))
        check_owners(owners, net)
    except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
        reason = "it is no HDF5 file, or a part of one" if isinstance(error, OSError) else str(error)
        raise ValueError(f"{path}: not the owners of this network: {reason}") from None
    return owners


def check_owners(owners, net):
    """Raise ValueError if Owners are not those of a network: of its layers with weights, with their inputs and outputs."""
    layers = {layer.name: layer for layer in net.leaves() if layer.kind}
    missing, unknown = layers.keys() - owners.outputs.keys(), owners.outputs.keys() - layers.keys()
    if missing or unknown:
        words = f"layer {min(missing)} has none" if missing else f"there is no layer {min(unknown)} with weights"
        raise ValueError(f"they are those of another network: {words}")
    for name, found in owners.outputs.items():
        if len(found) != layers[name].outputs:
            raise ValueError(f"layer {name} has {layers[name].outputs} outputs, but there are {len(found)} owners")
    for name, found in owners.pairs.items():
        expected = layers[name].inputs, layers[name].outputs
        if layers[name].kind != "conv" or found.shape != expected:
            raise ValueError(f"layer {name} {layers[name]!r} can not have owners of pairs that are an array {found.shape}")
