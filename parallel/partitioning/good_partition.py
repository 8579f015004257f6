"""A good partition of a network, with one call: what `--plan hypergraph` uses. In a chain of layers the filters of a layer are
interchangeable, so a search over their numbers finds the best partitions of the coarse grain. For other networks and the fine
grain there is a partitioner of hypergraphs. It does better where the filters of each layer are joined to a few blocks, since a
good partition gives a rank some consecutive filters with some channels. Such a hypergraph counts exactly what its partitions
send and takes about a second: several numbers of blocks and seeds are tried, and the best is refined by annealing."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from gridgrad.parallel.partitioning import count_search, mt_kahypar, naive
from gridgrad.parallel.partitioning.hypergraph import limits_of
from gridgrad.parallel.partitioning.measures import OBJECTIVES, measure
from gridgrad.parallel.partitioning.network_hypergraph import GRAINS, of_network
from gridgrad.parallel.partitioning.owner_file import SUFFIX, read_owners
from gridgrad.parallel.partitioning.refine import refine
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH

BLOCKS = {"coarse": (8, 16, 32), "fine": (8, 16)}  # of a layer, at least
MOVES = 200_000  # of `refine`
LARGEST_BLOCK = 0.35  # the most work of a block, in shares of a rank
FINE_BLOCKS, FINE_MOVES = (8, 12, 16), 1_000_000  # of `fine_search`: blocks of the filters of a layer, and moves of `refine`
SEEDS = 2  # for each of these numbers of blocks
CYCLES = 6  # of improvement, each some hundredths of a second


@dataclass(frozen=True)
class PartitionSearch:
    """What a partition is searched for, in either grain. ValueError for arguments that are none."""

    net: Any  # a Sequential with an `input_shape`
    ranks: int
    speeds: Any = None  # the shares of the ranks are as these numbers; None if they are equal
    epsilon: float = 0.1  # how much too much work a rank may have, in shares; if impossible, the most even partition is taken
    objective: str = "volume"  # to minimise: the elements sent; "messages"; or "largest", what one rank sends and receives
    seed: int = 0
    seconds: dict | None = None  # as for `of_network`
    neuron_blocks: int | None = 64  # the most blocks of a Linear layer, where hypergraphs are partitioned

    def __post_init__(self):
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective '{self.objective}' is unknown: use {', '.join(OBJECTIVES)}")
        limits_of(np.ones(1), self.ranks, self.epsilon, self.speeds)  # refuses bad speeds

    def coarse(self):
        """The best Owners of the coarse grain."""
        if chain := count_search.chain_of(self.net, self.seconds):
            speeds = np.ones(self.ranks) if self.speeds is None else self.speeds
            with suppress(count_search.TooFull):
                counts = count_search.search(chain[0], speeds, self.epsilon, self.objective, self.seed)
                return count_search.owners(counts, chain[1])
        return self.contracted("coarse")

    def fine(self):
        """The best Owners of the fine grain, of which the partitions of the coarse grain are some."""
        coarse = self.coarse()
        blocks = partial(of_network, self.net, "fine", neuron_blocks=self.neuron_blocks, seconds=self.seconds)
        try:
            fine = fine_search(blocks, self.ranks, self.epsilon, self.speeds, self.objective, self.seed, moves=MOVES)
        except mt_kahypar.Overfilled:
            fine = self.contracted("fine")
        whole = of_network(self.net, "fine", neuron_blocks=None)
        return min((fine, coarse), key=lambda owners: self.cost(whole, whole.parts(owners)))

    def cost(self, model, parts):
        """What is minimised, a tuple: the objective, then all of them."""
        found = measure(model, parts, self.ranks, self.speeds)
        return tuple(getattr(found, name) for name in (OBJECTIVES[self.objective], *OBJECTIVES.values()))

    def contracted(self, grain):
        """The best Owners of the `candidates`, or the most even ones, refined."""

        def value(candidate):
            model, parts = candidate
            limits, _ = limits_of(model.hypergraph.weights, self.ranks, self.epsilon, self.speeds)
            excess = (model.hypergraph.part_weights(parts, self.ranks) / limits).max()
            return (max(1.001, excess), *self.cost(model, parts))

        model, parts = min(self.candidates(grain), key=value)
        if self.objective == "volume" and self.ranks > 1:
            parts = refine(model.hypergraph, parts, self.ranks, self.epsilon, self.speeds, self.seed, MOVES)
        return model.owners(parts, self.ranks)

    def candidates(self, grain):
        """Yield pairs (NetworkHypergraph, the part of each vertex) of a grain, and for the fine one of the coarse one too."""
        layers = of_network(self.net, "coarse", 1, 1, self.seconds)
        work = {name: layers.hypergraph.weights[vertices[0]] for name, vertices in layers.outputs.items()}
        limits, _ = limits_of(layers.hypergraph.weights, self.ranks, self.epsilon, self.speeds)
        share = max(1, limits.min() / (1 + self.epsilon))
        for its_grain in GRAINS[: GRAINS.index(grain) + 1]:
            for least in BLOCKS[its_grain]:
                blocks = {name: max(least, ceil(some / (LARGEST_BLOCK * share))) for name, some in work.items()}
                neurons = {name: min(most, self.neuron_blocks or most) for name, most in blocks.items()}
                model = of_network(self.net, its_grain, blocks, neurons, self.seconds)
                yield from ((model, method(model, self.ranks, self.speeds)) for method in (naive.layer_wise, naive.incremental))
                given = model.hypergraph, self.ranks, self.epsilon, self.speeds, self.seed
                for preset in mt_kahypar.PRESETS:
                    try:
                        yield model, mt_kahypar.partition(*given, preset)
                    except mt_kahypar.Overfilled as overfilled:
                        yield model, overfilled.parts


def fine_search(contracted, ranks, epsilon=0.1, speeds=None, objective="volume", seed=0, blocks=FINE_BLOCKS, moves=FINE_MOVES):
    """The best Owners found in the fine grain, in which no rank has more work than `limits_of` says; Overfilled if none was
    found. contracted: a function of the number of blocks to the NetworkHypergraph. blocks: the numbers of blocks to try."""
    best, owners, failure = None, None, None
    for count in blocks:
        made, candidates = contracted(count), []
        graph = made.hypergraph
        for attempt in range(SEEDS * seed, SEEDS * (seed + 1)):
            try:
                candidates.append(mt_kahypar.partition(graph, ranks, epsilon, speeds, attempt, "HIGHEST_QUALITY", CYCLES))
            except mt_kahypar.Overfilled as error:  # a part became too large, as it does where blocks are large: others may fit
                failure = error
        if candidates and ranks > 1 and moves:
            least = min(candidates, key=lambda parts: graph.volume(parts, ranks))
            candidates.append(refine(graph, least, ranks, epsilon, speeds, seed, moves))
        for parts in candidates:
            measures = measure(made, parts, ranks, speeds)
            found = getattr(measures, OBJECTIVES[objective]), measures.volume
            if best is None or found < best:
                best, owners = found, made.owners(parts, ranks)
    if owners is None:
        raise failure
    return owners


def partition(net, ranks, grain="coarse", speeds=None, **options):
    """The Owners of a network, so that little is sent and no rank has more work than it should. options: of a PartitionSearch.
    The same arguments give the same partition. ValueError, in one line, for bad ones, and without a partitioner."""
    if grain not in GRAINS:
        raise ValueError(f"grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    search = PartitionSearch(net, ranks, speeds, **options)
    return search.coarse() if grain == "coarse" else search.fine()


def is_partition(plan):
    """Whether the text of a plan stands for a partition: "hypergraph", "hypergraph:fine", or the name of a file of Owners."""
    word, _, grain = plan.partition(":")
    if word == HYPERGRAPH and grain not in ("", *GRAINS):
        raise ValueError(f"plan '{plan}': the grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    return word == HYPERGRAPH or plan.endswith(SUFFIX)


def owners_of_plan(plan, net, ranks, speeds=None):
    """The Owners for the ranks of the axis `model`, of the text of a plan; ValueError or OSError if it does not fit."""
    if plan.endswith(SUFFIX):
        owners = read_owners(plan, net)
        if owners.ranks != ranks:
            raise ValueError(
                f"{plan}: it is for {owners.ranks} ranks along the axis model, not for {ranks}: make one for {ranks}"
            )
        return owners
    _, _, grain = plan.partition(":")
    return partition(net, ranks, grain or "coarse", speeds)
