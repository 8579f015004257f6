"""The hypergraphs of networks: published sizes, volumes by hand, owners there and back; measures and simple partitions."""

import numpy as np
import pytest

from gridgrad.nn import BatchNorm, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, network_summary
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from gridgrad.parallel.plans.hypergraph import Owners

WORK = [629, 6624, 2677, 5896, 2130, 4801, 4740, 2330, 4677, 4600, 1069, 1069, 1069, 546, 84, 60]  # Eserol's profile of VGG16
UNIT = 32 / 2**20  # his megabytes: elements of 32 samples
VGG16 = network_names.build("vgg16", (224, 224, 3), 1000)
SECONDS = dict(zip([leaf.name for leaf in VGG16.leaves() if leaf.kind], (work * 1e-6 for work in WORK), strict=True))


def published(grain="coarse", neuron_blocks=1):
    return of_network(VGG16, grain, None, neuron_blocks, SECONDS, with_input=True, with_loss=False)


def test_the_hypergraphs_of_vgg16_have_the_published_sizes():
    coarse, fine = published().hypergraph, published("fine").hypergraph
    assert (coarse.vertices, coarse.nets, len(coarse.pins)) == (4228, 4227, 1_639_109)
    assert coarse.costs[coarse.groups == 0] * UNIT == pytest.approx([3 * 224**2 * UNIT])
    assert coarse.costs[coarse.groups == 1].sum() * UNIT == 98  # conv1_1, which is not pooled
    assert coarse.costs[coarse.groups == 2].sum() * UNIT == 24.5  # conv1_2, which is
    # The two nets between the three dense layers, of two pins each, are not in the published number of pins.
    assert (fine.vertices, fine.nets, len(fine.pins)) == (1_638_726, 8453, 3_277_955 + 4)


def tiny(*layers, shape=(8, 8, 3)):
    return Sequential(list(layers), dtype=np.float64, input_shape=shape)


