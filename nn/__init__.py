"""The serial network: layers, losses, optimizers. Knows NumPy and nothing of MPI.

`LOSSES` has the losses by the names that the command line knows, {"mse": MSE, ..}, and `OPTIMIZERS` the optimizers.

Arrays have the samples in their first dimension and the features or channels in their last one: (n, features), or
(n, height, width, channels).
"""

from gridgrad.nn.context import Context
from gridgrad.nn.divergence import Diverged
from gridgrad.nn.layer import Layer, Parameter
from gridgrad.nn.layers.activations import Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from gridgrad.nn.layers.branches import Concat, Flatten, Residual
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.layers.linear import Linear, SparseLinear, TiedAutoencoder
from gridgrad.nn.layers.normalisation import BatchNorm, LocalResponseNorm
from gridgrad.nn.layers.pool import AvgPool2d, MaxPool2d
from gridgrad.nn.losses import LOSSES, MSE, EarlyStopping, SoftmaxCrossEntropy
from gridgrad.nn.optimizers import OPTIMIZERS, SGD, Adadelta, Adagrad, Adam
from gridgrad.nn.sequential import Sequential

__all__ = [
    "Adadelta", "Adagrad", "Adam", "AvgPool2d", "BatchNorm", "Concat", "Context", "Conv2d", "Diverged", "Dropout",
    "EarlyStopping", "Flatten", "Layer", "LeakyReLU", "Linear", "LocalResponseNorm", "LOSSES", "MaxPool2d", "MSE",
    "OPTIMIZERS", "Parameter", "ReLU", "Residual", "Sequential", "SGD", "Sigmoid", "SoftmaxCrossEntropy", "SparseLinear",
    "Tanh", "TiedAutoencoder",
]  # fmt: skip
