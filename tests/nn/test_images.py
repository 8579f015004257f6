"""Layers of images: gradients against finite differences, float32 against PyTorch, poolings window by window."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import (
    AvgPool2d,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Flatten,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.kernel_table import PRESET, kernels, use
from gridgrad.nn.kernels.patches import Patches, scattering_cost
from gridgrad.nn.kernels.window import Window, matching_slices
from tests.nn.test_layers import difference

NO_PADDING = (0, 0), (0, 0)

LAYERS = [
    lambda: [Conv2d(3, 2, 3)],
    lambda: [Conv2d(3, 5, (2, 3), (2, 1), ((1, 0), (0, 2)))],
    lambda: [Conv2d(3, 2, 1, 3, bias=False)],
    lambda: [MaxPool2d(2)],
    lambda: [MaxPool2d(3, 2, 1)],
    lambda: [MaxPool2d((2, 3), (3, 1))],
    lambda: [AvgPool2d(2)],
    lambda: [AvgPool2d(3, 1, 1)],
    lambda: [BatchNorm(3)],
    lambda: [LocalResponseNorm(2, 0.5, 0.6, 1.5)],
    lambda: [LocalResponseNorm(5, 2.0)],
    lambda: [Flatten(), Linear(105, 2)],
    lambda: [Residual([Conv2d(3, 3, 3, padding=1), Tanh()])],
    lambda: [Residual([Conv2d(3, 4, 3), LeakyReLU(0.2), MaxPool2d(2, 1)], [Conv2d(3, 4, 4)])],
    lambda: [Concat([Conv2d(3, 2, 2)], [MaxPool2d(2, 1)], [Tanh(), AvgPool2d(2, 1)])],
]


@pytest.mark.parametrize("layers", LAYERS)
def test_gradients_equal_finite_differences(layers):
    context = Context()
    net = Sequential(layers(), seed=1, dtype=np.float64)
    rng = np.random.default_rng(0)
    x = to_device(rng.standard_normal((2, 5, 7, 3)))
    weights = to_device(rng.standard_normal(net.forward(x, context).shape))  # of the sum that is differentiated
    value = lambda: float((net.forward(x, context) * weights).sum())  # noqa: E731
    value()
    dx = to_host(net.backward(weights.copy(), context, input_gradient=True)).copy()
    grads = to_host(net.grads).copy()
    for index in [tuple(rng.integers(0, x.shape)) for _ in range(40)]:
        assert difference(value, x, index) == pytest.approx(dx[index], abs=1e-7)
    for i in range(net.params.size):
        assert difference(value, net.params, i) == pytest.approx(grads[i], abs=1e-7)
    assert grads.any() or not grads.size
    net.grads.fill(-1)
    value()
    net.backward(weights.copy(), context)  # without the input's gradient: the others are the same
    assert np.array_equal(grads, to_host(net.grads))


SHAPES = [  # (images, height, width, inputs, outputs, kernel, stride, padding)
    (2, 7, 13, 1, 5, 3, 1, 0), (3, 13, 7, 3, 4, 5, 1, 2), (2, 17, 17, 3, 7, 5, 3, 1), (2, 13, 13, 5, 3, 1, 2, 0),
    (1, 9, 8, 7, 6, (3, 5), (2, 1), (1, 2)), (2, 11, 11, 2, 3, 11, 4, 2), (4, 6, 6, 6, 2, 3, 1, 3), (0, 6, 6, 2, 2, 3, 1, 1),
    (2, 13, 17, 24, 32, 3, 1, 1), (1, 18, 10, 25, 31, 5, 1, 2), (3, 8, 8, 33, 24, 5, 1, 0), (70, 8, 8, 24, 24, 3, 1, 0),
    (2, 9, 10, 25, 26, 5, 1, 0), (3, 5, 9, 16, 20, 5, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_in_float32_equal_pytorch(shape):
    """Where other algorithms compute than in float64, for which see tests/random_networks/test_pytorch.py."""
    context, dtype = Context(), np.float32
    torch = pytest.importorskip("torch")
    n, height, width, inputs, outputs, kernel, stride, padding = shape
    layer = Conv2d(inputs, outputs, kernel, stride, padding)
    net = Sequential([layer], seed=2, dtype=dtype)
    theirs = torch.nn.Conv2d(inputs, outputs, kernel, stride, padding, dtype=torch.float32)
    theirs.load_state_dict({name.removeprefix("0."): torch.from_numpy(v) for name, v in net.state_dict().items()})
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, height, width, inputs)).astype(dtype)
    x_theirs = torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    y_theirs = theirs(x_theirs)
    dy = rng.standard_normal(y_theirs.shape).astype(dtype).transpose(0, 2, 3, 1).copy()
    y_theirs.backward(torch.from_numpy(dy.transpose(0, 3, 1, 2).copy()))
    y = to_host(net.forward(to_device(x), context)).copy()
    dx = to_host(net.backward(to_device(dy.copy()), context, input_gradient=True))
    assert layer.output_shape(x.shape[1:]) == y.shape[1:]
    gradient = np.concatenate([to_host(p.grad).transpose(p.torch_axes).ravel() for p in layer.parameters])
    expected = np.concatenate([p.grad.numpy().ravel() for p in theirs.parameters()])
    for ours, reference in (
        (y, y_theirs.detach().numpy().transpose(0, 2, 3, 1)),
        (dx, x_theirs.grad.numpy().transpose(0, 2, 3, 1)),
        (gradient, expected),
    ):
        assert np.abs(ours - reference).max(initial=0) <= 2e-5 * max(np.abs(reference).max(initial=0), 1)


def test_the_choice_of_an_algorithm():
    use(PRESET)
    f4, f8 = np.dtype(np.float32), np.dtype(np.float64)
    chosen = lambda kernel, *shape, stride=1, dtype=f4, images=8: algorithm(  # noqa: E731
        Window(kernel, (stride, stride), NO_PADDING), *shape, dtype, images
    )
    if not xp.is_cpu:  # a GPU always unrolls
        assert type(chosen((3, 3), 64, 64, 32, 32)) is Patches
        return
    assert chosen((3, 3), 64, 64, 32, 32).m == (4, 4)
    assert chosen((5, 5), 64, 64, 6, 6).m == (3, 2) and chosen((5, 5), 64, 64, 8, 9).m == (2, 3)
    assert isinstance(chosen((3, 3), 64, 64, 32, 32, dtype=f8), Patches)
    assert isinstance(chosen((3, 3), 64, 64, 32, 32, stride=2), Patches)
    assert type(chosen((3, 3), 3, 64, 32, 32)) is Patches
    assert isinstance(chosen((1, 3), 64, 64, 32, 32), Patches)
    assert isinstance(chosen((3, 3), 64, 64, 1, 32), Patches)  # half of each tile would be cut off
    assert type(chosen((3, 3), 512, 512, 7, 7, images=1)) is Patches  # to transform the kernel would cost more than it saves


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 3), (1, 1)])
def test_arrays_that_are_not_contiguous(kernel, stride):
    """Views as users and redistributions hand them on: transposed, or some channels, rows or columns of a larger array."""
    context = Context()
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((2, 12, 9, 14))
    for view in (whole.transpose(0, 2, 3, 1), whole[..., 1:13], whole[:, 1:-1, 2:-1, :12], whole[::2, ::2, ::-1, :12]):
        nets = [Sequential([Conv2d(12, 5, kernel, stride)], seed=1, dtype=np.float64) for _ in range(2)]
        ys = [net.forward(to_device(x), context) for net, x in zip(nets, (view.copy(order="C"), view), strict=True)]
        assert np.allclose(to_host(ys[0]), to_host(ys[1]), rtol=1e-12)
        dy = rng.standard_normal((*ys[0].shape[:3], 7))[..., 1:6]
        dys = [to_device(array) for array in (dy.copy(), dy)]
        dxs = [to_host(net.backward(d, context, input_gradient=True)).copy() for net, d in zip(nets, dys, strict=True)]
        assert np.allclose(*dxs, rtol=1e-12)
        assert np.allclose(to_host(nets[0].grads), to_host(nets[1].grads), rtol=1e-12)


@pytest.mark.parametrize("channels, height, cheaper", [(16, 5, True), (1, 5, False), (16, 20, False)])
def test_the_gradient_of_few_pixels_is_scattered_to_many(monkeypatch, channels, height, cheaper):
    context = Context()
    calls, scatter = [], Patches._scatter
    monkeypatch.setattr(Patches, "_scatter", lambda *arguments: (calls.append(1), scatter(*arguments)))
    net = Sequential([Conv2d(channels, 20, 5, bias=False)], seed=1, dtype=np.float64)
    x = to_device(np.random.default_rng(0).standard_normal((2, height, 9, channels)))
    y = net.forward(x, context).copy()
    dx = net.backward(y.copy(), context, input_gradient=True)
    assert float((dx * x).sum()) == pytest.approx(float((y * y).sum()))  # the adjoint
    scattered = cheaper and xp.is_cpu  # a GPU prefers one large product
    assert bool(calls) == scattered
    assert (
        Patches(Window((5, 5), (1, 1), NO_PADDING)).input_gradient_cost(2, height, 9, channels, 20)
        == scattering_cost(channels, 20)
    ) == scattered


POOLINGS = [  # (images, height, width, channels, kernel, stride, padding)
    (3, 8, 8, 3, 2, 2, 0), (2, 9, 7, 2, 2, 2, 0), (2, 9, 8, 3, 3, 2, 1), (2, 8, 9, 3, 3, 2, 0), (2, 7, 7, 1, 3, 1, 1),
    (2, 6, 7, 2, 2, 3, 1), (1, 11, 12, 2, 5, 2, 2), (2, 9, 9, 2, (3, 2), (1, 3), (1, 0)), (3, 5, 6, 4, (5, 6), 1, 0),
    (2, 7, 8, 2, 1, 2, 0), (2, 8, 7, 2, 5, 1, ((2, 0), (1, 2))), (2, 4, 4, 3, 4, 4, 2), (0, 6, 6, 2, 3, 2, 1),
]  # fmt: skip


def windows(shape, window):
    """For each output pixel the slices of rows and columns of the image in its window. shape: (n, H, W, C)."""
    p, q = window.output(*shape[1:3])
    part = lambda dim, i: window.input_part(dim, slice(i, i + 1), shape[dim])  # noqa: E731
    return [((slice(None), i, j), (slice(None), part(1, i), part(2, j))) for i in range(p) for j in range(q)]


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("shape", POOLINGS)
def test_poolings_reduce_their_windows(monkeypatch, shape, block_bytes):
    """Window by window: the values, and the gradient, which goes to one pixel also where several have the maximum."""
    use(replace(kernels(), block_bytes=block_bytes))
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, shape[:4]).astype(float)
    for layer in (MaxPool2d(*shape[4:]), AvgPool2d(*shape[4:])):
        scale = 1 / np.prod(layer.window.kernel)
        expected, dx_expected, context = np.zeros((len(x), *layer.window.output(*x.shape[1:3]), x.shape[3])), 0 * x, Context()
        dy = rng.standard_normal(expected.shape)
        for output, pixels in windows(x.shape, layer.window):
            seen = x[pixels]
            if layer.is_max_pooling:
                turned = seen.transpose(0, 3, 2, 1).reshape(len(x) * x.shape[3], seen.shape[1] * seen.shape[2])
                first = np.zeros_like(turned)  # the first column with the maximum, and there the first row
                first[np.arange(len(turned)), turned.argmax(1) if len(turned) else []] = 1
                share = first.reshape(len(x), x.shape[3], *seen.shape[2:0:-1]).transpose(0, 3, 2, 1)
                expected[output] = seen.max((1, 2))
            else:
                share = np.full_like(seen, scale)
                expected[output] = seen.sum((1, 2)) * scale
            dx_expected[pixels] += share * dy[output][:, None, None]
        y = to_host(layer.forward(to_device(x), context)).copy()
        dx = to_host(layer.input_gradient(to_device(dy), context))
        np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(dx, dx_expected, rtol=1e-12, atol=1e-13)
        assert np.array_equal(to_host(layer.forward(to_device(x), Context(training=False))), y)


def test_matching_slices_are_where_windows_and_pixels_meet():
    for offset in range(-4, 5):
        for stride in (1, 2, 3):
            for outputs in range(5):
                for length in range(6):
                    pairs = [(p, p * stride + offset) for p in range(outputs) if 0 <= p * stride + offset < length]
                    outer, inner = matching_slices(offset, stride, outputs, length)
                    assert list(zip(range(outputs)[outer], range(length)[inner], strict=True)) == pairs
                    assert len(range(outputs)[outer]) == len(range(length)[inner])


@pytest.mark.parametrize("shape", [(1, 5), (1, 1, 1, 5)])
def test_one_value_a_channel_is_normalised_to_the_bias(shape):
    """PyTorch refuses it in training. A rank, or the last minibatch of an epoch, may have no more."""
    net, context, rng = Sequential([BatchNorm(5, momentum=0.5)], dtype=np.float64), Context(), np.random.default_rng(0)
    net.load_state_dict({name: rng.uniform(1, 2, value.shape) for name, value in net.state_dict().items()})
    before, x = net.state_dict(), rng.standard_normal(shape)
    assert np.allclose(to_host(net.forward(to_device(x), context)), before["0.bias"], rtol=1e-12)
    dx = to_host(net.backward(to_device(rng.standard_normal(shape)), context, input_gradient=True))
    weight, _ = net.layers[0].parameters
    assert np.abs(dx).max() < 1e-10 and np.abs(to_host(weight.grad)).max() < 1e-10
    after = net.state_dict()
    assert np.allclose(after["0.running_mean"], (before["0.running_mean"] + x.ravel()) / 2, rtol=1e-12)
    assert np.allclose(after["0.running_var"], before["0.running_var"] / 2, rtol=1e-12)


def test_an_activation_before_a_max_pooling_runs_behind_it_with_the_same_result():
    rng = np.random.default_rng(0)
    x = to_device(rng.standard_normal((3, 9, 9, 2)).astype(np.float32))
    swapped = Sequential([Conv2d(2, 4, 3), Tanh(), MaxPool2d(3, 2, 1)], seed=1)
    assert [layer.name for layer in swapped.layers] == ["0", "2", "1"]
    apart = Sequential([Conv2d(2, 4, 3), Tanh(), Residual([]), MaxPool2d(3, 2, 1)], seed=1)  # a residual of nothing doubles
    assert np.array_equal(to_host(swapped.params), to_host(apart.params))
    assert np.array_equal(2 * to_host(swapped.forward(x)), to_host(apart.forward(x)))


def test_the_users_input_is_left_alone():
    context = Context()
    x = to_device(np.random.default_rng(0).standard_normal((2, 5, 5, 3)).astype(np.float32))
    kept = to_host(x).copy()
    for layers in ([ReLU(), Conv2d(3, 2, 3), ReLU()], [Residual([ReLU()]), ReLU()], [Concat([ReLU()], []), ReLU()]):
        net = Sequential(layers)
        y = net.forward(x, context)
        net.backward(y.copy(), context, input_gradient=True)
        assert np.array_equal(to_host(x), kept)


@pytest.mark.parametrize(
    ("layers", "shape", "words"),
    [
        ([Conv2d(3, 4, 3)], (5, 5, 2), "takes 3 channels but gets 2"),
        ([Conv2d(3, 4, 7)], (5, 5, 3), "does not fit into images of 5x5"),
        ([Conv2d(3, 4, 3)], (75,), "takes images"),
        ([MaxPool2d(6)], (5, 5, 3), "does not fit"),
        ([Linear(75, 2)], (5, 5, 3), "put a Flatten in front"),
        ([BatchNorm(4)], (5, 5, 3), "takes 4 channels"),
        ([Residual([Conv2d(3, 4, 1)])], (5, 5, 3), "the branch gives"),
        ([Concat([MaxPool2d(2)], [])], (5, 5, 3), "do not fit together"),
    ],
)
def test_layers_that_do_not_fit_are_named(layers, shape, words):
    with pytest.raises(ValueError, match=words):
        Sequential(layers).output_shape(shape)


@pytest.mark.parametrize("behind", [[], [MaxPool2d(2)]], ids=["alone", "with a pooling behind"])
def test_a_convolution_refuses_what_is_no_batch_of_images(behind):
    net = Sequential([Conv2d(3, 4, 3), *behind])
    with pytest.raises(ValueError, match=r"layer 0 .* takes \(n, height, width, channels\) but gets \(2, 75\)"):
        net.forward(xp.ones((2, 75), np.float32))


@pytest.mark.parametrize(
    "bad",
    [lambda: Conv2d(0, 1, 3), lambda: Conv2d(1, 1, 0), lambda: Conv2d(1, 1, 3, padding=-1), lambda: MaxPool2d(2, padding=2),
     lambda: BatchNorm(0), lambda: LocalResponseNorm(0), lambda: MaxPool2d(2, 0)],
)  # fmt: skip
def test_bad_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        bad()


def test_a_layer_is_part_of_one_network():
    layer = Conv2d(1, 1, 1)
    Sequential([Residual([layer])])
    with pytest.raises(ValueError, match="part of a network already"):
        Sequential([Concat([layer])])


@pytest.mark.parametrize("first", [True, False])
def test_a_pooled_convolution_is_the_two_layers(monkeypatch, first):
    """In blocks of images, the last one smaller, as with the arrays between them whole."""
    context = Context()
    found = {}
    for large in (1, 1 << 40):
        use(replace(kernels(), fused_bytes=large, block_bytes=1 << 14))
        monkeypatch.setattr("gridgrad.nn.kernels.patches.FEWEST_WINDOWS", 1)
        monkeypatch.setattr("gridgrad.nn.kernels.workspace.DEVICE_BLOCK_BYTES", 1 << 14)
        layers = [Conv2d(3, 4, 5, padding=2), MaxPool2d(3, 2, 1), Tanh(), Conv2d(4, 5, 3, bias=False), ReLU(), MaxPool2d(2)]
        net = Sequential(layers, dtype=np.float64, input_shape=(17, 16, 3))
        x = np.random.default_rng(0).standard_normal((7, 17, 16, 3))
        y = to_host(net.forward(to_device(x), context)).copy()
        dx = net.backward(to_device(np.random.default_rng(1).standard_normal(y.shape)), context, input_gradient=not first)
        assert context[net.passes.executed[0]].in_blocks == (large == 1 and xp.is_cpu)
        found[large] = [y, to_host(net.grads).copy(), *([] if first else [to_host(dx).copy()])]
        assert np.array_equal(to_host(net.forward(to_device(x))), y)
    for a, b in zip(*found.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_response_norm_needs_no_more_channels_than_its_window():
    assert LocalResponseNorm(5).neighbours(slice(3, 5), 9) == slice(1, 7)
    assert LocalResponseNorm(4).neighbours(slice(3, 5), 9) == slice(1, 6)
    assert LocalResponseNorm(5).neighbours(slice(1, 8), 9) == slice(0, 9)
