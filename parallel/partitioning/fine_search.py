"""Good partitions in the fine grain: channels of filters, of which a large network has millions.

Partitioning all of them takes minutes and ends far from the best. But good partitions are made of large pieces: a rank takes
some consecutive filters of a layer with some channels, so a few blocks of filters a layer are enough to describe them. The
contracted hypergraph, whose vertices are such blocks, is partitioned in about a second. It counts exactly what its
partitions send, so many can be tried, with several numbers of blocks and seeds, and the best is taken.
"""

import numpy as np

from parallel.partitioning import mt_kahypar
from parallel.partitioning.refine import refine

BLOCKS = 8, 12, 16  # of the filters of a layer
SEEDS = 2  # for each number of blocks
CYCLES = 6  # of improvement, each some hundredths of a second
MOVES = 1_000_000  # of `refine`


def search(contracted, ranks, epsilon=0.1, speeds=None, objective="volume", seed=0, blocks=BLOCKS, moves=MOVES):
    """The best `Owners` that were found, in which no rank has more work than `mt_kahypar.limits_of` says.

    contracted: a function of the number of blocks that returns the NetworkHypergraph, such as
    `lambda blocks: of_network(net, "fine", blocks)`. objective: "volume", "messages" or "largest" (`cost`): each partition is
    made for a small volume, and this is what the best one is chosen by. seed: other seeds may find better ones. blocks: the
    numbers of blocks to try. moves: of `refine`, with which the best partition of each number of blocks is improved.
    Raises Overfilled if nothing was found, and ValueError as `mt_kahypar.partition` does.
    """
    best, owners, failure = None, None, None
    for count in blocks:
        made, candidates = contracted(count), []
        for attempt in range(SEEDS * seed, SEEDS * (seed + 1)):
            try:
                candidates.append(mt_kahypar.partition(
                    made.hypergraph, ranks, epsilon, speeds, attempt, preset="HIGHEST_QUALITY", cycles=CYCLES
                ))  # fmt: skip
            except mt_kahypar.Overfilled as error:  # a part became too large, as it does where blocks are large: others may fit
                failure = error
        if candidates and ranks > 1 and moves:
            least = min(candidates, key=lambda parts: made.hypergraph.volume(parts, ranks))
            candidates.append(refine(made.hypergraph, least, ranks, epsilon, speeds, seed, moves))
        for parts in candidates:
            found = cost(made.hypergraph, parts, ranks, objective)
            if best is None or found < best:
                best, owners = found, made.owners(parts, ranks)
    if owners is None:
        raise failure
    return owners


def cost(graph, parts, ranks, objective):
    """What a partition of a Hypergraph costs by an objective, and the volume behind it, for those that are equal by it.

    objective: "volume", all that is sent; "messages", their number; "largest", what the rank sends and receives that sends and
    receives most. parts: the part of each vertex. ValueError for another objective.
    """
    traffic = graph.traffic(parts, ranks)
    volume = int(traffic.sum())
    if objective == "volume":
        return volume, volume
    if objective == "messages":
        return int(np.count_nonzero(traffic)), volume
    if objective == "largest":
        total = traffic.sum(0)
        return int((total.sum(0) + total.sum(1)).max()), volume
    raise ValueError(f"objective: volume, messages, largest, not {objective}")
