"""The networks of a stacked autoencoder, written serially. They know nothing of MPI and take no memory until they are used.

widths: the numbers of units, from those of the input to those of the last hidden layer, such as [784, 500, 250].
"""

from itertools import pairwise

from gridgrad.nn import Dropout, Linear, Sequential, Sigmoid, TiedAutoencoder

WEIGHTS = ("weight", "bias")  # the entries of the state of a TiedAutoencoder that are those of its encoder


def autoencoder(widths, position, seed, dtype, corruption=0.0):
    """The autoencoder that is trained for the hidden layer at this position, from 0. Each has initial weights of its own.

    corruption: the probability with which an input is set to 0 in training.
    """
    inputs, hidden = widths[position : position + 2]
    layers = [Dropout(corruption), TiedAutoencoder(inputs, hidden), Sigmoid()]
    return Sequential(layers, (seed + position) % 2**64, dtype, (inputs,))


def encoder(widths, position, seed, dtype):
    """The encoders in front of that autoencoder."""
    return Sequential(_encoders(widths[: position + 1]), seed, dtype, (widths[0],))


def classifier(widths, classes, seed, dtype):
    """The network that is fine-tuned: all encoders, and a layer of as many outputs as there are classes."""
    return Sequential([*_encoders(widths), Linear(widths[-1], classes)], seed, dtype, (widths[0],))


def encoder_state(state, position):
    """The entries of the state of an autoencoder that are those of its encoder, by their names in the other networks."""
    return {f"{2 * position}.{name}": state[f"1.{name}"] for name in WEIGHTS}


def _encoders(widths):
    return [layer for inputs, hidden in pairwise(widths) for layer in (Linear(inputs, hidden), Sigmoid())]
