"""Chains of layers: their costs against hypergraphs, and the search and the proof of the best counts against all partitions."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.nn import Conv2d, Flatten, Linear, LocalResponseNorm, MaxPool2d, ReLU, Residual, Sequential, SparseLinear
from gridgrad.parallel.partitioning import chains
from gridgrad.parallel.partitioning.chains import Chain, capacities, chain_of, owners, search
from gridgrad.parallel.partitioning.network_hypergraph import of_network

SMALL = Chain([1, 3, 2, 4, 1], [0, 2, 3, 1, 2], [5, 4, 3, 2, 0])
TOO_HEAVY = Chain([5, 1], [1, 0], [1, 1])


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_costs_of_a_chain_are_those_of_its_hypergraph(ranks):
    layers = [Conv2d(3, 7, 3), ReLU(), MaxPool2d(2), Conv2d(7, 5, 3), ReLU(), Flatten(), Linear(5 * 3 * 2, 11), Linear(11, 4)]
    net, rng = Sequential(layers, input_shape=(12, 10, 3)), np.random.default_rng(0)
    chain, names = chain_of(net)
    assert names == ("0", "3", "6", "7") and chain.filters.tolist() == [7, 5, 11, 4, 1]
    model = of_network(net, neuron_blocks=None)
    counts = chain.check([rng.multinomial(n, np.full(ranks, 1 / ranks)) for n in chain.filters])
    parts = model.parts(owners(counts, names))
    traffic = model.hypergraph.traffic(parts, ranks)
    assert chain.volume(counts) == pytest.approx(traffic.sum())
    assert chain.sent(counts) == pytest.approx(traffic.sum(axis=(0, 2)))
    assert chain.received(counts) == pytest.approx(traffic.sum(axis=(0, 1)))
    assert chain.messages(counts).sum() == np.count_nonzero(traffic)
    assert chain.loads(counts) == pytest.approx(model.hypergraph.part_weights(parts, ranks), rel=1e-6)


def test_branches_neighbours_and_sparse_layers_make_no_chain():
    for layers in (
        [Conv2d(3, 4, 3), Residual([Conv2d(4, 4, 1), Conv2d(4, 4, 1)]), Flatten(), Linear(320, 2)],
        [Conv2d(3, 4, 3), LocalResponseNorm(3), Flatten(), Linear(320, 2)],
        [Flatten(), SparseLinear(np.eye(360, 5, dtype=bool)), Linear(5, 2)],
    ):
        assert chain_of(Sequential(layers, input_shape=(12, 10, 3))) is None


def energy_of(objective, chain, counts, unit):
    volume = chain.volume(counts) / unit
    return {
        "volume": volume,
        "messages": chain.messages(counts).sum() + chains.Messages.VOLUME * volume,
        "largest": chains.norm((chain.sent(counts) + chain.received(counts)) / unit),
    }[objective]


@pytest.mark.parametrize("objective", chains.STATES)
def test_energies_change_as_what_they_stand_for(objective):
    """The energy of a state, summed up over random moves, is the one computed anew."""
    random = np.random.default_rng(1)
    counts = np.array([random.multinomial(n, np.full(3, 1 / 3)) for n in SMALL.filters])
    state = chains.STATES[objective](SMALL, capacities(SMALL, [1] * 3, 9.0), counts)
    energy = energy_of(objective, SMALL, counts, state.unit)
    for _ in range(200):
        layer = random.integers(len(SMALL.filters)).item()
        a, b = random.choice(state.owners[layer]).item(), random.integers(3).item()
        if a != b:
            state.move = layer, a, b, random.integers(1, state.counts[layer][a] + 1).item()
            energy += state.change(*state.move)
            state.accept()
    counts = state.copy()
    assert state.loads == pytest.approx(SMALL.loads(counts).tolist())
    assert [sorted(found) for found in state.owners] == [np.flatnonzero(row).tolist() for row in counts]
    assert energy == pytest.approx(energy_of(objective, SMALL, counts, state.unit))


@pytest.mark.parametrize(("speeds", "epsilon"), [([2, 1], 0.1), ([1, 1, 1], 0.25)])
def test_search_and_proof_find_the_best_of_all_partitions(speeds, epsilon):
    most = capacities(SMALL, speeds, epsilon) * (1 + 1e-9)
    rows = [[row for row in product(range(n + 1), repeat=len(speeds)) if sum(row) == n] for n in SMALL.filters]
    fitting = [counts for counts in map(np.array, product(*rows)) if (SMALL.loads(counts) <= most).all()]
    best = min(map(SMALL.volume, fitting))
    exact = vgg16.solve(SMALL, speeds, epsilon)
    assert exact.proved and exact.volume == pytest.approx(best) == pytest.approx(exact.bound)
    found = {objective: search(SMALL, speeds, epsilon, objective, moves=20_000) for objective in chains.STATES}
    assert all((SMALL.loads(SMALL.check(counts)) <= most).all() for counts in (exact.counts, *found.values()))
    assert SMALL.volume(found["volume"]) == pytest.approx(best)
    assert (search(SMALL, speeds, epsilon, moves=20_000) == found["volume"]).all()
    assert SMALL.messages(found["messages"]).sum() == min(SMALL.messages(counts).sum() for counts in fitting)
    largest = [(SMALL.sent(counts) + SMALL.received(counts)).max() for counts in (found["largest"], *fitting)]
    assert largest[0] <= 1.1 * min(largest[1:])


def test_a_filter_heavier_than_a_share_has_a_rank_that_may_have_it():
    chain = vgg16.chain_of_layers()
    most = capacities(chain, [1] * 128, 0.1)
    assert np.sort(most)[-2:] == pytest.approx([1.1 * chain.work / 128, 546])
    assert chains.in_order(chain, most)[(["input", *vgg16.LAYERS]).index("FC1"), most.argmax()] == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: SMALL.check(np.ones((5, 2))), "add up to its filters"),
        (lambda: search(SMALL, [1, 1], objective="speed"), "not speed"),
        (lambda: search(TOO_HEAVY, [1, 1], 0, moves=50), "no partition found"),
        (lambda: vgg16.solve(TOO_HEAVY, [1, 1], 0), "2 layers over 2 ranks"),
    ],
)
def test_what_is_wrong_is_said(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
