"""How the minibatches of a Case come to the ranks: as their blocks, whole by `learn`, or from a reader of a data set."""

import numpy as np

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import LOSSES, Context
from gridgrad.nn.device import to_device
from gridgrad.parallel import evaluate, predict
from gridgrad.parallel.training.minibatch_readers import MicroBatchReader
from tests.parallel.pipelines import parts_of

FEEDS = "blocks", "learn", *READERS


def train(case, net, optimizer):
    """The losses of a step with each minibatch. Collective."""
    loss, batches = case.make_loss(), case.batches()
    if case.feed == "learn":
        return [net.learn(x, y, loss, optimizer) for x, y in batches]
    trainer, losses = net.trainer(loss, optimizer), []
    if case.feed == "blocks":
        for x, y in batches:
            losses += trainer.step(parts_of(net, x, y, case.micro_batches), len(x))
    else:
        reader, start = MicroBatchReader(READERS[case.feed](net, data_set(case))), 0
        for x, _ in batches:
            losses += trainer.step(reader.parts(np.arange(start, start + len(x)), case.micro_batches), len(x))
            start += len(x)
    return losses + trainer.flush()


def outputs(case, net):
    """The outputs for the first minibatch, on all ranks. Collective.

    Where there is a reader it brings all samples, and what `evaluate` says of them is the loss of all outputs.
    """
    x, _ = case.batches()[0]
    if case.feed not in READERS:
        return net.grid.comm.bcast(net.predict(x))
    part, size = data_set(case), max(1, len(x) - 1)
    reader = READERS[case.feed](net, part)
    found = net.grid.comm.bcast(predict(net, part, reader, size))
    said = evaluate(net, part, case.loss, reader, size)["loss"]
    targets = to_device(part.targets(np.arange(len(part))))
    expected = LOSSES[case.loss]().forward(to_device(found), targets, Context(batch_size=len(part)))
    assert np.isclose(said, float(expected), rtol=1e-4 if case.dtype == "float32" else 1e-9), (said, expected, case)
    return found[: len(x)]


def data_set(case):
    """The Part with the samples of all minibatches, one behind the other."""
    x, y = (np.concatenate(arrays) for arrays in zip(*case.batches(), strict=True))
    plain = np.zeros(()), np.ones(())
    return Part(x, y, *plain, *(plain if case.loss == "mse" else ()), dtype=case.dtype)
