"""Networks by name, as in the option `--net`."""

from functools import partial
from math import prod

import numpy as np

from gridgrad.nn.layers.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from gridgrad.nn.sequential import Sequential
from gridgrad.nn.zoo import pruning
from gridgrad.nn.zoo.networks import ZOO, perceptron

ACTIVATIONS = {"relu": ReLU, "leakyrelu": LeakyReLU, "tanh": Tanh, "sigmoid": Sigmoid}
MLP = f"mlp:WIDTH,WIDTH,..,ACTIVATION[,dropout=P], such as mlp:512,512,relu; activations: {', '.join(ACTIVATIONS)}"
PRUNED = "pruned:"
MOST_WIDTH, MOST_LAYERS, MOST_PIXELS = 1 << 22, 1000, 1 << 28  # of a layer; of a network; of an image, with its channels
HELP = (
    f"a network by its name, such as mnist-cnn, or {MLP}; names: {', '.join(ZOO)} (vgg16,dropout=0.2 for another dropout than "
    "published); or pruned:FILE, which `gridgrad study pruned` has written"
)


def build(spec, shape, outputs, seed=0, dtype=np.float32):
    """The Sequential that a text like that of `--net` (HELP) describes; its `input_shape` is the one in which it takes samples.
    shape: of the data set's samples, (height, width, channels) or a number of features, which is flat for networks of Linear
    layers. ValueError says what is wrong and what is accepted."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if spec.startswith(PRUNED):
        return _pruned(spec, shape, outputs, seed, dtype)
    name, _, rest = spec.partition(",")
    most = MOST_PIXELS if name in ZOO and ZOO[name][1] else MOST_WIDTH
    if prod(shape) > most or outputs > MOST_WIDTH:
        raise ValueError(f"samples of {prod(shape)} numbers and {outputs} outputs are too large for the net '{name}': at most "
                         f"{most} and {MOST_WIDTH}")  # fmt: skip
    if name in ZOO:
        layers, takes_images = ZOO[name]
        shape = shape if takes_images else (prod(shape),)
        layers = zoo_layers(spec, layers, takes_images, rest, shape, outputs)
    else:
        shape = (prod(shape),)
        layers = mlp_layers(spec, *shape, outputs)
    return Sequential(layers, seed, dtype, shape)


def zoo_layers(spec, layers, takes_images, rest, shape, outputs):
    """The layers of a network of the zoo, which the function `layers` makes. rest: empty, or sets the dropout probability."""
    size = "x".join(map(str, shape))
    if takes_images and len(shape) != 3:
        raise ValueError(f"net '{spec}' takes images, but the samples are of shape {size}: use another data set or net")
    try:
        layers = layers(shape, outputs)
    except ValueError as error:
        raise ValueError(f"net '{spec}' on images of {size}: {error}") from None
    if "," in spec:
        dropouts = [layer for layer in layers if isinstance(layer, Dropout)]
        if not rest.startswith("dropout=") or not dropouts:
            raise ValueError(f"net '{spec}': '{rest}' is out of place: only nets that have dropout take dropout=P")
        p = _dropout(rest, spec)
        for layer in dropouts:
            layer.p = p
    return layers


def mlp_layers(spec, features, outputs):
    """The layers of a spec such as "mlp:64,64,tanh"."""
    kind, _, body = spec.partition(":")
    if kind != "mlp" or not body:
        raise ValueError(f"unknown net '{spec}': use {HELP}")
    widths, activation, p = [], None, None
    for word in body.split(","):
        if word in ACTIVATIONS and activation is None:
            activation = ACTIVATIONS[word]
        elif word.startswith("dropout=") and activation is not None and p is None:
            p = _dropout(word, spec)
        elif activation is None:
            widths.append(_number(int, word, spec))
        else:
            raise ValueError(f"net '{spec}': '{word}' is out of place: use {MLP}")
    if activation is None:
        raise ValueError(f"net '{spec}' names no activation: use {MLP}")
    if len(widths) > MOST_LAYERS:
        raise ValueError(f"net 'mlp:..': {len(widths)} layers are too many: at most {MOST_LAYERS}")
    if any(not 1 <= w <= MOST_WIDTH for w in widths):
        raise ValueError(f"net '{spec}': every width must be at least 1 and at most {MOST_WIDTH}")
    return perceptron(features, widths, activation, outputs, after=lambda: [Dropout(p)] if p else [])


def _pruned(spec, shape, outputs, seed, dtype):
    """The network of "pruned:FILE"."""
    net = pruning.read(spec.removeprefix(PRUNED), partial(_unpruned, seed=seed, dtype=dtype))
    features, given = prod(shape), net.output_shape(net.input_shape)
    if net.input_shape != (features,) or given != (outputs,):
        raise ValueError(f"net '{spec}' has {net.input_shape[0]} features and {given[0]} outputs, but {features} and {outputs} "
                         "are wanted: give the data set, or the shape and the outputs, for which it was trained")  # fmt: skip
    return net


def _unpruned(spec, features, outputs, seed, dtype):
    """The network that was pruned; ValueError if that is none but a pruned one itself."""
    if spec.startswith(PRUNED):
        raise ValueError("it names another file")
    return build(spec, features, outputs, seed, dtype)


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
        raise ValueError(f"net '{spec}': '{word}' is neither a number nor an activation: use {MLP}") from None
