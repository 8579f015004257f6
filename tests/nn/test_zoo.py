"""The networks of the zoo: published sizes, and equal to PyTorch's over five steps."""

from itertools import product

import numpy as np
import pytest

from gridgrad.nn import SGD, Context, Dropout, SoftmaxCrossEntropy, network_summary
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.zoo import network_names

COUNTS = [
    ("mlp2", 1024, 10, 2_119_690), ("mlp3", 1024, 10, 4_207_626), ("mnist-cnn", (28, 28, 1), 10, 169_506),
    ("cifar-cnn", (32, 32, 3), 10, 114_838), ("lenet5", (28, 28, 1), 10, 61_706), ("alexnet", (224, 224, 3), 1000, 61_100_840),
    ("vgg16", (224, 224, 3), 1000, 138_357_544), ("resnet18", (224, 224, 3), 1000, 11_689_512),
    ("resnet20", (32, 32, 3), 10, 272_474), ("googlenet", (224, 224, 3), 1000, 6_624_904),
    # Of Marques no count is published: 75 A + A, 25 A B + B, 250 B + 10 by the text's description.
    ("marques-50-500", (32, 32, 3), 10, 754_310), ("marques-150-800", (32, 32, 3), 10, 3_212_210),
    ("marques-300-1000", (32, 32, 3), 10, 7_773_810), ("marques-500-1500", (32, 32, 3), 10, 19_164_510),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "outputs", "count"), COUNTS)
def test_parameter_counts_are_the_published_ones(name, shape, outputs, count):
    net = network_names.build(name, shape, outputs)
    assert net.size == count
    assert net.output_shape(net.input_shape) == (outputs,)
    assert not net.allocated


def test_the_images_have_the_published_sizes():
    """Szegedy et al. 2015, table 1: the inception modules work on 28 x 28, 14 x 14 and 7 x 7 pixels."""
    net = network_names.build("googlenet", (224, 224, 3), 1000)
    shapes = dict.fromkeys(row.shape for row in network_summary.rows(net, net.input_shape))
    sides = [shape[0] for shape in shapes if len(shape) == 3]
    assert list(dict.fromkeys(sides)) == [112, 56, 28, 14, 7, 1]


def test_every_network_is_counted_here():
    assert {name for name, *_ in COUNTS} == set(network_names.ZOO)


def test_the_summary_of_vgg16():
    net = network_names.build("vgg16", (224, 224, 3), 1000)
    rows = network_summary.rows(net, net.input_shape)
    assert sum(row.parameters for row in rows) == 138_357_544
    assert sum(row.flops for row in rows) == pytest.approx(2 * 15.47e9, rel=1e-3)  # 15.47 G multiply-adds
    first = rows[0]
    assert (first.shape, first.parameters, first.flops) == ((224, 224, 64), 1792, 2 * 27 * 224 * 224 * 64)
    text = network_summary.table(net, net.input_shape, 8)
    assert "138,357,544" in text and "224x224x64" in text


