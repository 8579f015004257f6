"""Good partitions in the fine grain: channels of filters, of which a large network has millions.

Partitioning all of them takes minutes and ends far from the best. But good partitions are made of large pieces: a rank takes
some consecutive filters of a layer with some channels, so a few blocks of filters a layer are enough to describe them. The
contracted hypergraph, whose vertices are such blocks, is partitioned in about a second. It counts exactly what its
partitions send, so many can be tried, with several numbers of blocks and seeds, and the best is taken.
"""

from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.measures import OBJECTIVES, measure
from gridgrad.parallel.partitioning.refine import refine

BLOCKS = 8, 12, 16  # of the filters of a layer
SEEDS = 2  # for each number of blocks
CYCLES = 6  # of improvement, each some hundredths of a second
MOVES = 1_000_000  # of `refine`


def search(contracted, ranks, epsilon=0.1, speeds=None, objective="volume", seed=0, blocks=BLOCKS, moves=MOVES):
    """The best `Owners` that were found, in which no rank has more work than `limits_of` says.

    contracted: a function of the number of blocks that returns the NetworkHypergraph, such as
    `lambda blocks: of_network(net, "fine", blocks)`. objective: one of OBJECTIVES of `measures.py`: each partition is made
    for a small volume, and this is what the best one is chosen by. seed: other seeds may find better ones. blocks: the
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
            measures = measure(made, parts, ranks, speeds)
            found = getattr(measures, OBJECTIVES[objective]), measures.volume
            if best is None or found < best:
                best, owners = found, made.owners(parts, ranks)
    if owners is None:
        raise failure
    return owners
