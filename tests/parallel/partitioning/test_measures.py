"""Measures of partitions, by hand and those published, and the simple partitions that they are of."""

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, MaxPool2d, Residual, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from gridgrad.parallel.plans.hypergraph import Owners

WORK = [629, 6624, 2677, 5896, 2130, 4801, 4740, 2330, 4677, 4600, 1069, 1069, 1069, 546, 84, 60]  # Eserol's profile of VGG16
UNIT = 32 / 2**20  # his megabytes: elements of 32 samples
VGG16 = network_names.build("vgg16", (224, 224, 3), 1000)


def published(grain="coarse", neuron_blocks=1, **options):
    names = [leaf.name for leaf in VGG16.leaves() if leaf.kind]
    seconds = {name: work * 1e-6 for name, work in zip(names, WORK, strict=True)}
    return of_network(VGG16, grain, None, neuron_blocks, seconds, with_input=True, with_loss=False, **options)


def test_a_partition_by_hand():
    net = Sequential([Conv2d(3, 4, 1), MaxPool2d(2), Conv2d(4, 2, 1), Flatten(), Linear(32, 3)], input_shape=(8, 8, 3))
    model = of_network(net)
    owners = Owners(3, {"0": [0, 0, 0, 1], "2": [1, 2], "4": [2, 2, 2]}, loss=2)
    found = measure(model, model.parts(owners), 3)
    # rank 0 sends 3 maps to ranks 1 and 2, rank 1 one map to rank 2, and then one to rank 2, each of 4 x 4
    assert (found.volume, found.largest_array, found.messages) == (8 * 16, 7 * 16, 4)
    assert found.most_moved == 6 * 16
    # by way of rank 0: a map of 8 x 8 goes there, and four pooled ones to ranks 1 and 2; then one by way of rank 2
    assert found.star == 64 + 2 * 4 * 16 + 16
    work = np.array([3 * 2 * 3 * 64, 2 * 3 * 64 + 2 * 4 * 16, 2 * 4 * 16 + 3 * 2 * 32])
    assert found.work == pytest.approx(3 * work / work.sum())
    assert measure(model, model.parts(owners), 3, [1, 2, 1]).work == pytest.approx(work / work.sum() * [4, 2, 4])


@pytest.mark.parametrize(
    ("ranks", "most", "least", "volume", "largest"),
    [(2, 22757, 20244, 24.5, 24.5), (4, 12827, 8497, 85.7, 49), (8, 7253, 2677, 131.6, 49), (16, 6624, 60, 273.5, 98)],
)
def test_layer_wise_partitions_are_the_published_ones(ranks, most, least, volume, largest):
    """Eserol 2019, tables 5.1 and 5.2; there digits are cut off."""
    model = published()
    found = measure(model, naive.layer_wise(model, ranks), ranks)
    assert found.work.max() * 43001 / ranks == pytest.approx(most, rel=1e-6)
    assert found.work.min() * 43001 / ranks == pytest.approx(least, rel=1e-6)
    assert volume <= found.volume * UNIT < volume + 0.1 and found.star * UNIT == pytest.approx(volume, abs=0.1)
    assert found.largest_array * UNIT == largest and found.messages == ranks - 1


@pytest.mark.parametrize(("ranks", "volume", "largest"), [(2, 484, 98), (4, 1144, 294), (8, 2307, 686), (16, 4556, 1470)])
def test_horizontal_partitions_are_the_published_ones(ranks, volume, largest):
    """Eserol 2019, tables 5.3 and 5.4, without the outputs of dense layers, which they do not send to all ranks."""
    model = published(neuron_blocks=16)
    found = measure(model, naive.horizontal(model, ranks), ranks)
    assert found.work == pytest.approx(1, abs=1e-3)
    assert found.largest_array * UNIT == largest
    dense = (ranks - 1) * 2 * 4096 * UNIT
    assert volume <= found.star * UNIT - dense < volume + 1


@pytest.mark.parametrize("grain", ["coarse", "fine"])
def test_incremental_partitions_fill_one_rank_after_another(grain):
    model = published(grain)
    parts = naive.incremental(model, 4)
    found = measure(model, parts, 4)
    assert found.work == pytest.approx(1, abs=0.01 if grain == "coarse" else 1e-3)
    # published: 117 for filters and 118 for channels, by way of roots
    assert found.volume * UNIT == pytest.approx(112, abs=0.5) and found.largest_array * UNIT == 49
    owners = model.owners(parts, 4)
    joined = np.concatenate([owners.pairs[name].T.ravel() if name in owners.pairs else found
                             for name, found in owners.outputs.items()])  # fmt: skip
    assert (np.diff(joined) >= 0).all() and set(joined) == {0, 1, 2, 3}


@pytest.mark.parametrize("grain", ["coarse", "fine"])
@pytest.mark.parametrize("method", naive.METHODS)
def test_shares_follow_speeds(method, grain):
    """Of a network with a residual connection, too."""
    layers = [Conv2d(3, 24, 3), Residual([Conv2d(24, 24, 3, padding=1)]), Conv2d(24, 48, 3), Flatten(), Linear(48 * 16, 36)]
    model = of_network(Sequential(layers, input_shape=(8, 8, 3)), grain)
    parts = naive.METHODS[method](model, 3, [3, 2, 1])
    found = measure(model, parts, 3, [3, 2, 1])
    assert found.work.max() < (1.5 if method == "layer-wise" else 1.1)
    assert (model.parts(model.owners(parts, 3)) == parts).all()
    assert (found.star is None) == (grain == "fine")


def test_more_ranks_than_layers_or_pieces():
    model = of_network(Sequential([Linear(4, 2), Linear(2, 3)], input_shape=(4,)))
    for method in naive.METHODS.values():
        assert model.owners(method(model, 7), 7).ranks == 7
    assert len(set(model.owners(naive.layer_wise(model, 7), 7).outputs["0"])) == 1


def test_random_partitions_depend_on_the_seed():
    model = of_network(network_names.build("resnet20", (16, 16, 3), 10))
    one, same, other = (naive.random(model, 4, seed=seed) for seed in (0, 0, 1))
    assert (one == same).all() and (one != other).any()
    assert measure(model, one, 4).volume > 1.5 * measure(model, naive.incremental(model, 4), 4).volume
