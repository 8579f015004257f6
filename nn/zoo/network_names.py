"""Networks by name, as in the option `--net`: published ones, perceptrons such as mlp:64,64,relu, and pruned ones.

| name             | source                                                    | parameters  | at        |
|------------------|-----------------------------------------------------------|-------------|-----------|
| mlp2, mlp3       | Grabaskas 2018, Appendix B (MNIST padded to 32x32)        | 2,119,690 / 4,207,626 | 1024 |
| mnist-cnn        | Grabaskas 2018, Appendix B (28x28, padded to 32x32)       | 169,506     | 28x28x1   |
| cifar-cnn        | Grabaskas 2018, Appendix B                                | 114,838     | 32x32x3   |
| marques-A-B      | Marques 2016, section 4.3: A and B kernels                | see below   | 32x32x3   |
| lenet5           | LeCun et al. 1998, all maps of a layer connected          | 61,706      | 28x28x1   |
| alexnet          | Krizhevsky 2014 (one tower, no groups)                    | 61,100,840  | 224x224x3 |
| vgg16            | Simonyan and Zisserman 2015, column D                     | 138,357,544 | 224x224x3 |
| vgg-style:A,B,.. | the same structure, smaller: see `vgg_style`              |             |           |
| resnet18         | He et al. 2016, projections where the shape changes       | 11,689,512  | 224x224x3 |
| resnet20         | He et al. 2016, section 4.2, with projections             | 272,474     | 32x32x3   |
| googlenet        | Szegedy et al. 2015, with BatchNorm, as in torchvision    | 6,624,904   | 224x224x3 |

Marques names the four networks 50:500, 150:800, 300:1000 and 500:1500. The text lists convolution, normalisation and
pooling, twice, and one fully connected layer. It does not say which normalisation; here it is across 5 channels.

As in torchvision, googlenet has kernels of 3x3 where the paper has 5x5; it has no auxiliary classifiers.

`gridgrad help net` says how a network is named; "FILE.py:FUNCTION" is one of the user's own.
"""

import hashlib
import re
import sys
import traceback
from functools import cache, partial
from math import prod
from pathlib import Path
from types import ModuleType

import numpy as np

from gridgrad.nn.arguments import did_you_mean
from gridgrad.nn.layer import Layer
from gridgrad.nn.layers.activations import GELU, Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from gridgrad.nn.layers.branches import Concat, Flatten, Residual
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.layers.linear import Linear
from gridgrad.nn.layers.normalisation import BatchNorm, LocalResponseNorm
from gridgrad.nn.layers.pool import AvgPool2d, MaxPool2d
from gridgrad.nn.sequence import output_shape
from gridgrad.nn.sequential import Sequential
from gridgrad.nn.zoo import pruning

# ----- published networks: functions from the shape of a sample, (height, width, channels), and the number of outputs to layers


def mnist_cnn(shape, outputs):
    # The thesis pads the images to 32x32; padding of the first convolution gives the same result.
    padding = tuple((max(0, 32 - length) // 2,) * 2 for length in shape[:2])
    layers = [Conv2d(shape[2], 32, 5, padding=padding), Tanh(), MaxPool2d(3, 3, 1), Conv2d(32, 64, 5), Tanh(), MaxPool2d(2)]
    return dense(layers, shape, [200], Tanh, outputs)


def cifar_cnn(shape, outputs):
    layers = [Conv2d(shape[2], 64, 5), ReLU(), MaxPool2d(3), Conv2d(64, 64, 5), ReLU(), MaxPool2d(3)]
    return dense(layers, shape, [100], ReLU, outputs, before=lambda: [Dropout(0.5)])


def marques(first, second, shape, outputs):
    """The layers of Marques' network with so many kernels in its two convolutions."""
    start = [Conv2d(shape[2], first, 5), LocalResponseNorm(5), MaxPool2d(2)]
    return dense([*start, Conv2d(first, second, 5), LocalResponseNorm(5), MaxPool2d(2)], shape, [], None, outputs)


def lenet5(shape, outputs):
    layers = [Conv2d(shape[2], 6, 5, padding=2), Tanh(), AvgPool2d(2), Conv2d(6, 16, 5), Tanh(), AvgPool2d(2)]
    return dense(layers, shape, [120, 84], Tanh, outputs)


def alexnet(shape, outputs):
    layers = [
        Conv2d(shape[2], 64, 11, 4, 2), ReLU(), MaxPool2d(3, 2),
        Conv2d(64, 192, 5, padding=2), ReLU(), MaxPool2d(3, 2),
        Conv2d(192, 384, 3, padding=1), ReLU(), Conv2d(384, 256, 3, padding=1), ReLU(),
        Conv2d(256, 256, 3, padding=1), ReLU(), MaxPool2d(3, 2),
    ]  # fmt: skip
    return dense(layers, shape, [4096, 4096], ReLU, outputs, before=lambda: [Dropout(0.5)])


def vgg16(shape, outputs):
    layers = vgg_stages(shape, ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)))
    return dense(layers, shape, [4096, 4096], ReLU, outputs, after=lambda: [Dropout(0.5)])


