"""Networks by their names: those of the zoo have the published sizes, others are what their names say."""

import numpy as np
import pytest

from gridgrad.nn import Dropout, Linear, Tanh, network_summary
from gridgrad.nn.zoo.network_names import ZOO, build

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


def test_the_images_of_googlenet_have_the_published_sizes():
    """Szegedy et al. 2015, table 1: the inception modules work on 28 x 28, 14 x 14 and 7 x 7 pixels."""
    net = build("googlenet", (224, 224, 3), 1000)
    sides = [row.shape[0] for row in network_summary.rows(net, net.input_shape) if len(row.shape) == 3]
    assert list(dict.fromkeys(sides)) == [112, 56, 28, 14, 7, 1]


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
