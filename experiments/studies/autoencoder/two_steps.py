"""What a process of `largest_width.py` does: train every network of a stacked autoencoder for two steps on made-up samples.

It calls what the program calls, on a grid of one rank, so that what fits here fits there.
"""

import json
import resource
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import Part
from gridgrad.experiments.common import report
from gridgrad.experiments.studies.autoencoder.training import error_of, finetune, pretrain
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.job.run import run

STEPS = 2  # of each training: the second one still holds everything that the first one has allocated
RESERVE = 4 * 2**20  # bytes that the program may need besides, such as for its report and the order of the samples
RATE = 1e-6  # a learning rate with which no network diverges, however wide it is


def main():
    """The one argument of the process is JSON: the bytes of memory that it may have, and the arguments of `train`."""
    settings = json.loads(sys.argv[1])
    nbytes = max(settings.pop("nbytes") - RESERVE, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))  # all private memory that can be written, on Linux
    train(**settings)


def train(inputs, width, widths, classes, **settings):
    """Pre-train, fine-tune and test. MemoryError if the memory is too small.

    inputs, width, widths, classes: the units of the input, of the first hidden layer, of the others, and of the output.
    settings: those options of the program that change how much memory it needs.
    """
    settings, widths = SimpleNamespace(**settings, seed=0, epochs=1, pretrain_lr=RATE, lr=RATE), [inputs, width, *widths]
    part, state = made_up(inputs, classes, settings), {}
    with ProcessGrid(MPI.COMM_WORLD) as grid:
        placed = partial(parallelize, grid=grid, allocate=False)
        for position in range(len(widths) - 1) if settings.pretrain_epochs else ():
            pretrain(placed, part, widths, position, state, settings, say_nothing)
        net, _ = finetune(placed, part, widths, classes, state, settings, say_nothing)
        error_of(net, part, settings.batch_size)
        report.digest(net)


def made_up(inputs, classes, settings, steps=STEPS):
    """As many images and labels as these steps need."""
    samples = steps * settings.batch_size
    images = np.random.default_rng(0).integers(0, 256, (samples, inputs), np.uint8)
    return Part(images, np.arange(samples) % classes, np.zeros(()), np.full((), 255.0), dtype=settings.dtype)


def say_nothing(epoch, value):
    """What is called after an epoch."""


if __name__ == "__main__":
    run(main)
