"""Pruned networks in files, and as `pruned:FILE`."""

import h5py
import numpy as np
import pytest

from gridgrad.nn import Linear, ReLU, SparseLinear
from gridgrad.nn.zoo import network_names, pruning


@pytest.fixture
def written(tmp_path):
    """(the path of a file, the network in it)."""
    net = pruning.prune(network_names.build("mlp:9,relu", 6, 4, seed=3), 0.6)
    path = tmp_path / "pruned.h5"
    pruning.write(path, net, "mlp:9,relu")
    return path, net


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_is_read_as_it_was_written(written, dtype):
    path, net = written
    again = network_names.build(f"pruned:{path}", (2, 3), 4, seed=8, dtype=dtype)
    assert [type(layer) for layer in again.layers] == [SparseLinear, ReLU, SparseLinear]
    assert again.input_shape == (6,) and again.dtype == dtype and again.seed == 8
    for name, value in net.state_dict().items():
        assert np.array_equal(again.state_dict()[name], value)
    assert all(
        np.array_equal(ours.pattern, theirs.pattern) for ours, theirs in zip(again.layers[::2], net.layers[::2], strict=True)
    )


def test_a_file_for_other_data_says_so(written):
    with pytest.raises(ValueError, match="has 6 features and 4 outputs, but 7 and 4 are wanted"):
        network_names.build(f"pruned:{written[0]}", 7, 4)


def change(name, value):
    def damage(path):
        with h5py.File(path, "a") as file:
            if name in file.attrs:
                file.attrs[name] = value
            else:
                del file[name]
                if value is not None:
                    file[name] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "no file .*pruned.h5: the program pruned writes it"),
        (lambda path: path.write_bytes(b"no HDF5"), "pruned.h5: no pruned network"),
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "pruned.h5: no pruned network"),
        (change("net", 5), "the name of the network, its features or its outputs are missing"),
        (change("features", "six"), "are missing"),
        (change("outputs", -4), "are missing"),
        (change("features", 1 << 20), "0.weight must be 9x1048576 floating-point numbers"),
        (change("features", 1 << 50), "samples of 1125899906842624 numbers .* are too large"),
        (change("net", "mlp:9,swish"), "no pruned network .*swish"),
        (change("net", "pruned:again.h5"), "names another file"),
        (change("net", "mlp:9,9,relu"), "2.weight must be 9x9 floating-point numbers"),
        (change("0.weight", None), "0.weight"),
        (change("0.weight", np.ones((9, 6), int)), "0.weight"),
        (change("2.bias", np.full(4, np.nan)), "2.bias has numbers that are not finite"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(written, damage, words):
    damage(written[0])
    with pytest.raises(ValueError, match=words) as error:
        network_names.build(f"pruned:{written[0]}", 6, 4)
    assert "\n" not in str(error.value)


def test_dense_networks_with_other_layers_are_no_pruned_ones(written):
    change("net", "lenet5")(written[0])
    with pytest.raises(ValueError, match="takes images"):
        network_names.build(f"pruned:{written[0]}", 6, 4)
    assert isinstance(network_names.build("mlp:9,relu", 6, 4).layers[0], Linear)
