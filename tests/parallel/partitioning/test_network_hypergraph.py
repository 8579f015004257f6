"""The hypergraphs of networks: published sizes, volumes by hand and by simulation, owners there and back."""

import numpy as np
import pytest

from gridgrad.nn import (
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    Layer,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SparseLinear,
    TiedAutoencoder,
    network_summary,
)
from gridgrad.nn.zoo import network_names
from gridgrad.nn.zoo.network_names import FLAT, ZOO
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.placement.layer_kinds import PLACES, ByChannel
from gridgrad.parallel.plans.hypergraph import Owners


def published_vgg16(grain):
    net = network_names.build("vgg16", (224, 224, 3), 1000)
    return of_network(net, grain, neuron_blocks=1, with_input=True, with_loss=False).hypergraph


def test_the_coarse_hypergraph_of_vgg16_has_the_published_size():
    graph = published_vgg16("coarse")
    graph.check()
    assert (graph.vertices, graph.nets, len(graph.pins)) == (4228, 4227, 1_639_109)
    unit = 32 / 2**20  # the published megabytes: elements of 32 samples
    assert graph.costs[graph.groups == 0] * unit == pytest.approx([3 * 224**2 * unit])
    assert graph.costs[graph.groups == 1].sum() * unit == 98  # conv1_1, which is not pooled
    assert graph.costs[graph.groups == 2].sum() * unit == 24.5  # conv1_2, which is


def test_the_fine_hypergraph_of_vgg16_has_the_published_size():
    """The two nets between the three dense layers, of two pins each, are not in the published number of pins."""
    graph = published_vgg16("fine")
    graph.check()
    assert (graph.vertices, graph.nets, len(graph.pins)) == (1_638_726, 8453, 3_277_955 + 4)


def tiny(layers, shape=(8, 8, 3)):
    return Sequential(layers, dtype=np.float64, input_shape=shape)


