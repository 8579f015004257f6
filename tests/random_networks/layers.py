"""Random layers, as plain values that can be printed, compared and made smaller.

A network is a list of tuples: the name of a layer and its arguments, without the sizes of its input. A branching layer has one
such list for each branch. `build` makes the layers for inputs of any shape, and adds what is missing, so that every list is a
network, also one from which something has been taken away.
"""

import numpy as np

from gridgrad.nn import (
    GELU,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sigmoid,
    SparseLinear,
    Tanh,
    TiedAutoencoder,
)
from gridgrad.nn.sequence import leaves, output_shape
from gridgrad.nn.zoo.network_names import inception, residual_block

BRANCHING = "Residual", "Concat"
OF_THE_ZOO = {"Inception", "ResidualBlock"}  # branches of given layers, of images; see `wider.py`
ACTIVATIONS = {"ReLU": ReLU, "LeakyReLU": LeakyReLU, "Tanh": Tanh, "Sigmoid": Sigmoid, "GELU": GELU}
DEEPEST = 2  # branches in branches
OUTPUTS = 3  # of the layer that is put behind a network that has no weights


# ----- from values to layers


def build(values, shape):
    """The layers of a network for samples of `shape`, with one that has weights at least, and features at the end."""
    layers = chain(values, shape)
    if len(output_shape(layers, shape)) == 3:
        layers.append(Flatten())
    if not any(leaf.kind for leaf in leaves(layers)):
        layers.append(Linear(*output_shape(layers, shape), OUTPUTS))
    return layers


def chain(values, shape):
    """The layers that a list of values means, for samples of `shape`."""
    layers = []
    for name, *arguments in values:
        for layer in MAKE.get(name, elementwise)(shape, name, *arguments):
            layers.append(layer)
            shape = layer.output_shape(shape)
    return layers


def elementwise(shape, name, *arguments):
    return [ACTIVATIONS[name](*arguments)]


def flat(shape):
    """(a Flatten where samples of `shape` are images, the number of features then)."""
    return [Flatten()] if len(shape) == 3 else [], int(np.prod(shape))


def linear(shape, _, outputs, bias=True):
    before, features = flat(shape)
    return [*before, Linear(features, outputs, bias)]


def sparse_linear(shape, _, outputs, bias=True, seed=0):
    before, features = flat(shape)
    return [*before, SparseLinear(np.random.default_rng(seed).random((features, outputs)) < 0.4, bias)]


def autoencoder(shape, _, hidden):
    before, features = flat(shape)
    return [*before, TiedAutoencoder(features, hidden)]


def conv(shape, _, outputs, kernel=1, stride=1, padding=0, bias=True):
    if len(shape) == 1:
        return linear(shape, _, outputs, bias)
    return [Conv2d(shape[2], outputs, *fitting(shape, kernel, stride, padding), bias)]


def pool(shape, name, kernel, stride=1, padding=0):
    if len(shape) == 1:
        return []
    kernel, stride, padding = fitting(shape, kernel, stride, padding, most=0.5)
    return [{"MaxPool2d": MaxPool2d, "AvgPool2d": AvgPool2d}[name](kernel, stride, padding)]


def inception_module(shape, _, *widths):
    if len(shape) == 1:
        return []
    missing = (1,) * (6 - len(widths))
    return [inception(shape[2], *widths, *missing)]


def block_of_resnet(shape, _, width, stride=1):
    return [residual_block(shape[2], width, stride)] if len(shape) == 3 else []


def fitting(shape, kernel, stride, padding, most=np.inf):
    """(kernel, stride, padding) of a window, made so small that it fits. most: of the padding, as a part of the kernel."""
    kernel, stride, padding = pair(kernel), pair(stride), tuple(pair(pads) for pads in pair(padding))
    before = None
    while before != (kernel, padding):  # each may have to be made smaller because of the other
        before = kernel, padding
        kernel = tuple(min(k, length + sum(pads)) for k, length, pads in zip(kernel, shape[:2], padding, strict=True))
        padding = tuple(tuple(int(min(pad, most * k)) for pad in pads) for k, pads in zip(kernel, padding, strict=True))
    return kernel, stride, padding


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def residual(shape, _, branch, shortcut=()):
    """Where the branches differ in their shapes, a layer with weights is put behind the first."""
    branches = chain(branch, shape), chain(shortcut, shape)
    (a, b) = (output_shape(layers, shape) for layers in branches)
    if a[:-1] != b[:-1]:
        for layers, after in zip(branches, (a, b), strict=True):
            layers.extend(flat(after)[0])
        a, b = ((int(np.prod(after)),) for after in (a, b))
    if a != b:
        branches[0].append(Conv2d(a[-1], b[-1], 1) if len(a) == 3 else Linear(*a, *b))
    return [Residual(*branches)]


