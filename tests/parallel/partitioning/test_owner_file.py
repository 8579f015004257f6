"""Owners in a file: there and back, and files that are none or of another network."""

import h5py
import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Residual, Sequential
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import FORMAT, read_owners, write_owners
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.hypergraph import Owners


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
        ({"outputs_3": None}, "there are none for layer 3"),
        ({"outputs_3": np.zeros(6, int)}, "the outputs of layer 3 Linear(256, 5) must be 5 whole numbers"),
        ({"outputs_3": np.zeros(5)}, "the outputs of layer 3 Linear(256, 5) must be 5 whole numbers"),
        ({"outputs_3": h5py.ExternalLink("other.h5", "/outputs/3")}, "it has no dataset 3 of its own"),
        ({"outputs_3": h5py.SoftLink("/outputs/0")}, "it has no dataset 3 of its own"),
        ({"outputs": h5py.ExternalLink("other.h5", "/outputs")}, "it has no group outputs of its own"),
        ({"outputs_3": np.full(5, -1)}, "must be ranks from 0 to 1"),
        ({"pairs_0": np.zeros((2, 4), int)}, "must be 3x4 whole numbers"),
        ({"pairs": None}, "it has no group pairs of its own"),
        ({"outputs": 7}, "it has no group outputs of its own"),
        ({"ranks": "many"}, "the attribute ranks must be a whole number"),
        ({"ranks": 2.7}, "the attribute ranks must be a whole number"),
        ({"loss": np.inf}, "the attribute loss must be a whole number"),
        ({"loss": [0, 1]}, "the attribute loss must be a whole number"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, changes, words):
    changed(tmp_path / "owners.h5", **changes)
    with pytest.raises(ValueError) as caught:
        read_owners(tmp_path / "owners.h5", network())
    assert words in str(caught.value) and "owners.h5" in str(caught.value) and "\n" not in str(caught.value)


def test_arrays_that_do_not_fit_are_not_read(tmp_path):
    path = tmp_path / "owners.h5"
    changed(path, outputs_3=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("outputs/3", (1 << 50,), "i8", chunks=(1 << 20,))  # takes no place in the file
    with pytest.raises(ValueError, match="must be 5 whole numbers"):
        read_owners(path, network())
    layout = h5py.VirtualLayout((5,), "i8")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "outputs", (5,))
    for others in ({"external": [(str(tmp_path / "other"), 0, 40)]}, None):
        with h5py.File(path, "r+") as file:
            del file["outputs/3"]
            if others:
                file.create_dataset("outputs/3", (5,), "i8", **others)
            else:
                file.create_virtual_dataset("outputs/3", layout)
        with pytest.raises(ValueError, match="must be 5 whole numbers"):
            read_owners(path, network())


def test_pairs_of_linear_layers_are_taken(tmp_path):
    net, pairs = network(), np.arange(256 * 5).reshape(256, 5) % 2
    outputs = {layer.name: np.zeros(layer.outputs, int) for layer in net.leaves() if layer.kind}
    write_owners(Owners(2, outputs, {"3": pairs}), tmp_path / "owners.h5")
    assert (read_owners(tmp_path / "owners.h5", net).pairs["3"] == pairs).all()


def test_another_network_no_file_and_no_hdf5(tmp_path):
    path = tmp_path / "owners.h5"
    with pytest.raises(FileNotFoundError):
        read_owners(path, network())
    changed(path)
    with pytest.raises(ValueError, match="the outputs of layer 0 .* must be 8 whole numbers"):
        read_owners(path, network(8))
    other = Sequential([Conv2d(3, 4, 3, padding=1), Flatten()], input_shape=(8, 8, 3))
    with pytest.raises(ValueError, match="there is no layer 1.branch.1 with weights"):
        read_owners(path, other)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="not the owners of this network .*open file"):
        read_owners(path, network())
    path.write_text("rank 0")
    with pytest.raises(ValueError, match="not the owners of this network .*open file"):
        read_owners(path, network())
