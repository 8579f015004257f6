"""What a process of `largest_width.py` does: train every network of a stacked autoencoder for two steps on made-up samples."""

import json
import resource
import sys

import numpy as np

from experiments.autoencoder import networks
from nn import MSE, SGD, SoftmaxCrossEntropy

NO_MEMORY = 3  # the exit status if there is too little memory
STEPS = 2  # in the second step everything that the first one has allocated is there


def main():
    """The one argument of the process is JSON: the bytes of memory that it may have, and the arguments of `train`."""
    settings = json.loads(sys.argv[1])
    nbytes = settings.pop("nbytes")
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))  # all private memory that can be written, on Linux
    try:
        train(**settings)
    except (MemoryError, ImportError):  # NumPy loads some of its libraries when they are needed
        sys.exit(NO_MEMORY)


def train(inputs, width, widths, classes, batch_size, momentum, dtype):
    """inputs, width, widths, classes: the units of the input, of the first hidden layer, of the others, and of the output."""
    widths = [inputs, width, *widths]
    samples = np.random.default_rng(0).random((batch_size, inputs)).astype(dtype)
    for position in range(len(widths) - 1):
        pretrain(widths, position, samples, momentum, dtype)
    labels = np.arange(batch_size) % classes
    steps(networks.classifier(widths, classes, 0, dtype), samples, labels, SoftmaxCrossEntropy(), momentum)


def pretrain(widths, position, samples, momentum, dtype):
    """Train one autoencoder on what the encoders in front of it say of the samples. Afterwards all memory is free again."""
    encoder = networks.encoder(widths, position, 0, dtype)  # kept until the end, as in training
    x = encoder.predict(samples) if position else samples
    steps(networks.autoencoder(widths, position, 0, dtype), x, x, MSE(), momentum)


def steps(net, x, y, loss, momentum):
    optimizer = SGD(net, 0.01, momentum)
    for _ in range(STEPS):
        net.learn(x, y, loss, optimizer)
