"""Networks by their names: the zoo has the published sizes, others are what their names say; and networks that are pruned."""

import h5py
import numpy as np
import pytest

from gridgrad.nn import (
    Adam,
    Dropout,
    Flatten,
    Linear,
    ReLU,
    Sequential,
    SoftmaxCrossEntropy,
    SparseLinear,
    Tanh,
    network_summary,
)
from gridgrad.nn.zoo import pruning
from gridgrad.nn.zoo.network_names import ZOO, build
from gridgrad.nn.zoo.pruning import prune

COUNTS = [
    ("mlp2", 1024, 10, 2_119_690), ("mlp3", 1024, 10, 4_207_626), ("mnist-cnn", (28, 28, 1), 10, 169_506),
    ("cifar-cnn", (32, 32, 3), 10, 114_838), ("lenet5", (28, 28, 1), 10, 61_706), ("alexnet", (224, 224, 3), 1000, 61_100_840),
    ("vgg16", (224, 224, 3), 1000, 138_357_544), ("resnet18", (224, 224, 3), 1000, 11_689_512),
    ("resnet20", (32, 32, 3), 10, 272_474), ("googlenet", (224, 224, 3), 1000, 6_624_904),
    # Of Marques no count is published: 75 A + A, 25 A B + B, 250 B + 10 by the text's description.
    ("marques-50-500", (32, 32, 3), 10, 754_310), ("marques-150-800", (32, 32, 3), 10, 3_212_210),
    ("marques-300-1000", (32, 32, 3), 10, 7_773_810), ("marques-500-1500", (32, 32, 3), 10, 19_164_510),
]  # fmt: skip


def test_parameter_counts_are_the_published_ones():
    assert {name for name, *_ in COUNTS} == set(ZOO)
    for name, shape, outputs, count in COUNTS:
        net = build(name, shape, outputs)
        assert net.size == count and not net.allocated, name
        assert net.output_shape(net.input_shape) == (outputs,)


def test_the_summary_has_the_operations_and_parameters_of_each_layer():
    net = build("vgg16", (224, 224, 3), 1000)
    rows = network_summary.rows(net, net.input_shape)
    assert sum(row.parameters for row in rows) == 138_357_544
    assert sum(row.flops for row in rows) == pytest.approx(2 * 15.47e9, rel=1e-3)  # 15.47 G multiply-adds
    assert (rows[0].shape, rows[0].parameters, rows[0].flops) == ((224, 224, 64), 1792, 2 * 27 * 224 * 224 * 64)
    assert "138,357,544" in network_summary.table(net, net.input_shape, 8)


def test_a_name_says_what_is_built():
    net = build("mlp:64,32,tanh,dropout=0.25", 10, 3, seed=4, dtype=np.float64)
    assert [type(layer) for layer in net.layers] == [Linear, Tanh, Dropout, Linear, Tanh, Dropout, Linear]
    assert [(layer.inputs, layer.outputs) for layer in net.layers if isinstance(layer, Linear)] == [(10, 64), (64, 32), (32, 3)]
    assert net.layers[2].p == 0.25 and (net.seed, net.dtype) == (4, np.float64)
    assert len(build("mlp:relu", 10, 3).layers) == 1
    for name, drop in (("vgg16", 0.5), ("vgg16,dropout=0.25", 0.25)):
        assert [leaf.p for leaf in build(name, (32, 32, 3), 10).leaves() if isinstance(leaf, Dropout)] == [drop, drop]
    for name, widths in (("vgg-style:4,8", [4, 4, 8, 8, 256, 5]), ("vgg-style:4:6,7", [4, 4, 6, 7, 5])):
        assert [layer.outputs for layer in build(name, (8, 8, 3), 5).leaves() if hasattr(layer, "outputs")] == widths


REFUSED = [  # (name, shape of a sample, words)
    ("mlp:64,swish", 4, "net"), ("mlp:0,relu", 4, "width"), ("vgg17", (8, 8, 3), "unknown net 'vgg17'"),
    ("lenet5,dropout=0.2", (32, 32, 3), "out of place"), ("vgg16", 784, "takes images"), ("vgg-style:4,x", (8, 8, 3), "style"),
    ("vgg16", (10**9, 10**9, 3), "at most"),  # what no machine holds is refused before it is built
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "words"), REFUSED)
def test_other_names_are_refused(name, shape, words):
    with pytest.raises(ValueError, match=f"^[^\n]*({words})[^\n]*$"):
        build(name, shape, 1)


# ----- pruning


def test_zeros_stay_zeros_in_training_and_when_a_dense_state_is_loaded():
    rng, loss = np.random.default_rng(0), SoftmaxCrossEntropy()
    first, second = (rng.random(shape) < 0.3 for shape in ((7, 9), (9, 4)))
    net = Sequential([SparseLinear(first), Tanh(), SparseLinear(second)], seed=3)
    net.load_state_dict({name: rng.standard_normal(value.shape) for name, value in net.state_dict().items()})
    optimizer, before = Adam(net, 0.01, l2=0.1, l1=0.01), net.state_dict()
    for _ in range(4):
        net.learn(rng.standard_normal((6, 7)), rng.integers(0, 4, 6), loss, optimizer)
    after = net.state_dict()
    for name, kept in (("0.weight", first), ("2.weight", second)):
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


def test_a_pruned_network_is_read_as_it_was_written_and_damage_is_named(tmp_path):
    net, path, dtype = prune(build("mlp:9,relu", 6, 4, seed=3), 0.6), tmp_path / "pruned.h5", np.float64
    pruning.write(path, net, "mlp:9,relu")
    again = build(f"pruned:{path}", (2, 3), 4, seed=8, dtype=dtype)
    assert [type(layer) for layer in again.layers] == [SparseLinear, ReLU, SparseLinear]
    assert again.input_shape == (6,) and again.dtype == dtype and again.seed == 8
    assert all(np.array_equal(again.state_dict()[name], value) for name, value in net.state_dict().items())
    for ours, theirs in zip(again.layers[::2], net.layers[::2], strict=True):
        assert np.array_equal(ours.pattern, theirs.pattern)
    with pytest.raises(ValueError, match="has 6 features and 4 outputs, but 7 and 4 are wanted"):
        build(f"pruned:{path}", 7, 4)
    with h5py.File(path, "a") as file:
        del file["0.weight"]
    with pytest.raises(ValueError, match="^[^\n]*0.weight[^\n]*$"):
        build(f"pruned:{path}", 6, 4)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="^[^\n]*pruned.h5: no pruned network[^\n]*$"):
        build(f"pruned:{path}", 6, 4)
