"""The serial network: layers, losses, optimizers. Knows NumPy and nothing of MPI."""

from nn.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from nn.adaptive import OPTIMIZERS, Adadelta, Adagrad, Adam
from nn.batch_norm import BatchNorm
from nn.branches import Concat, Flatten, Residual
from nn.context import Context
from nn.conv import Conv2d
from nn.divergence import Diverged
from nn.early_stopping import EarlyStopping
from nn.layer import Layer, Parameter
from nn.linear import Linear
from nn.losses import LOSSES, MSE, SoftmaxCrossEntropy
from nn.optimizers import SGD
from nn.pool import AvgPool2d, MaxPool2d
from nn.response_norm import LocalResponseNorm
from nn.sequential import Sequential
from nn.sparse_linear import SparseLinear
from nn.tied_autoencoder import TiedAutoencoder

__all__ = [
    "Context",
    "Conv2d",
    "BatchNorm",
    "LocalResponseNorm",
    "AvgPool2d",
    "MaxPool2d",
    "Concat",
    "Flatten",
    "Residual",
    "LOSSES",
    "MSE",
    "OPTIMIZERS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Diverged",
    "Dropout",
    "EarlyStopping",
    "Layer",
    "LeakyReLU",
    "Linear",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "SoftmaxCrossEntropy",
    "SparseLinear",
    "Tanh",
    "TiedAutoencoder",
]
