"""Owners in a file: there and back, and files that are none or of another network."""

import h5py
import numpy as np
import pytest

from nn import Conv2d, Flatten, Linear, ReLU, Residual, Sequential
from parallel.partitioning import naive
from parallel.partitioning.of_network import of_network
from parallel.partitioning.owner_file import FORMAT, read_owners, write_owners


def network(filters=4):
    layers = [Conv2d(3, filters, 3, padding=1), Residual([ReLU(), Conv2d(filters, filters, 1)]), Flatten()]
    return Sequential([*layers, Linear(filters * 64, 5)], input_shape=(8, 8, 3))


@pytest.mark.parametrize("grain", ["coarse", "fine"])
def test_owners_go_through_a_file(tmp_path, grain):
    net = network()
    model = of_network(net, grain)
    owners = model.owners(naive.random(model, 300), 300)
    write_owners(owners, tmp_path / "owners.h5")
    found = read_owners(tmp_path / "owners.h5", net)
    assert (found.ranks, found.loss) == (300, owners.loss)
    for kind in ("outputs", "pairs"):
        expected = getattr(owners, kind)
        assert list(getattr(found, kind)) == list(expected)
        assert all((getattr(found, kind)[name] == array).all() for name, array in expected.items())


def changed(path, **changes):
    model = of_network(network(), "fine")
    write_owners(model.owners(naive.horizontal(model, 2), 2), path)
    with h5py.File(path, "r+") as file:
        for name, value in changes.items():
            where = name.replace("_", "/")
            if name in ("format", "ranks", "loss"):
                file.attrs[name] = value
            else:
                del file[where]
                if value is not None:
                    file[where] = value


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "another"}, f"it does not say that it is '{FORMAT}'"),
        ({"ranks": 1}, "must be ranks from 0 to 0"),
        ({"loss": 2}, "the loss is at rank 2, of 2"),
        ({"outputs_3": None}, "another network: layer 3 has none"),
        ({"outputs_3": np.zeros(6, int)}, "layer 3 has 5 outputs, but there are 6 owners"),
        ({"outputs_3": np.zeros(5)}, "must be an array of ranks, not float64"),
        ({"outputs_3": np.full(5, -1)}, "must be ranks from 0 to 1"),
        ({"pairs_0": np.zeros((2, 4), int)}, "can not have owners of pairs that are an array (2, 4)"),
        ({"pairs": None}, "pairs"),
        ({"outputs": 7}, "not the owners of this network"),
        ({"ranks": "many"}, "not the owners of this network"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, changes, words):
    changed(tmp_path / "owners.h5", **changes)
    with pytest.raises(ValueError) as caught:
        read_owners(tmp_path / "owners.h5", network())
    assert words in str(caught.value) and "owners.h5" in str(caught.value) and "\n" not in str(caught.value)


def test_another_network_no_file_and_no_hdf5(tmp_path):
    path = tmp_path / "owners.h5"
    with pytest.raises(FileNotFoundError):
        read_owners(path, network())
    changed(path)
    with pytest.raises(ValueError, match="has 5 outputs|has 8 outputs"):
        read_owners(path, network(8))
    other = Sequential([Conv2d(3, 4, 3, padding=1), Flatten()], input_shape=(8, 8, 3))
    with pytest.raises(ValueError, match="there is no layer 1.branch.1 with weights"):
        read_owners(path, other)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="it is no HDF5 file, or a part of one"):
        read_owners(path, network())
    path.write_text("rank 0")
    with pytest.raises(ValueError, match="it is no HDF5 file, or a part of one"):
        read_owners(path, network())
