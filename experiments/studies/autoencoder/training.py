"""The training of a stacked autoencoder on a grid: pre-training of one autoencoder, and fine-tuning of the whole network.

placed: a function that places a serial network on the grid and returns a ParallelSequential without memory, such as
`partial(parallelize, grid=grid, allocate=False)`. state: what the encoders have learned, {name: array} on rank 0, empty
elsewhere.
settings: the options of the program. after_epoch: a function that is called after each epoch with its number and mean loss.
"""

import gc

import numpy as np

from gridgrad.datasets.views import Reconstruction
from gridgrad.experiments.studies.autoencoder import networks
from gridgrad.experiments.studies.autoencoder.encoded_reader import EncodedReader
from gridgrad.nn import MSE, SGD, SoftmaxCrossEntropy
from gridgrad.nn.optimizers import cosine
from gridgrad.parallel import READERS, evaluate, train_step
from gridgrad.parallel.training import minibatch_indices, steps_per_epoch
from gridgrad.parallel.training.steps import check_finite


def check(placed, widths, classes, settings):
    """ValueError unless every network of the training fits the grid, the plan and the shares. Takes no memory. Collective."""
    seed, dtype = settings.seed, settings.dtype
    for position in range(len(widths) - 1) if settings.pretrain_epochs else ():
        net = placed(networks.autoencoder(widths, position, seed, dtype))
        if position:
            EncodedReader(net, placed(networks.encoder(widths, position, seed, dtype)), None)
    placed(networks.classifier(widths, classes, seed, dtype))


def pretrain(placed, part, widths, position, state, settings, after_epoch):
    """Train the autoencoder of the hidden layer at a position, and add what its encoder has learned to `state`. Collective.

    part: the training samples. Returns (the plan of the autoencoder, its reconstruction errors): the means of (y - x)^2 over
    the minibatches of each epoch, over samples and inputs, of the network as it was before each step.
    """
    gc.collect()  # networks are in cycles of references, so that the last one may still be in memory
    seed, dtype = settings.seed, settings.dtype
    net = placed(networks.autoencoder(widths, position, seed, dtype, settings.corruption))
    if position:
        encoder = placed(networks.encoder(widths, position, seed, dtype))
        encoder.load_state_dict(state or None)
        reader = EncodedReader(net, encoder, READERS["each"](encoder, part))
    else:
        reader = READERS["each"](net, Reconstruction(part))
    # The loss is a mean over the inputs, while the learning rate is that of half of their sum.
    lr = settings.pretrain_lr * widths[position] / 2
    errors = train(net, reader, MSE(), lr, len(part), settings.pretrain_epochs, settings, after_epoch)
    learned = net.state_dict()
    if learned:
        state |= networks.encoder_state(learned, position)
    return net.plan, errors


def finetune(placed, part, widths, classes, state, settings, after_epoch):
    """Train the classifier on labelled samples; returns (the network, the mean losses of the epochs). Collective.

    It starts from what the encoders have learned, and empties `state`, so that its memory can be used.
    """
    gc.collect()
    net = placed(networks.classifier(widths, classes, settings.seed, settings.dtype))
    if settings.pretrain_epochs:
        net.load_state_dict(state or None, strict=False)  # the last layer has learned nothing yet
        state.clear()
    reader = READERS["each"](net, part)
    return net, train(net, reader, SoftmaxCrossEntropy(), settings.lr, len(part), settings.epochs, settings, after_epoch)


def train(net, reader, loss, lr, samples, epochs, settings, after_epoch):
    """Train a network for some epochs; returns the mean loss of each. The learning rate falls from lr to 0. Collective."""
    net.allocate()
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
    """The share of samples, in percent, that the classifier puts into a wrong class. Collective.

    batch_size: the samples in a forward pass. One as in training needs no further memory.
    """
    tested = evaluate(net, part, "cross-entropy", READERS["each"](net, part), batch_size)
    return round(100 - tested["accuracy"], 6)  # without the rounding of the difference