def chain():
    layers = [Conv2d(3, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(2), Conv2d(4, 6, 3), ReLU()]
    return tiny([*layers, Flatten(), Linear(6 * 4, 5), ReLU(), Dropout(0.5), Linear(5, 3)])


def volume(net, owners, grain="coarse", **options):
    """The elements of a sample that travel forward, by group."""
    model = of_network(net, grain, neuron_blocks=None, **options)
    model.hypergraph.check()
    traffic = model.hypergraph.traffic(model.parts(owners), owners.ranks)
    names, total = model.hypergraph.group_names, {}
    for name, sent in zip(names, traffic, strict=True):
        if sent.any():
            total[name] = total.get(name, 0) + int(sent.sum())
    return total


def test_a_chain_by_hand():
    owners = Owners(3, {"0": [0, 0, 1, 1], "4": [0, 0, 0, 1, 1, 1], "7": [2] * 5, "10": [0, 1, 2]}, loss=2)
    # pooled maps of 4 x 4; six maps of 2 x 2 to rank 2; five neurons to ranks 0 and 1; two outputs to the loss
    assert volume(chain(), owners) == {"0": 4 * 16, "4": 6 * 4, "7": 5 * 2, "10": 2}
    assert volume(chain(), owners, with_loss=False) == {"0": 4 * 16, "4": 6 * 4, "7": 5 * 2}
    assert volume(chain(), owners, with_input=True)["input"] == 3 * 64


def test_a_fine_grain_by_hand():
    pairs = np.zeros((4, 6), int)
    pairs[3, :2] = 1  # channel 3 of the first two filters is multiplied at rank 1
    owners = Owners(2, {"0": [0, 0, 0, 1], "4": [0] * 6, "7": [0] * 5, "10": [0] * 3}, {"4": pairs})
    # rank 0 needs channel 3 for the other four filters, and gets two sums of 2 x 2
    assert volume(chain(), owners, "fine") == {"0": 16, "4 sums": 2 * 4}
    pairs[3] = 1
    assert volume(chain(), Owners(2, owners.outputs, {"4": pairs}), "fine") == {"4 sums": 6 * 4}
    first = {"0": np.array([[0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 0]])}  # the sums are not pooled
    assert volume(chain(), Owners(2, owners.outputs, first), "fine") == {"0 sums": 3 * 64, "0": 16}


def test_a_shortcut_travels_to_the_branch_and_once_only():
    net = tiny([Conv2d(3, 2, 1), Residual([Conv2d(2, 2, 1), ReLU()]), Flatten(), Linear(128, 2)])
    owners = Owners(3, {"0": [0, 1], "1.branch.0": [1, 2], "3": [0, 0]})
    # the branch needs both channels at ranks 1 and 2; the shortcut channel 0 at rank 1 and channel 1 at rank 2: the same
    assert volume(net, owners) == {"0": 3 * 64, "1": 2 * 64}
    net = tiny([Conv2d(3, 2, 1), Residual([ReLU(), Conv2d(2, 2, 1)]), Flatten(), Linear(128, 2)])
    owners = Owners(3, {"0": [0, 1], "1.branch.1": [1, 2], "3": [0, 0]})
    # now the branch reads another array: three channels travel for the branch and two for the shortcut
    assert volume(net, owners) == {"0": (3 + 2) * 64, "1": 2 * 64}
    net = tiny([Conv2d(3, 2, 1), Residual([Conv2d(2, 2, 1)], [Conv2d(2, 2, 1), BatchNorm(2)]), Flatten(), Linear(128, 2)])
    owners = Owners(3, {"0": [0, 0], "1.branch.0": [1, 1], "1.shortcut.0": [1, 2], "3": [1, 1]}, loss=1)
    # ranks 1 and 2 get both channels once; one channel of the projection travels to the branch
    assert volume(net, owners) == {"0": 4 * 64, "1.shortcut.0": 64}


def test_branches_keep_their_channels_where_they_are():
    branches = Concat([Conv2d(2, 1, 1)], [Conv2d(2, 2, 3, padding=1)], [], [MaxPool2d(3, 1, 1), Conv2d(2, 1, 1)])
    net = tiny([Conv2d(3, 2, 1), branches, Conv2d(6, 2, 1), Flatten(), Linear(128, 1)])
    outputs = {"0": [0, 0], "1.branches.0.0": [1], "1.branches.1.0": [1, 1], "1.branches.3.1": [1], "2": [0, 0], "4": [0]}
    # both channels to rank 1 for two branches, and pooled ones for the fourth; back come 4 channels
    assert sum(volume(net, Owners(2, outputs)).values()) == (2 + 2 + 4) * 64


def test_neighbouring_channels_travel_for_a_normalisation():
    net = tiny([Conv2d(3, 5, 1), LocalResponseNorm(3), Conv2d(5, 2, 1), Flatten(), Linear(128, 2)])
    owners = Owners(2, {"0": [0, 0, 0, 1, 1], "2": [0, 0], "4": [0, 0]})
    assert sum(volume(net, owners).values()) == (2 + 2) * 64
    net = tiny([Conv2d(3, 5, 1), Flatten(), LocalResponseNorm(3), Linear(320, 1)])  # the 64 features of a channel stay together
    assert sum(volume(net, Owners(2, {"0": [0, 0, 0, 1, 1], "3": [0]})).values()) == (2 + 2) * 64


def test_features_travel_to_the_neurons_that_have_a_weight_for_them():
    pattern = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    net = tiny([Linear(4, 4), ReLU(), SparseLinear(pattern)], (4,))
    owners = Owners(2, {"0": [0, 1, 0, 0], "2": [0, 1, 1]})
    assert volume(net, owners, with_loss=False) == {"0": 1}
    for blocks in (None, 1):
        model = of_network(net, neuron_blocks=blocks, with_loss=False)
        assert model.hypergraph.weights[model.outputs["2"]].tolist() == [4, 4, 2]


@pytest.mark.parametrize("grain", ["coarse", "fine"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_network_of_the_zoo_has_a_hypergraph(name, grain):
    """The work is that of the summary, and owners become parts and parts owners."""
    takes_images = name not in FLAT
    net = network_names.build(name, (63, 63, 3) if takes_images else 64, 10)
    model = of_network(net, grain, filter_blocks=5, neuron_blocks=3)
    model.hypergraph.check()
    flops = sum(row.flops for row in network_summary.rows(net, net.input_shape))
    assert model.hypergraph.weights.sum() == pytest.approx(flops, rel=1e-6)
    parts = np.random.default_rng(0).integers(0, 4, model.hypergraph.vertices)
    owners = model.owners(parts, 4)
    assert (model.parts(owners) == parts).all()
    leaves = {leaf.name: leaf for leaf in net.leaves() if leaf.kind}
    assert {name: len(found) for name, found in owners.outputs.items()} == {n: leaf.outputs for n, leaf in leaves.items()}
    assert all(found.shape == (leaves[name].inputs, leaves[name].outputs) for name, found in owners.pairs.items())
    assert bool(owners.pairs) == (grain == "fine" and takes_images)


@pytest.mark.parametrize("grain", ["coarse", "fine"])
def test_a_contracted_hypergraph_is_exact(grain):
    net = network_names.build("resnet20", (16, 16, 3), 10)
    some, full = (of_network(net, grain, blocks, blocks) for blocks in (4, None))
    parts = np.random.default_rng(1).integers(0, 3, some.hypergraph.vertices)
    everywhere = full.parts(some.owners(parts, 3))
    for function in ("traffic", "part_weights", "volume"):
        assert np.allclose(getattr(some.hypergraph, function)(parts, 3), getattr(full.hypergraph, function)(everywhere, 3))


def test_weights_from_a_profile():
    """In picoseconds; the time of a layer between is added where its channels are."""
    model = of_network(chain(), neuron_blocks=None, seconds={"0": 1e-9, "1": 8e-12, "7": 5e-12})
    assert model.hypergraph.weights.tolist() == [252] * 4 + [0] * 6 + [1] * 5 + [0] * 3 + [0]


def test_the_vertices_of_the_minibatch_and_the_loss():
    model = of_network(chain(), with_input=True)
    assert model.inputs.tolist() == [0] and model.loss == model.hypergraph.vertices - 1
    owners = Owners(3, {"0": [0, 2, 2, 2], "4": [0] * 6, "7": [0] * 5, "10": [0, 1, 1]}, loss=2)
    assert model.parts(owners)[[0, -1]].tolist() == [2, 2]
    without = of_network(chain(), with_loss=False)
    assert without.loss is None and len(without.inputs) == 0
    assert without.owners(without.parts(owners), 3).loss == 1  # where most outputs are
    assert of_network(chain(), "fine", with_input=True).inputs.tolist() == [0, 1, 2]


def test_a_network_of_one_layer_sends_nothing_but_its_outputs():
    net = tiny([Linear(4, 3)], (4,))
    alone = of_network(net, with_loss=False).hypergraph
    alone.check()
    assert (alone.vertices, alone.nets, alone.volume(np.arange(3), 3)) == (3, 0, 0) and not alone.traffic(np.arange(3), 3).any()
    assert volume(net, Owners(3, {"0": [0, 1, 2]}, loss=1)) == {"0": 2}


def test_elements_before_pooling_are_known():
    model = of_network(chain())
    graph = model.hypergraph
    assert set(graph.costs[graph.groups == 0]) == {16} and set(model.unpooled[graph.groups == 0]) == {64}


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        (Owners(2, {"0": [0, 0, 1, 1]}), "they are of the layers 0, but"),
        (Owners(2, {"0": [0] * 4, "4": [0, 1] * 3, "7": [0] * 5, "10": [0] * 3}), "divide a block of layer 4"),
        (Owners(2, {"0": [0] * 5, "4": [0] * 6, "7": [0] * 5, "10": [0] * 3}), "those of layer 0 are an array"),
        (
            Owners(2, {"0": [0] * 4, "4": [0] * 6, "7": [0] * 5, "10": [0] * 3}, {"4": np.eye(4, 6, dtype=int)}),
            "layer 4 are of the fine grain",
        ),
    ],
)
def test_owners_that_do_not_fit_are_refused(owners, words):
    with pytest.raises(ValueError, match=words):
        of_network(chain(), filter_blocks=2).parts(owners)


@pytest.mark.parametrize(
    ("layers", "shape", "options", "words"),
    [
        ([Linear(4, 4)], (4,), {"grain": "medium"}, "use coarse or fine"),
        ([Linear(4, 4)], None, {}, "needs an input_shape"),
        ([ReLU()], (4,), {}, "no layer with weights"),
        ([Concat([], [Linear(4, 4)])], (4,), {}, "put a layer with weights in front"),
        ([Residual([ReLU()])], (4,), {}, "no layer with weights"),
        ([TiedAutoencoder(4, 4)], (4,), {}, "no rule for a TiedAutoencoder"),
    ],
)
def test_networks_without_a_hypergraph_are_refused(layers, shape, options, words):
    with pytest.raises(ValueError, match=words):
        of_network(tiny(layers, shape), **options)


def test_a_layer_of_ones_own_has_a_hypergraph_where_its_row_says_so(monkeypatch):
    class Own(Layer):
        pass

    net = tiny([Conv2d(3, 4, 3), Own(), Flatten(), Linear(4 * 36, 3)])
    for row, words in (
        (None, "no rule how to place a Own"),
        (lambda placer, layer: None, "a hypergraph has no rule for a Own"),
    ):
        if row:
            monkeypatch.setitem(PLACES, Own, row)
        with pytest.raises(ValueError, match=words):
            of_network(net)
    monkeypatch.setitem(PLACES, Own, ByChannel())
    without = of_network(tiny([Conv2d(3, 4, 3), Flatten(), Linear(4 * 36, 3)])).hypergraph
    assert (of_network(net).hypergraph.pins == without.pins).all()