def concat(shape, _, *branches):
    """Where the images of the branches differ in their sizes, all are flattened."""
    branches = [chain(branch, shape) for branch in branches] or [[]]
    after = [output_shape(layers, shape) for layers in branches]
    if len({one[:-1] for one in after}) > 1:
        for layers, one in zip(branches, after, strict=True):
            layers.extend(flat(one)[0])
    return [Concat(*branches)]


MAKE = {
    "Linear": linear,
    "SparseLinear": sparse_linear,
    "TiedAutoencoder": autoencoder,
    "Conv2d": conv,
    "MaxPool2d": pool,
    "AvgPool2d": pool,
    "Residual": residual,
    "Concat": concat,
    "Inception": inception_module,
    "ResidualBlock": block_of_resnet,
    "BatchNorm": lambda shape, _, *arguments: [BatchNorm(shape[-1], *arguments)],
    "LocalResponseNorm": lambda shape, _, *arguments: [LocalResponseNorm(*arguments)],
    "Dropout": lambda shape, _, p: [Dropout(p)],
    "Flatten": lambda shape, _: [Flatten()],
}


# ----- random values


def random_layers(rng, images, most=6, depth=0):
    """A random list of values. rng: a random.Random. images: whether the input is images. most: layers, at most."""
    values = []
    for _ in range(rng.randint(0 if depth else 1, most)):
        name = rng.choice(IMAGES if images else FEATURES)
        if name in BRANCHING and depth == DEEPEST:
            continue
        values.append((name, *ARGUMENTS.get(name, nothing)(rng, images, depth)))
        images = images and name not in ("Flatten", "Linear", "SparseLinear", "TiedAutoencoder")
    return values


def nothing(rng, images, depth):
    return ()


def branches(rng, images, depth):
    return [random_layers(rng, images, 3, depth + 1) for _ in range(2)]


def several_branches(rng, images, depth):
    return [random_layers(rng, images, 3, depth + 1) for _ in range(rng.randint(1, 3))]


def neurons(rng, images, depth):
    return rng.choice((1, 2, 3, 5, 7, 11)), rng.random() < 0.8


def channels(rng, images, depth):
    kernel = rng.choice((1, 2, 3, 3, 5)), rng.choice((1, 2, 3, 3, 5))
    stride = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 3))
    return rng.choice((1, 2, 3, 5, 6)), kernel, stride, random_padding(rng, kernel), rng.random() < 0.8


def window(rng, images, depth):
    kernel = rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
    return kernel, (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))), random_padding(rng, kernel)


def random_padding(rng, kernel):
    """None, the same on both sides so that a stride of 1 keeps the size, or any."""
    way = rng.random()
    if way < 0.3:
        return 0
    if way < 0.7:
        return tuple((k // 2, (k - 1) // 2) for k in kernel)
    return tuple((rng.randint(0, k - 1), rng.randint(0, k - 1)) for k in kernel)


ARGUMENTS = {
    "Residual": branches,
    "Concat": several_branches,
    "Linear": neurons,
    "SparseLinear": lambda *draw: (*neurons(*draw), draw[0].randint(0, 99)),
    "TiedAutoencoder": lambda rng, *_: (rng.choice((1, 2, 5)),),
    "Conv2d": channels,
    "MaxPool2d": window,
    "AvgPool2d": window,
    "BatchNorm": lambda rng, *_: (rng.choice((1e-5, 1e-2)), rng.choice((0.0, 0.1, 0.5, 1.0))),
    "LocalResponseNorm": lambda rng, *_: (rng.randint(1, 6), rng.choice((0, 0.3)), rng.choice((0.75, 0.5)), rng.choice((1, 2))),
    "Dropout": lambda rng, *_: (rng.choice((0.0, 0.2, 0.5)),),
    "LeakyReLU": lambda rng, *_: (rng.choice((0.1, 0.5)),),
}  # fmt: skip
ANYWHERE = [*ACTIVATIONS, "BatchNorm", "LocalResponseNorm", "Dropout", "Flatten", *BRANCHING, *BRANCHING]
FEATURES = [*["Linear"] * 6, "SparseLinear", "TiedAutoencoder", *ANYWHERE]
IMAGES = [*["Conv2d"] * 6, "MaxPool2d", "MaxPool2d", "AvgPool2d", "Linear", *ANYWHERE]
