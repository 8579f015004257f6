"""Networks by name: the text behind `--net`."""

import numpy as np

from nn.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from nn.linear import Linear
from nn.sequential import Sequential

ACTIVATIONS = {"relu": ReLU, "leakyrelu": LeakyReLU, "tanh": Tanh, "sigmoid": Sigmoid}
HELP = "mlp:WIDTH,WIDTH,..,ACTIVATION[,dropout=P], such as mlp:512,512,relu; activations: " + ", ".join(ACTIVATIONS)


def build(spec, features, outputs, seed=0, dtype=np.float32):
    """The network of a spec such as "mlp:64,64,tanh" or "mlp:64,64,relu,dropout=0.5".

    features, outputs: what the data set brings and wants. "mlp:" and an activation alone is a linear model.
    Raises ValueError saying what is wrong and what is accepted.
    """
    kind, _, body = spec.partition(":")
    if kind != "mlp" or not body:
        raise ValueError(f"unknown net '{spec}': use {HELP}")
    widths, activation, p = [], None, None
    for word in body.split(","):
        if word in ACTIVATIONS and activation is None:
            activation = ACTIVATIONS[word]
        elif word.startswith("dropout=") and activation is not None and p is None:
            p = _number(float, word.removeprefix("dropout="), spec)
            Dropout(p)  # refuses what is no probability
        elif activation is None:
            widths.append(_number(int, word, spec))
        else:
            raise ValueError(f"net '{spec}': '{word}' is out of place: use {HELP}")
    if activation is None:
        raise ValueError(f"net '{spec}' names no activation: use {HELP}")
    if any(w < 1 for w in widths):
        raise ValueError(f"net '{spec}': every width must be at least 1")
    layers = []
    for inputs, width in zip([features, *widths], widths):
        layers += [Linear(inputs, width), activation()] + ([Dropout(p)] if p else [])
    layers.append(Linear(([features] + widths)[-1], outputs))
    return Sequential(layers, seed=seed, dtype=dtype)


def _number(kind, word, spec):
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"net '{spec}': '{word}' is neither a width nor an activation: use {HELP}") from None
