"""Counts of filters: what they cost, against the hypergraph itself; the search and the proof, against all partitions."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.parallel.partitioning import chains
from gridgrad.parallel.partitioning.chains import Chain, capacities, search

SMALL = Chain([1, 3, 2, 4, 1], [0, 2, 3, 1, 2], [5, 4, 3, 2, 0])


def random_counts(chain, ranks, seed):
    random = np.random.default_rng(seed)
    return np.array([np.bincount(random.integers(ranks, size=n), minlength=ranks) for n in chain.filters])


def by_definition(chain, counts):
    """Volume, messages, and what each rank sends and receives, net by net: a filter and all filters of the next layer."""
    ranks, volume, messages = counts.shape[1], 0.0, 0
    sent, received = np.zeros(ranks), np.zeros(ranks)
    layers = [np.repeat(np.arange(ranks), row) for row in counts]
    for here, after, cost in zip(layers[:-1], layers[1:], chain.costs[:-1], strict=True):
        pairs = set()
        for owner in here:
            parts = {owner, *after}
            volume += cost * (len(parts) - 1)
            sent[owner] += cost * (len(parts) - 1)
            for r in parts - {owner}:
                received[r] += cost
                pairs.add((owner, r))
        messages += len(pairs)
    return volume, messages, sent, received


@pytest.mark.parametrize("seed", range(5))
def test_what_counts_cost_is_what_the_hypergraph_says(seed):
    counts = SMALL.check(random_counts(SMALL, 3, seed))
    volume, messages, sent, received = by_definition(SMALL, counts)
    assert SMALL.volume(counts) == pytest.approx(volume)
    assert SMALL.messages(counts).sum() == messages
    assert SMALL.sent(counts) == pytest.approx(sent) and SMALL.received(counts) == pytest.approx(received)
    assert SMALL.loads(counts).sum() == SMALL.work


@pytest.mark.parametrize("objective", chains.STATES)
def test_energies_change_as_what_they_stand_for(objective):
    """The energy of a state, summed up over random moves, is the one computed anew."""
    chain, random = SMALL, np.random.default_rng(1)
    counts = random_counts(chain, 3, 2)
    state, total = chains.STATES[objective](chain, capacities(chain, [1] * 3, 9.0), counts), 0.0
    start = whole_energy(objective, chain, counts, state.unit)
    for _ in range(200):
        layer = random.integers(len(chain.filters)).item()
        a, b = random.choice(state.owners[layer]).item(), random.integers(3).item()
        if a != b:
            k = random.integers(1, state.counts[layer][a] + 1).item()
            state.move = layer, a, b, k
            total += state.change(*state.move)
            state.accept()
    counts = state.copy()
    assert state.loads == pytest.approx(chain.loads(counts).tolist())
    assert [sorted(found) for found in state.owners] == [np.flatnonzero(row).tolist() for row in counts]
    assert start + total == pytest.approx(whole_energy(objective, chain, counts, state.unit))


def whole_energy(objective, chain, counts, unit):
    volume = chain.volume(counts) / unit
    return {
        "volume": volume,
        "messages": chain.messages(counts).sum() + chains.Messages.VOLUME * volume,
        "largest": chains.norm((chain.sent(counts) + chain.received(counts)) / unit),
    }[objective]


def all_counts(chain, ranks):
    rows = [[row for row in product(range(n + 1), repeat=ranks) if sum(row) == n] for n in chain.filters]
    return map(np.array, product(*rows))


@pytest.mark.parametrize(("speeds", "epsilon"), [([1, 1], 0.1), ([2, 1], 0.1), ([1, 1, 1], 0.25)])
def test_search_and_proof_find_the_best_of_all_partitions(speeds, epsilon):
    most = capacities(SMALL, speeds, epsilon) * (1 + 1e-9)
    fitting = [counts for counts in all_counts(SMALL, len(speeds)) if (SMALL.loads(counts) <= most).all()]
    best = min(map(SMALL.volume, fitting))
    exact = vgg16.solve(SMALL, speeds, epsilon)
    assert exact.proved and exact.volume == pytest.approx(best) == pytest.approx(exact.bound)
    found = {objective: search(SMALL, speeds, epsilon, objective, moves=20_000) for objective in chains.STATES}
    for counts in (exact.counts, *found.values()):
        assert (SMALL.loads(SMALL.check(counts)) <= most).all()
    assert SMALL.volume(found["volume"]) == pytest.approx(best)
    assert SMALL.messages(found["messages"]).sum() == min(SMALL.messages(counts).sum() for counts in fitting)
    largest = lambda counts: (SMALL.sent(counts) + SMALL.received(counts)).max()  # noqa: E731
    assert largest(found["largest"]) <= 1.1 * min(map(largest, fitting))


@pytest.mark.parametrize(("ranks", "volume"), [(2, 15.3125), (4, 45.9375), pytest.param(8, 243, marks=pytest.mark.long)])
def test_vgg16_in_the_units_of_the_thesis(ranks, volume):
    chain = vgg16.chain_of_layers()
    counts = search(chain, [1] * ranks)
    assert chain.volume(chain.check(counts)) <= volume + 1e-9
    assert chain.loads(counts).max() / chain.work * ranks <= 1.1
    assert (search(chain, [1] * ranks, moves=2000) == search(chain, [1] * ranks, moves=2000)).all()
    if ranks == 2:
        exact = vgg16.solve(chain, [1] * ranks)
        assert exact.proved and exact.volume == volume


def test_a_filter_heavier_than_a_share_has_a_rank_that_may_have_it():
    chain = vgg16.chain_of_layers()
    most = capacities(chain, [1] * 128, 0.1)
    assert np.sort(most)[-2:] == pytest.approx([1.1 * chain.work / 128, 546])
    counts = chains.in_order(chain, most)
    assert counts[(["input", *vgg16.LAYERS]).index("FC1"), most.argmax()] == 1


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="add up to its filters"):
        SMALL.check(np.ones((5, 2)))
    with pytest.raises(ValueError, match="a row for each of the 5 layers"):
        SMALL.check(np.ones((4, 2)))
    with pytest.raises(ValueError, match="numbers above 0, one for each part"):
        search(SMALL, [1, 0])
    with pytest.raises(ValueError, match="must be at least 0"):
        search(SMALL, [1, 1], -0.1)
    with pytest.raises(ValueError, match="objective: volume, messages, largest, not speed"):
        search(SMALL, [1, 1], objective="speed")
    with pytest.raises(ValueError, match="no partition found"):
        search(Chain([5, 1], [1, 0], [1, 1]), [1, 1], 0, moves=50)
    with pytest.raises(ValueError, match="no partition of 2 layers over 2 ranks"):
        vgg16.solve(Chain([5, 1], [1, 0], [1, 1]), [1, 1], 0)
