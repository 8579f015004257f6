"""The training of a stacked autoencoder on a grid: pre-training of one autoencoder, and fine-tuning of the whole network."""

import numpy as np

from datasets.views import Reconstruction
from experiments.autoencoder import networks
from nn import MSE, SGD, SoftmaxCrossEntropy
from nn.schedules import cosine
from parallel import READERS, evaluate, parallelize, train_step
from parallel.training import minibatch_indices, steps_per_epoch
from parallel.training.encoded_reader import EncodedReader
from parallel.training.steps import check_finite

TESTED_AT_ONCE = 1000  # samples in a forward pass of a test, unless the minibatch is larger


def pretrain(grid, part, widths, position, state, settings, after_epoch):
    """Train the autoencoder of the hidden layer at a position: (its reconstruction errors, what its encoder has learned).

    part: the training samples. state: on rank 0 what the encoders in front of it have learned. after_epoch: a function that is
    called after each epoch. The errors are the means of (y - x)^2 over the minibatches of each epoch, over samples and inputs,
    of the network as it was before each step. The rest is {name: array} on rank 0 and empty elsewhere. Collective.
    """
    seed, dtype = settings.seed, settings.dtype
    net = parallelize(networks.autoencoder(widths, position, seed, dtype, settings.corruption), grid)
    if position:
        encoder = parallelize(networks.encoder(widths, position, seed, dtype), grid)
        encoder.load_state_dict(state or None)
        reader = EncodedReader(net, encoder, READERS["each"](encoder, part))
    else:
        reader = READERS["each"](net, Reconstruction(part))
    # The loss is a mean over the inputs, while the learning rate is that of half of their sum.
    lr = settings.pretrain_lr * widths[position] / 2
    losses = train(net, reader, MSE(), lr, len(part), settings.pretrain_epochs, settings, after_epoch)
    learned = net.state_dict()
    return losses, networks.encoder_state(learned, position) if learned else {}


def finetune(net, part, settings, after_epoch):
    """Train the classifier on labelled samples; returns the mean losses of the epochs. Collective."""
    reader = READERS["each"](net, part)
    return train(net, reader, SoftmaxCrossEntropy(), settings.lr, len(part), settings.epochs, settings, after_epoch)


def train(net, reader, loss, lr, samples, epochs, settings, after_epoch):
    """Train a network for some epochs; returns the mean loss of each. The learning rate falls from lr to 0. Collective."""
    per_epoch, means = steps_per_epoch(samples, settings.batch_size), []
    optimizer = SGD(net, cosine(lr, epochs * per_epoch), settings.momentum)
    for epoch in range(epochs):
        losses = []
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            indices, _ = minibatch_indices(samples, settings.batch_size, settings.seed, step)
            losses.append(train_step(net, loss, optimizer, *reader.load(indices), len(indices)))
        means.append(float(np.mean(losses)))
        after_epoch(epoch + 1, means[-1])
    check_finite(net)
    return means


def error_of(net, part, batch_size):
    """The share of samples, in percent, that the classifier puts into a wrong class. Collective."""
    tested = evaluate(net, part, "cross-entropy", READERS["each"](net, part), max(batch_size, TESTED_AT_ONCE))
    return round(100 - tested["accuracy"], 6)  # without the rounding of the difference
