"""VGG16 as Eserol 2019 counts its work and its communication.

Communication is in "MB" of the thesis: elements of a batch of 32 images, divided by 2^20. In float32 four times as many bytes
move. A map is sent after pooling. Work is what the profile of the thesis gave each layer, found by fitting its tables; the
three fully connected layers are one vertex each.
"""

from functools import lru_cache

import numpy as np

from gridgrad.experiments.papers.cited import published
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning.chains import Chain
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.hypergraph import Owners

KNOWN = published("eserol2019")
BATCH = 32
MEBI = 2**20  # elements in the "MB" of the thesis
ITEM_BYTES = 4
RANKS = 2, 4, 8, 16, 32, 64, 128
CONVS = [f"conv{block}_{layer}" for block, layers in enumerate((2, 2, 3, 3, 3), 1) for layer in range(1, layers + 1)]
DENSE = ["FC1", "FC2", "FC3"]
LAYERS = [*CONVS, *DENSE]
FILTERS = 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512
WORKS = 629, 6624, 2677, 5896, 2130, 4801, 4740, 2330, 4677, 4600, 1069, 1069, 1069, 546, 84, 60
SIDES = 224, 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14  # of the maps that a convolution makes
POOLED = 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14, 7  # of those that it sends
IMAGE = 224, 224, 3
NEURONS = 4096, 4096, 1000
PARAMETERS = 138_357_544


def melements(elements):
    """Elements of an image in the unit of the thesis."""
    return np.asarray(elements) * BATCH / MEBI


def chain(groups=1):
    """Its layers as a `Chain`: the input, thirteen convolutions, and three fully connected layers.

    groups: of neurons, into which each of the latter is divided: 1, as in the thesis, or 2, 4 or 8.
    """
    filters = [1, *FILTERS, *len(DENSE) * [groups]]
    outputs = [np.prod(IMAGE), *(side**2 for side in POOLED), *(neurons / groups for neurons in NEURONS[:-1]), 0]
    works = [0, *WORKS]
    return Chain(filters, [work / f for work, f in zip(works, filters)], melements(outputs))


@lru_cache(maxsize=1)
def layer_names():
    """The names of the layers with weights in the network."""
    return [layer.name for layer in network().leaves() if layer.kind]


def network():
    """The network itself, not allocated."""
    return network_names.build("vgg16", IMAGE, NEURONS[-1])


@lru_cache(maxsize=8)
def model(grain="coarse", blocks=None, groups=1):
    """The NetworkHypergraph of the thesis: the input is owned by vertices, one or, in the fine grain, three; the loss is not.

    blocks: of filters, see `of_network`; by default each is a vertex. groups: as for `chain`. Weights are work in millionths.
    """
    seconds = {name: work * 1e-6 for name, work in zip(layer_names(), WORKS, strict=True)}
    return of_network(network(), grain, blocks, groups, seconds, with_input=True, with_loss=False)


def owners(counts):
    """The `Owners` for counts of `chain`, with as many groups as it has."""
    found = {}
    for name, outputs, row in zip(layer_names(), (*FILTERS, *NEURONS), counts[1:], strict=True):
        found[name] = np.repeat(np.arange(len(row)), row * (outputs // row.sum()))
    return Owners(counts.shape[1], found)
