"""Made-up data of any shape, such as `random:32x32x3,10`: to measure, and to try a network without a file.

A sample is a function of its global index, so each rank makes those that it asks for, the same ones on every grid. They can be
learnt: the inputs of a class are its pattern and as much noise, the target of a regression is a weighted sum of its inputs.
"""

import math
import re
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gridgrad.datasets.part import Dataset, Made, Part
from gridgrad.nn.random import random_block, uniform_block

PREFIX = "random:"
NAME = f"{PREFIX}SHAPE,OUTPUTS[,SAMPLES]"
SAMPLES, TESTED = 10_000, 5  # samples to train on, by default; to test there is one for each five of them
FIELDS = 4  # along each side of the pattern of an image
LARGEST = 1 << 31  # inputs, outputs, samples
CIRCLE, STRIDE = 1 << 20, 611_953  # random numbers, and how far behind one sample the next one begins
SPREAD = 3**-0.5  # the deviation of uniform numbers in [-1, 1)


def parse(name):
    """(shape, outputs, samples) of a name such as "random:32x32x3,10,2000"; ValueError saying what is accepted."""
    number = "([1-9][0-9]{0,9})"
    found = re.fullmatch(f"{PREFIX}{number}(?:x{number}x{number})?,{number}(?:,{number})?", name, re.ASCII)
    *shape, outputs, samples = [int(size or 0) for size in found.groups()] if found else (0, 0, 0)
    shape, samples = tuple(size for size in shape if size), samples or SAMPLES
    if not found or max(math.prod(shape), outputs, samples) >= LARGEST:
        raise ValueError(
            f"data set '{name}': use {NAME} with HEIGHTxWIDTHxCHANNELS or FEATURES as SHAPE, such as {PREFIX}32x32x3,10 or "
            f"{PREFIX}8,1 (a regression)"
        )
    return shape, outputs, samples


def prepare(directory, name):
    """Check the name; nothing is stored."""
    parse(name)


def load(directory, dtype, name):
    """The Dataset: classes for 2 outputs or more, a regression for one."""
    shape, outputs, samples = parse(name)
    tests = max(1, samples // TESTED)
    parts = made(shape, outputs, 0, samples, dtype), made(shape, outputs, samples, tests, dtype)
    classes = [str(number) for number in range(outputs)] if outputs > 1 else None
    return Dataset(name, *parts, "cross-entropy" if classes else "mse", outputs, "", synthetic=True, classes=classes)


def made(shape, outputs, start, count, dtype):
    """The Part of `count` samples from `start` on."""
    size, zero = math.prod(shape), np.float64(0)
    if outputs > 1:
        fields = patterns(shape, outputs)
        x = Made((count, *shape), np.float32, lambda i: noise(start + i, size) + fields[(start + i) % outputs])
        y = Made((count,), np.int64, lambda i: (start + i) % outputs)
        return Part(x, y, zero, np.float64(SPREAD * 2**0.5), dtype=dtype)
    x = Made((count, *shape), np.float32, lambda i: noise(start + i, size))
    y = Made((count, 1), np.float64, lambda i: noise(start + i, size) @ weights(size))
    return Part(x, y, zero, np.float64(SPREAD), np.zeros(1), np.array([SPREAD * np.linalg.norm(weights(size))]), dtype)


def noise(samples, size):
    """(samples, size) uniform numbers in [-1, 1): each sample is another stretch of one circle of random numbers."""
    return sliding_window_view(circle(size), size)[samples * STRIDE % CIRCLE]


@lru_cache(maxsize=2)
def circle(size):
    """The circle, cut open, with so many of its numbers once more at the end."""
    drawn = uniform_block(0, "made-up inputs", CIRCLE, slice(0, 1), slice(None), 1.0)
    return np.resize(drawn.astype(np.float32), CIRCLE + size)


@lru_cache(maxsize=2)
def patterns(shape, classes):
    """(classes, size): of images, 4 x 4 fields of one colour, which convolutions find."""
    fields = [min(FIELDS, length) for length in shape[:-1]]
    drawn = uniform_block(0, "made-up classes", math.prod(fields) * shape[-1], slice(0, classes), slice(None), 1.0)
    drawn = drawn.astype(np.float32).reshape(classes, *fields, shape[-1])
    for axis, (length, count) in enumerate(zip(shape, fields), 1):
        drawn = drawn.take(np.arange(length) * count // length, axis)
    return drawn.reshape(classes, -1)


@lru_cache(maxsize=2)
def weights(size):
    """(size, 1) odd numbers, so small that the sums of a regression are exact, in whatever order they are made."""
    return random_block(0, "made-up weights", size, slice(0, 1), slice(None), np.uint8).T * 2.0 - 255
