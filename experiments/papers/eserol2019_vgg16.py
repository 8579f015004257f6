"""VGG16 as Eserol 2019 counts its work and its communication.

Communication is in "MB" of the thesis: elements of a batch of 32 images, divided by 2^20. In float32 four times as many bytes
move. A map is sent after pooling. Work is what the profile of the thesis gave each layer, found by fitting its tables; the
three fully connected layers are one vertex each.
"""

import numpy as np

from parallel.partitioning.counts import Chain

BATCH = 32
MILLION = 2**20
ITEM_BYTES = 4
RANKS = 2, 4, 8, 16, 32, 64, 128
CONVS = [f"conv{block}_{layer}" for block, layers in enumerate((2, 2, 3, 3, 3), 1) for layer in range(1, layers + 1)]
DENSE = ["FC1", "FC2", "FC3"]
FILTERS = 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512
WORKS = 629, 6624, 2677, 5896, 2130, 4801, 4740, 2330, 4677, 4600, 1069, 1069, 1069, 546, 84, 60
SIDES = 224, 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14  # of the maps that a convolution makes
POOLED = 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14, 7  # of those that it sends
IMAGE = 224, 224, 3
NEURONS = 4096, 4096, 1000
PARAMETERS = 138_357_544


def melements(elements):
    """Elements of an image in the unit of the thesis."""
    return np.asarray(elements) * BATCH / MILLION


def chain(groups=1):
    """Its layers as a `Chain`: the input, thirteen convolutions, and three fully connected layers of `groups` groups of neurons
    each (of as many as they have neurons at most). The thesis has one group."""
    groups = [min(groups, neurons) for neurons in NEURONS]
    filters = [1, *FILTERS, *groups]
    outputs = [np.prod(IMAGE), *(side**2 for side in POOLED), *(n / g for n, g in zip(NEURONS[:-1], groups)), 0]
    works = [0, *WORKS]
    return Chain(filters, [work / f for work, f in zip(works, filters)], melements(outputs))


NAMES = ["input", *CONVS, *DENSE]  # of the layers of `chain`
