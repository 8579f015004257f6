"""Pruning by magnitude, sparse layers beside dense ones of masked weights, and pruned networks in files."""

import h5py
import numpy as np
import pytest

from gridgrad.nn import Adam, Context, Dropout, Flatten, Linear, ReLU, Sequential, SoftmaxCrossEntropy, SparseLinear, Tanh
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.zoo import pruning
from gridgrad.nn.zoo.network_names import build
from gridgrad.nn.zoo.pruning import prune

FIRST, SECOND = (np.random.default_rng(seed).random(shape) < 0.3 for seed, shape in enumerate([(7, 9), (9, 4)]))


def sparse_network():
    return Sequential([SparseLinear(FIRST), Tanh(), SparseLinear(SECOND)], seed=3)


def test_passes_equal_those_of_a_dense_layer_of_masked_weights():
    sparse, rng = sparse_network(), np.random.default_rng(0)
    dense = Sequential([Linear(7, 9), Tanh(), Linear(9, 4)], seed=3)
    first = dense.state_dict()
    dense.load_state_dict(sparse.state_dict())
    x, dy = (to_device(rng.standard_normal(shape).astype(np.float32)) for shape in ((5, 7), (5, 4)))
    found = []
    for net in sparse, dense:
        context = Context()
        found.append((to_host(net.forward(x, context)).copy(), to_host(net.backward(dy.copy(), context, input_gradient=True))))
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(*found, strict=True))
    for (layer, p), (_, q) in zip(sparse.parameters, dense.parameters, strict=True):
        kept = layer.pattern if p.name == "weight" else True
        assert np.array_equal(to_host(p.grad), to_host(q.grad) * kept)
        value = first[f"{layer.name}.{p.name}"]
        assert np.array_equal(sparse.state_dict()[f"{layer.name}.{p.name}"], value * np.asarray(kept).T), "from the same seed"


def test_zeros_stay_zeros_in_training_and_when_a_dense_state_is_loaded():
    net, rng, loss = sparse_network(), np.random.default_rng(0), SoftmaxCrossEntropy()
    net.load_state_dict({name: rng.standard_normal(value.shape) for name, value in net.state_dict().items()})
    optimizer, before = Adam(net, 0.01, l2=0.1, l1=0.01), net.state_dict()
    for _ in range(4):
        net.learn(rng.standard_normal((6, 7)), rng.integers(0, 4, 6), loss, optimizer)
    after = net.state_dict()
    for name, kept in (("0.weight", FIRST), ("2.weight", SECOND)):
        assert not before[name].T[~kept].any() and not after[name].T[~kept].any()
        assert (after[name] != before[name]).T[kept].all()


def test_the_smallest_weights_are_pruned():
    net = Sequential([Flatten(), Linear(20, 30), ReLU(), Dropout(0.25), Linear(30, 10)], seed=1, input_shape=(20,))
    state, pruned = net.state_dict(), prune(net, 0.9)
    assert [type(layer) for layer in pruned.layers] == [Flatten, SparseLinear, ReLU, Dropout, SparseLinear]
    assert pruned.layers[3].p == 0.25 and pruned.input_shape == (20,)
    found = pruned.state_dict()
    kept = np.concatenate([found[name][found[name] != 0] for name in ("1.weight", "4.weight")])
    gone = np.concatenate([state[name][found[name] == 0] for name in ("1.weight", "4.weight")])
    assert len(kept) == 90 and np.abs(kept).min() > np.abs(gone).max()
    assert all(np.isin(value, [0, *state[name].ravel()]).all() for name, value in found.items())
    assert all(np.array_equal(found[name], state[name]) for name in ("1.bias", "4.bias"))
    assert all(np.array_equal(net.state_dict()[name], value) for name, value in state.items())


# ----- files


@pytest.fixture
def written(tmp_path):
    """(the path of a file, the network in it)."""
    net = prune(build("mlp:9,relu", 6, 4, seed=3), 0.6)
    pruning.write(tmp_path / "pruned.h5", net, "mlp:9,relu")
    return tmp_path / "pruned.h5", net


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_is_read_as_it_was_written(written, dtype):
    path, net = written
    again = build(f"pruned:{path}", (2, 3), 4, seed=8, dtype=dtype)
    assert [type(layer) for layer in again.layers] == [SparseLinear, ReLU, SparseLinear]
    assert again.input_shape == (6,) and again.dtype == dtype and again.seed == 8
    assert all(np.array_equal(again.state_dict()[name], value) for name, value in net.state_dict().items())
    for ours, theirs in zip(again.layers[::2], net.layers[::2], strict=True):
        assert np.array_equal(ours.pattern, theirs.pattern)
    with pytest.raises(ValueError, match="has 6 features and 4 outputs, but 7 and 4 are wanted"):
        build(f"pruned:{path}", 7, 4)


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


DAMAGED = [
    (lambda path: path.write_bytes(path.read_bytes()[:3000]), "pruned.h5: no pruned network"),
    (change("features", 1 << 20), "0.weight must be 9x1048576 floating-point numbers"),
    (change("0.weight", None), "0.weight"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED)
def test_a_damaged_file_is_named_in_one_line(written, damage, words):
    damage(written[0])
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        build(f"pruned:{written[0]}", 6, 4)