def vgg_style(shape, outputs, widths, hidden=(256,)):
    """For each width two convolutions of 3x3 and a pooling; then hidden layers, and the outputs."""
    return dense(vgg_stages(shape, [(width, 2) for width in widths]), shape, hidden, ReLU, outputs)


def vgg_stages(shape, stages):
    """For each (width, count) of `stages` so many convolutions of 3x3 with ReLU, and a pooling that halves the image."""
    layers, channels = [], shape[2]
    for width, count in stages:
        for _ in range(count):
            layers += [Conv2d(channels, width, 3, padding=1), ReLU()]
            channels = width
        layers.append(MaxPool2d(2))
    return layers


def resnet18(shape, outputs):
    start = [Conv2d(shape[2], 64, 7, 2, 3, bias=False), BatchNorm(64), ReLU(), MaxPool2d(3, 2, 1)]
    return residual_stages(start, shape, outputs, 64, (64, 128, 256, 512), blocks=2)


def resnet20(shape, outputs):
    start = [Conv2d(shape[2], 16, 3, padding=1, bias=False), BatchNorm(16), ReLU()]
    return residual_stages(start, shape, outputs, 16, (16, 32, 64), blocks=3)


def googlenet(shape, outputs):
    layers = [
        *normalised(shape[2], 64, 7, 2, 3), MaxPool2d(3, 2, 1),
        *normalised(64, 64, 1), *normalised(64, 192, 3, 1, 1), MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 192
    for widths in INCEPTIONS:
        if not widths:
            layers.append(MaxPool2d(3, 2, 1))
            continue
        layers.append(inception(channels, *widths))
        channels = layers[-1].output_shape((1, 1, channels))[2]
    mean = AvgPool2d(output_shape(layers, shape)[:2])
    return [*layers, mean, Flatten(), Dropout(0.2), Linear(channels, outputs)]


def inception(channels, one, before_three, three, before_five, five, pooled):
    """The module of Szegedy et al. 2015, Figure 2b, for images of so many channels; the others: of its convolutions."""
    return Concat(
        normalised(channels, one, 1),
        [*normalised(channels, before_three, 1), *normalised(before_three, three, 3, 1, 1)],
        [*normalised(channels, before_five, 1), *normalised(before_five, five, 3, 1, 1)],
        [MaxPool2d(3, 1, 1), *normalised(channels, pooled, 1)],
    )


# Szegedy et al. 2015, Table 1: the kernels of the convolutions of each inception; empty for a pooling between them.
INCEPTIONS = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (),
    (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), (),
    (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip


def normalised(inputs, outputs, kernel, stride=1, padding=0):
    """A convolution, whose arguments these are, with BatchNorm and ReLU."""
    return [Conv2d(inputs, outputs, kernel, stride, padding, bias=False), BatchNorm(outputs, 1e-3), ReLU()]


def residual_stages(layers, shape, outputs, channels, widths, blocks):
    """`layers`, which give so many channels, stages of residual blocks, the mean over the image, and a Linear layer.
    widths: the channels of each stage. blocks: how many a stage has. Every stage but the first halves height and width."""
    for width in widths:
        for block in range(blocks):
            stride = 2 if block == 0 and width != widths[0] else 1
            layers += [residual_block(channels, width, stride), ReLU()]
            channels = width
    return [*layers, AvgPool2d(output_shape(layers, shape)[:2]), Flatten(), Linear(channels, outputs)]


def residual_block(channels, width, stride):
    """Two convolutions of 3x3 beside the identity, or a projection where the shape changes (He et al. 2016, Figure 2)."""
    branch = [
        Conv2d(channels, width, 3, stride, 1, bias=False), BatchNorm(width), ReLU(),
        Conv2d(width, width, 3, padding=1, bias=False), BatchNorm(width),
    ]  # fmt: skip
    projection = [Conv2d(channels, width, 1, stride, bias=False), BatchNorm(width)]
    return Residual(branch, projection if (stride, channels) != (1, width) else [])


def dense(layers, shape, widths, activation, outputs, before=list, after=list):
    """`layers`, a Flatten, and a `perceptron`, which takes the other arguments. shape: that of a sample for `layers`."""
    features = prod(output_shape(layers, shape))
    return [*layers, Flatten(), *perceptron(features, widths, activation, outputs, before, after)]


def perceptron(features, widths, activation, outputs, before=list, after=list):
    """Hidden layers of `widths`, each a Linear layer and an `activation`, and a Linear layer to the outputs.
    before, after: functions that make the layers to put before and after each hidden layer."""
    layers = []
    for width in widths:
        layers += [*before(), Linear(features, width), activation(), *after()]
        features = width
    return [*layers, Linear(features, outputs)]


# name: function from shape and outputs to the layers
ZOO = {
    "mlp2": lambda shape, outputs: perceptron(prod(shape), [2048], Tanh, outputs),
    "mlp3": lambda shape, outputs: perceptron(prod(shape), [2048, 1024], Tanh, outputs),
    "mnist-cnn": mnist_cnn, "cifar-cnn": cifar_cnn,
    "marques-50-500": partial(marques, 50, 500), "marques-150-800": partial(marques, 150, 800),
    "marques-300-1000": partial(marques, 300, 1000), "marques-500-1500": partial(marques, 500, 1500),
    "lenet5": lenet5, "alexnet": alexnet, "vgg16": vgg16, "resnet18": resnet18, "resnet20": resnet20, "googlenet": googlenet,
}  # fmt: skip
FLAT = "mlp2", "mlp3"  # those that take features instead of images


# ----- the network that a text describes

ACTIVATIONS = {"relu": ReLU, "leakyrelu": LeakyReLU, "tanh": Tanh, "sigmoid": Sigmoid, "gelu": GELU}
MLP = "mlp:WIDTH,WIDTH,..,ACTIVATION[,dropout=P]"
SEE = "see gridgrad help net"
HELP = f"network: a name such as mnist-cnn, mlp:512,512,relu or FILE.py:FUNCTION; {SEE}"
PRUNED, VGG = "pruned:", "vgg-style:"
OWN = re.compile(r"(?P<path>.+\.py):(?P<function>\w+)(?:@(?P<digest>[0-9a-f]{12}))?")
MOST_WIDTH, MOST_LAYERS, MOST_PIXELS = 1 << 22, 1000, 1 << 28  # of a layer; of a network; of an image, with its channels


def build(spec, shape, outputs, seed=0, dtype=np.float32):
    """The Sequential that a text like that of `--net` describes; its `input_shape` is the one in which it takes samples.
    shape: of the data set's samples, (height, width, channels) or a number of features; flat for networks of Linear layers.
    ValueError says what is wrong and what is accepted."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if own := OWN.fullmatch(spec):
        return _own(own, shape, outputs, seed, dtype)
    spec = identified(spec)
    if spec.startswith(PRUNED):
        return _pruned(spec, shape, outputs, seed, dtype)
    name, _, rest = spec.partition(",")
    takes_images = name in ZOO and name not in FLAT or spec.startswith(VGG)
    most = MOST_PIXELS if takes_images else MOST_WIDTH
    if prod(shape) > most or outputs > MOST_WIDTH:
        raise ValueError(f"samples of {prod(shape)} numbers and {outputs} outputs are too large for the net '{name}': at most "
                         f"{most} and {MOST_WIDTH}")  # fmt: skip
    if takes_images and len(shape) != 3:
        size = "x".join(map(str, shape))
        raise ValueError(f"net '{spec}' takes images, but the samples are of shape {size}: use another data set or net")
    shape = shape if takes_images else (prod(shape),)
    if spec.startswith(VGG):
        widths, *hidden = (_widths(words.split(","), spec) for words in spec.removeprefix(VGG).split(":", 1))
        layers = _on_images(spec, shape, lambda: vgg_style(shape, outputs, widths, *hidden))
    else:
        layers = zoo_layers(spec, name, rest, shape, outputs) if name in ZOO else mlp_layers(spec, *shape, outputs)
    return Sequential(layers, seed, dtype, shape)


def zoo_layers(spec, name, rest, shape, outputs):
    """The layers of a network of the zoo. rest: of the spec behind the name and a comma, such as dropout=0.2."""
    layers = _on_images(spec, shape, lambda: ZOO[name](shape, outputs))
    if "," in spec:
        dropouts = [layer for layer in layers if isinstance(layer, Dropout)]
        if not rest.startswith("dropout=") or not dropouts:
            raise ValueError(f"net '{spec}': '{rest}' is out of place: only nets that have dropout take dropout=P")
        p = _dropout(rest, spec)
        for layer in dropouts:
            layer.p = p
    return layers


def _on_images(spec, shape, make):
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"net '{spec}' on images of {'x'.join(map(str, shape))}: {error}") from None


def mlp_layers(spec, features, outputs):
    """The layers of a spec such as "mlp:64,64,tanh"."""
    words = spec.removeprefix("mlp:").split(",")
    place = next((place for place, word in enumerate(words) if word in ACTIVATIONS), len(words))
    widths, behind = _widths(words[:place], spec), words[place + 1 :]
    if place == len(words):
        raise ValueError(f"net '{spec}' names no activation: use {MLP} with {', '.join(ACTIVATIONS)}")
    p = _dropout(behind.pop(0), spec) if behind and behind[0].startswith("dropout=") else 0
    if behind:
        raise ValueError(f"net '{spec}': '{behind[0]}' is out of place: {SEE}")
    return perceptron(features, widths, ACTIVATIONS[words[place]], outputs, after=lambda: [Dropout(p)] if p else [])


def _widths(words, spec):
    widths = [_number(int, word, spec) for word in words]
    if len(widths) > MOST_LAYERS:
        raise ValueError(f"net '{spec.partition(':')[0]}:..': {len(widths)} layers are too many: at most {MOST_LAYERS}")
    if any(not 1 <= w <= MOST_WIDTH for w in widths):
        raise ValueError(f"net '{spec}': every width must be at least 1 and at most {MOST_WIDTH}")
    return widths


# ----- the network of a user's own file


def identified(spec):
    """A spec as it is recorded: behind FILE.py:FUNCTION stands a digest of the file, so that it names one network for ever.
    ValueError for an unknown name, OSError if there is no such file."""
    if own := OWN.fullmatch(spec):
        return spec if own["digest"] else f"{spec}@{_digest(own['path'])}"
    if spec.partition(",")[0] not in ZOO and not spec.startswith((PRUNED, VGG, "mlp:")):
        meant = f" (did you mean {spec}:FUNCTION?)" if spec.endswith(".py") else did_you_mean(spec, (*ZOO, MLP))
        raise ValueError(f"unknown net '{spec}'{meant}: {SEE}")
    return spec


def _digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


@cache
def _module(path, digest):
    """The module that a file is, run once in a process. digest: of its content."""
    module = ModuleType(f"gridgrad_net_{digest}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for its classes
    if (folder := str(Path(path).resolve().parent)) not in sys.path:
        sys.path.append(folder)  # for what it imports from beside it
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module


def _own(own, shape, outputs, seed, dtype):
    """The Sequential of the layers that the function of a match of OWN returns; ValueError says where it fails."""
    path, function = own["path"], own["function"]
    try:
        digest = _digest(path)
        if own["digest"] not in (None, digest):
            raise ValueError(f"{path} has changed: its digest is {digest}, not {own['digest']}")
        names = vars(_module(path, digest))
        if not callable(names.get(function)):
            raise ValueError(f"{path} has no function {function}{did_you_mean(function, names)}")
        layers = names[function](shape, outputs)
        if not isinstance(layers, list | tuple) or not all(isinstance(layer, Layer) for layer in layers):
            raise ValueError(f"{function} must return a list of layers, not {type(layers).__name__}")
        net = Sequential(layers, seed, dtype, shape)
        if (given := net.output_shape(shape)) != (outputs,):
            raise ValueError(f"its outputs are of shape {given}, but {(outputs,)} are wanted")
        return net
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        lines += [error.lineno] if isinstance(error, SyntaxError) else []
        where = f"{path}, line {lines[-1]}: {type(error).__name__}: " if lines else ""
        raise ValueError(f"net '{path}:{function}': {where}{error}") from None


def _pruned(spec, shape, outputs, seed, dtype):
    """The network of "pruned:FILE"."""

    def unpruned(inner, features, outputs):
        """The network that was pruned; ValueError if that is none but a pruned one itself."""
        if inner.startswith(PRUNED):
            raise ValueError("it names another file")
        return build(inner, features, outputs, seed, dtype)

    net = pruning.read(spec.removeprefix(PRUNED), unpruned)
    features, given = prod(shape), net.output_shape(net.input_shape)
    if net.input_shape != (features,) or given != (outputs,):
        raise ValueError(f"net '{spec}' has {net.input_shape[0]} features and {given[0]} outputs, but {features} and {outputs} "
                         "are wanted: give the data set, or the shape and the outputs, for which it was trained")  # fmt: skip
    return net


def _dropout(word, spec):
    """The probability in a word such as "dropout=0.2"."""
    p = _number(float, word.removeprefix("dropout="), spec)
    try:
        return Dropout(p).p  # which checks that it is a probability
    except ValueError as error:
        raise ValueError(f"net '{spec}': {error}") from None


def _number(kind, word, spec):
    """The word as a number of type `kind`, int or float; ValueError naming the spec if it is none."""
    try:
        if not word.isascii() or "_" in word:  # Python reads 1_0 and the digits of other scripts
            raise ValueError
        return kind(word)
    except ValueError:
        kinds = "no whole number" if spec.startswith(VGG) else "neither a number nor an activation"
        raise ValueError(f"net '{spec}': '{word}' is {kinds}{did_you_mean(word, ACTIVATIONS)}: {SEE}") from None
