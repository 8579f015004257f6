"""The serial network: layers, losses, optimizers. Knows NumPy and nothing of MPI."""

from gridgrad.nn.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from gridgrad.nn.adaptive import OPTIMIZERS, Adadelta, Adagrad, Adam
from gridgrad.nn.batch_norm import BatchNorm
from gridgrad.nn.branches import Concat, Flatten, Residual
from gridgrad.nn.context import Context
from gridgrad.nn.conv import Conv2d
from gridgrad.nn.divergence import Diverged
from gridgrad.nn.early_stopping import EarlyStopping
from gridgrad.nn.layer import Layer, Parameter
from gridgrad.nn.linear import Linear
from gridgrad.nn.losses import LOSSES, MSE, SoftmaxCrossEntropy
from gridgrad.nn.optimizers import SGD
from gridgrad.nn.pool import AvgPool2d, MaxPool2d
from gridgrad.nn.response_norm import LocalResponseNorm
from gridgrad.nn.sequential import Sequential
from gridgrad.nn.sparse_linear import SparseLinear
from gridgrad.nn.tied_autoencoder import TiedAutoencoder

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
