"""The serial network: layers, losses, optimizers. Knows NumPy and nothing of MPI."""

from nn.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from nn.layer import Layer, Parameter
from nn.linear import Linear
from nn.losses import LOSSES, MSE, SoftmaxCrossEntropy
from nn.optimizers import SGD
from nn.sequential import Sequential

__all__ = [
    "LOSSES",
    "MSE",
    "SGD",
    "Dropout",
    "Layer",
    "LeakyReLU",
    "Linear",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "SoftmaxCrossEntropy",
    "Tanh",
]