def chain():
    return tiny(Conv2d(3, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(2), Conv2d(4, 6, 3), ReLU(),
                Flatten(), Linear(6 * 4, 5), ReLU(), Linear(5, 3))  # fmt: skip


def volume(net, owners, grain="coarse", **options):
    """The elements of a sample that each layer sends forward. That ranks send as many: tests/parallel/placement."""
    model = of_network(net, grain, neuron_blocks=None, **options)
    traffic = model.hypergraph.traffic(model.parts(owners), owners.ranks).sum(axis=(1, 2))
    return {name: int(sent) for name, sent in zip(model.hypergraph.group_names, traffic, strict=True) if sent}


def test_a_chain_by_hand():
    owners = Owners(3, {"0": [0, 0, 1, 1], "4": [0, 0, 0, 1, 1, 1], "7": [2] * 5, "9": [0, 1, 2]}, loss=2)
    # pooled maps of 4 x 4; six maps of 2 x 2 to rank 2; five neurons to ranks 0 and 1; two outputs to the loss
    assert volume(chain(), owners) == {"0": 4 * 16, "4": 6 * 4, "7": 5 * 2, "9": 2}
    sent = volume(chain(), owners, with_loss=False, with_input=True)
    assert sent == {"input": 3 * 64, "0": 4 * 16, "4": 6 * 4, "7": 5 * 2}


def test_a_fine_grain_by_hand():
    pairs = np.zeros((4, 6), int)
    pairs[3, :2] = 1  # channel 3 of the first two filters is multiplied at rank 1
    owners = Owners(2, {"0": [0, 0, 0, 1], "4": [0] * 6, "7": [0] * 5, "9": [0] * 3}, {"4": pairs})
    # rank 0 needs channel 3 for the other four filters, and gets two sums of 2 x 2
    assert volume(chain(), owners, "fine") == {"0": 16, "4 sums": 2 * 4}
    first = {"0": np.array([[0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 0]])}  # the sums are not pooled
    assert volume(chain(), Owners(2, owners.outputs, first), "fine") == {"0 sums": 3 * 64, "0": 16}


@pytest.mark.parametrize("grain", ["coarse", "fine"])
def test_work_is_that_of_the_summary_and_owners_become_parts_and_parts_owners(grain):
    """Which hold for the whole hypergraph too."""
    net = network_names.build("resnet20", (63, 63, 3), 10)
    model = of_network(net, grain, filter_blocks=5, neuron_blocks=3)
    flops = sum(row.flops for row in network_summary.rows(net, net.input_shape))
    assert model.hypergraph.weights.sum() == pytest.approx(flops, rel=1e-6)
    parts = np.random.default_rng(0).integers(0, 4, model.hypergraph.vertices)
    owners = model.owners(parts, 4)
    owners.check([leaf for leaf in net.leaves() if leaf.kind])
    assert (model.parts(owners) == parts).all() and bool(owners.pairs) == (grain == "fine")
    full = of_network(net, grain, neuron_blocks=None)
    everywhere = full.parts(owners)
    assert np.allclose(model.hypergraph.traffic(parts, 4), full.hypergraph.traffic(everywhere, 4))
    assert np.allclose(model.hypergraph.part_weights(parts, 4), full.hypergraph.part_weights(everywhere, 4))


def test_networks_without_a_hypergraph_and_owners_of_others_are_refused():
    with pytest.raises(ValueError, match="no layer with weights"):
        of_network(tiny(Residual([ReLU()])))
    with pytest.raises(ValueError, match="those of layer 0"):
        of_network(chain(), neuron_blocks=None).parts(Owners(2, {"0": [0] * 5, "4": [0] * 6, "7": [0] * 5, "9": [0] * 3}))


# ----- measures, and the partitions that methods for comparison make


def test_a_partition_by_hand():
    model = of_network(tiny(Conv2d(3, 4, 1), MaxPool2d(2), Conv2d(4, 2, 1), Flatten(), Linear(32, 3)))
    parts = model.parts(Owners(3, {"0": [0, 0, 0, 1], "2": [1, 2], "4": [2, 2, 2]}, loss=2))
    found = measure(model, parts, 3)
    # rank 0 sends 3 maps to ranks 1 and 2, rank 1 one map to rank 2, and then one to rank 2, each of 4 x 4
    assert (found.volume, found.largest_array, found.messages, found.most_moved) == (8 * 16, 7 * 16, 4, 6 * 16)
    # by way of rank 0: a map of 8 x 8 goes there, and four pooled ones to ranks 1 and 2; then one by way of rank 2
    assert found.star == 64 + 2 * 4 * 16 + 16
    work = np.array([3 * 2 * 3 * 64, 2 * 3 * 64 + 2 * 4 * 16, 2 * 4 * 16 + 3 * 2 * 32])
    assert found.work == pytest.approx(3 * work / work.sum())
    assert measure(model, parts, 3, [1, 2, 1]).work == pytest.approx(work / work.sum() * [4, 2, 4])


def test_simple_partitions_of_vgg16_are_the_published_ones():
    """Eserol 2019, tables 5.1 to 5.4, in which digits are cut off."""
    model = published()
    layer_wise = measure(model, naive.layer_wise(model, 4), 4)
    assert layer_wise.work.max() * 43001 / 4 == pytest.approx(12827, rel=1e-6)
    assert layer_wise.work.min() * 43001 / 4 == pytest.approx(8497, rel=1e-6)
    assert 85.7 <= layer_wise.volume * UNIT < 85.8 and layer_wise.star * UNIT == pytest.approx(85.7, abs=0.1)
    assert layer_wise.largest_array * UNIT == 49 and layer_wise.messages == 4 - 1
    model = published(neuron_blocks=16)
    horizontal = measure(model, naive.horizontal(model, 4), 4)
    assert horizontal.work == pytest.approx(1, abs=1e-3) and horizontal.largest_array * UNIT == 294
    dense = (4 - 1) * 2 * 4096 * UNIT  # the outputs of dense layers, which the thesis does not send to all ranks
    assert 1144 <= horizontal.star * UNIT - dense < 1145
