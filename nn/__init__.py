"""The serial network: layers, losses, optimizers. Knows NumPy and nothing of MPI.

`LOSSES` has the losses by the names that the command line knows, {"mse": MSE, ..}, and `OPTIMIZERS` the optimizers.

Arrays have the samples in their first dimension and the features or channels in their last one: (n, features), or
(n, height, width, channels).
"""

from gridgrad.nn.context import Context
from gridgrad.nn.divergence import Diverged
from gridgrad.nn.layer import Layer, Parameter
from gridgrad.nn.layers.activations import GELU, Dropout, LeakyReLU, ReLU, Sigmoid, Tanh
from gridgrad.nn.layers.branches import Concat, Flatten, Residual
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.layers.linear import Linear, SparseLinear, TiedAutoencoder
from gridgrad.nn.layers.normalisation import BatchNorm, LocalResponseNorm
from gridgrad.nn.layers.pool import AvgPool2d, MaxPool2d
from gridgrad.nn.learning_rates import constant, cosine, parse_schedule, stepwise, warmup
from gridgrad.nn.losses import LOSSES, MSE, EarlyStopping, SoftmaxCrossEntropy
from gridgrad.nn.optimizers import OPTIMIZERS, SGD, Adadelta, Adagrad, Adam, AdamW
from gridgrad.nn.sequential import Sequential

__all__ = [
    "Adadelta", "Adagrad", "Adam", "AdamW", "AvgPool2d", "BatchNorm", "Concat", "constant", "Context", "Conv2d", "cosine",
    "Diverged", "Dropout", "EarlyStopping", "Flatten", "GELU", "Layer", "LeakyReLU", "Linear", "LocalResponseNorm", "LOSSES",
    "MaxPool2d", "MSE", "OPTIMIZERS", "Parameter", "parse_schedule", "ReLU", "Residual", "Sequential", "SGD", "Sigmoid",
    "SoftmaxCrossEntropy", "SparseLinear", "stepwise", "Tanh", "TiedAutoencoder", "warmup",
]  # fmt: skip
