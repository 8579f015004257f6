"""A good partition of a network, with one call: what `--plan hypergraph` uses.

In a chain of layers the filters of a layer are interchangeable, so a search over their numbers finds the best partitions of the
coarse grain. For other networks and the fine grain there is a partitioner of hypergraphs. It finds better partitions where the
filters of each layer are joined to a few blocks, although the full hypergraph allows all of these partitions, and more. So
hypergraphs with several numbers of blocks are partitioned, and the best partition is taken and refined by annealing.
"""

from contextlib import suppress
from functools import partial
from math import ceil

import numpy as np

from gridgrad.parallel.partitioning import chains, count_search, fine_search, mt_kahypar, naive
from gridgrad.parallel.partitioning.measures import OBJECTIVES, measure
from gridgrad.parallel.partitioning.network_hypergraph import GRAINS, of_network
from gridgrad.parallel.partitioning.owner_file import SUFFIX, read_owners
from gridgrad.parallel.partitioning.part_limits import limits_of
from gridgrad.parallel.partitioning.refine import refine
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH

BLOCKS = {"coarse": (8, 16, 32), "fine": (8, 16)}  # of a layer, at least
MOVES = 200_000  # of `refine`
LARGEST_BLOCK = 0.35  # the most work of a block, in shares of a rank


def partition(
    net, ranks, grain="coarse", speeds=None, epsilon=0.1, objective="volume", seed=0, seconds=None, neuron_blocks=64
):  # fmt: skip
    """The Owners of a network for so many ranks, so that little is sent and no rank has more work than it should.

    net: a Sequential with an `input_shape`. grain: "coarse" or "fine". speeds: the shares of the ranks are as these numbers;
    None if they are equal. epsilon: the part of its share by which a rank may have too much work; where no partition is so
    even, the most even one that was found is returned. objective: what to minimise: "volume", the elements sent; "messages";
    or "largest", the most that one rank sends and receives. seed: of the random choices. seconds: as for `of_network`.
    neuron_blocks: the most blocks of a Linear layer, where hypergraphs are partitioned. The same arguments give the same
    partition.
    Raises ValueError, in one line, for arguments that are none, and without a partitioner.
    """
    if grain not in GRAINS:
        raise ValueError(f"grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective '{objective}' is unknown: use {', '.join(OBJECTIVES)}")
    limits_of(np.ones(1), ranks, epsilon, speeds)  # refuses bad speeds
    coarse = None
    if chain := chains.chain_of(net, seconds):
        with suppress(count_search.TooFull):
            counts = count_search.search(chain[0], np.ones(ranks) if speeds is None else speeds, epsilon, objective, seed)
            coarse = chains.owners(counts, chain[1])
    coarse = coarse or contracted(net, ranks, "coarse", speeds, epsilon, objective, seed, seconds, neuron_blocks)
    if grain == "coarse":
        return coarse
    try:
        blocks = partial(of_network, net, grain, neuron_blocks=neuron_blocks, seconds=seconds)
        fine = fine_search.search(blocks, ranks, epsilon, speeds, objective, seed, moves=MOVES)
    except mt_kahypar.Overfilled:
        fine = contracted(net, ranks, grain, speeds, epsilon, objective, seed, seconds, neuron_blocks)
    whole = of_network(net, grain, neuron_blocks=None)  # a partition of the coarse grain is also one of the fine grain
    return min((fine, coarse), key=lambda owners: cost(whole, whole.parts(owners), ranks, speeds, objective))


def cost(model, parts, ranks, speeds, objective):
    """What is minimised, a tuple. model: a NetworkHypergraph. parts: the part of each vertex."""
    found = measure(model, parts, ranks, speeds)
    return tuple(getattr(found, name) for name in (OBJECTIVES[objective], *OBJECTIVES.values()))


def contracted(net, ranks, grain, speeds, epsilon, objective, seed, seconds, neuron_blocks):
    """The best Owners of the `candidates`, or the most even ones, refined. The arguments are those of `partition`."""

    def value(candidate):
        model, parts = candidate
        limits, _ = limits_of(model.hypergraph.weights, ranks, epsilon, speeds)
        excess = (model.hypergraph.part_weights(parts, ranks) / limits).max()
        return (max(1.001, excess), *cost(model, parts, ranks, speeds, objective))

    model, parts = min(candidates(net, ranks, grain, speeds, epsilon, seed, seconds, neuron_blocks), key=value)
    if objective == "volume" and ranks > 1:
        parts = refine(model.hypergraph, parts, ranks, epsilon, speeds, seed, MOVES)
    return model.owners(parts, ranks)


def candidates(net, ranks, grain, speeds, epsilon, seed, seconds, neuron_blocks):
    """Yield pairs (NetworkHypergraph, the part of each vertex), of which `contracted` takes the best one.

    With the fine grain, partitions of the coarse one are among them: each of them is also one of the fine grain.
    """
    layers = of_network(net, "coarse", 1, 1, seconds)
    work = {name: layers.hypergraph.weights[vertices[0]] for name, vertices in layers.outputs.items()}
    limits, _ = limits_of(layers.hypergraph.weights, ranks, epsilon, speeds)
    share = max(1, limits.min() / (1 + epsilon))
    for its_grain in GRAINS[: GRAINS.index(grain) + 1]:
        for least in BLOCKS[its_grain]:
            blocks = {name: max(least, ceil(some / (LARGEST_BLOCK * share))) for name, some in work.items()}
            neurons = {name: min(most, neuron_blocks or most) for name, most in blocks.items()}
            model = of_network(net, its_grain, blocks, neurons, seconds)
            yield from ((model, method(model, ranks, speeds)) for method in (naive.layer_wise, naive.incremental))
            for preset in mt_kahypar.PRESETS:
                try:
                    yield model, mt_kahypar.partition(model.hypergraph, ranks, epsilon, speeds, seed, preset)
                except mt_kahypar.Overfilled as overfilled:
                    yield model, overfilled.parts


def is_partition(plan):
    """Whether the text of a plan stands for a partition: "hypergraph", "hypergraph:fine", or the name of a file of Owners.

    ValueError for another word behind the colon.
    """
    word, _, grain = plan.partition(":")
    if word == HYPERGRAPH and grain not in ("", *GRAINS):
        raise ValueError(f"plan '{plan}': the grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    return word == HYPERGRAPH or plan.endswith(SUFFIX)


def owners_of_plan(plan, net, ranks, speeds=None):
    """The Owners that the text of a plan stands for, see `is_partition`. ValueError or OSError if it does not fit.

    net: a Sequential. ranks: along the axis `model`. speeds: see `partition`.
    """
    if plan.endswith(SUFFIX):
        owners = read_owners(plan, net)
        if owners.ranks != ranks:
            raise ValueError(
                f"{plan}: it is for {owners.ranks} ranks along the axis model, not for {ranks}: make one for {ranks}"
            )
        return owners
    _, _, grain = plan.partition(":")
    return partition(net, ranks, grain or "coarse", speeds)