SMALL = {  # images small enough for a test
    "mnist-cnn": (28, 28, 1), "cifar-cnn": (32, 32, 3), "marques-50-500": (16, 16, 3), "lenet5": (14, 14, 1),
    "alexnet": (63, 63, 3), "vgg16": (32, 32, 3), "resnet18": (33, 33, 3), "resnet20": (9, 9, 3), "mlp2": (30,), "mlp3": (30,),
    "googlenet": (33, 33, 3),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in ("alexnet", "vgg16") else ()) for name in SMALL]
)
def test_five_steps_equal_pytorch(name):
    """Forward, all gradients and five steps, through state_dict; in float64, and dropout as in evaluation."""
    context = Context()
    torch = pytest.importorskip("torch")
    from gridgrad.experiments.benchmarks import torch_peer

    net = network_names.build(name, SMALL[name], 5, seed=4, dtype=np.float64)
    for layer in net.leaves():
        if isinstance(layer, Dropout):
            layer.p = 0.0
    model = torch_peer.network(net)
    optimizer, theirs = SGD(net, 0.01, 0.9), torch.optim.SGD(model.parameters(), 0.01, 0.9)
    loss, rng = SoftmaxCrossEntropy(), np.random.default_rng(0)
    for _ in range(2 if name == "googlenet" else 5):  # its means over few values magnify rounding by 50 with every step
        x, y = rng.standard_normal((3, *net.input_shape)), rng.integers(0, 5, 3)
        theirs.zero_grad()
        expected = torch.nn.functional.cross_entropy(model(torch_peer.layout(x)), torch.from_numpy(y))
        expected.backward()
        value = loss.forward(net.forward(to_device(x), context), to_device(y), context)
        net.backward(loss.backward(context), context)
        assert value == pytest.approx(expected.item(), rel=1e-9)
        gradients = dict(model.named_parameters())
        for layer, p in net.parameters:
            reference = gradients[f"{layer.name}.{p.name}"].grad.numpy()
            ours = to_host(p.grad).transpose(p.torch_axes)
            assert np.abs(ours - reference).max() <= 1e-9 * max(np.abs(reference).max(), 1e-3), f"{layer.name}.{p.name}"
        theirs.step()
        optimizer.step()
        net.step += 1
    state = model.state_dict()
    for entry, value in net.state_dict().items():
        assert np.allclose(value, state[entry].numpy(), rtol=1e-8, atol=1e-10), entry


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar-cnn"])
def test_steps_in_float32_equal_pytorch(name):
    """Where other algorithms compute than in float64."""
    context = Context()
    torch = pytest.importorskip("torch")
    from gridgrad.experiments.benchmarks import torch_peer

    net = network_names.build(name.replace("cifar-cnn", "cifar-cnn,dropout=0"), (32, 32, 3), 5, seed=4)
    model = torch_peer.network(net)
    optimizer, theirs = SGD(net, 0.01, 0.9), torch.optim.SGD(model.parameters(), 0.01, 0.9)
    loss, rng = SoftmaxCrossEntropy(), np.random.default_rng(0)
    for _ in range(5):
        x, y = rng.standard_normal((6, 32, 32, 3)).astype(np.float32), rng.integers(0, 5, 6)
        theirs.zero_grad()
        expected = torch.nn.functional.cross_entropy(model(torch_peer.layout(x)), torch.from_numpy(y))
        expected.backward()
        assert loss.forward(net.forward(to_device(x), context), to_device(y), context) == pytest.approx(
            expected.item(), rel=1e-4
        )
        net.backward(loss.backward(context), context)
        theirs.step()
        optimizer.step()
        net.step += 1
    for entry, value in net.state_dict().items():
        assert np.allclose(value, model.state_dict()[entry].numpy(), rtol=1e-3, atol=1e-4), entry


def test_networks_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="takes images"):
        network_names.build("vgg16", 784, 10)
    with pytest.raises(ValueError, match="on images of 8x8x3"):
        network_names.build("cifar-cnn", (8, 8, 3), 10)
    with pytest.raises(ValueError, match="unknown net 'vgg17'"):
        network_names.build("vgg17", (8, 8, 3), 10)


@pytest.mark.skipif(not xp.is_cpu, reason="compares what a CPU rounds")
def test_rounding_errors_of_training_are_no_larger_than_pytorchs():
    """How far the losses of ten float32 steps are from those of float64, in the mean over networks and seeds."""
    pytest.importorskip("torch")
    from gridgrad.experiments.benchmarks import torch_peer
    from gridgrad.experiments.benchmarks.serial import our_step
    from gridgrad.experiments.common.problems import minibatch

    def losses(name, seed, dtype, by_pytorch):
        net = network_names.build(name, SMALL[name], 10, seed=seed, dtype=dtype)
        for layer in net.leaves():
            if isinstance(layer, Dropout):
                layer.p = 0.0
        x, y = minibatch(net.input_shape, 10, 16, "cross-entropy")
        batch = x.astype(dtype), y, "cross-entropy"
        step = torch_peer.step(torch_peer.network(net), *batch) if by_pytorch else our_step(net, *batch)
        return np.array([step() for _ in range(10)])

    ratios = []
    for name, seed in product(("mnist-cnn", "lenet5", "resnet20"), range(3)):
        ours, theirs = (
            np.abs(losses(name, seed, np.float32, peer) - losses(name, seed, np.float64, peer)).max() for peer in (False, True)
        )
        ratios.append(np.log(ours / theirs))
    assert np.exp(np.mean(ratios)) < 1.5


def test_a_network_like_vgg16_has_the_widths_that_its_name_says():
    net = network_names.build("vgg-style:4,8", (8, 8, 3), 5)
    assert [layer.outputs for layer in net.leaves() if hasattr(layer, "outputs")] == [4, 4, 8, 8, 256, 5]
    net = network_names.build("vgg-style:4:6,7", (8, 8, 3), 5)
    assert [layer.outputs for layer in net.leaves() if hasattr(layer, "outputs")] == [4, 4, 6, 7, 5]
    for spec, shape in (
        ("vgg-style:4,x", (8, 8, 3)),
        ("vgg-style:0", (8, 8, 3)),
        ("vgg-style:4,8", (2, 2, 3)),
        ("vgg-style:4", 8),
    ):
        with pytest.raises(ValueError, match="vgg-style"):
            network_names.build(spec, shape, 5)
