"""Parts onto ranks, so that as little as possible travels between the nodes of a cluster.

The messages within a node go through its memory, those between nodes through the network. Which part of a partition is which
rank changes nothing else, if the ranks are equally fast.
"""

import numpy as np


def between_nodes(moved, rank_of_part, ranks_per_node):
    """How much of `moved` travels between nodes. moved: an array (parts, parts), what each part sends to each other one.

    rank_of_part: the rank of each part (parts,). Consecutive ranks are on the same node.
    """
    node = np.asarray(rank_of_part) // ranks_per_node
    return moved[node[:, None] != node].sum()


def map_to_nodes(moved, ranks_per_node, speeds=None):
    """The rank of each part (parts,), an int64 array, for which little travels between nodes.

    moved, ranks_per_node: as for `between_nodes`. speeds: those of the ranks; part p must get a rank as fast as rank p. None if
    all are equal. Nodes are filled one after another with parts that exchange most with those already there, and then parts of
    two nodes change places as long as that helps. It never is worse than part p on rank p.
    """
    parts = len(moved)
    speeds = np.ones(parts) if speeds is None else np.asarray(speeds, float)
    both = moved + moved.T
    starts = [np.arange(parts)]
    if (speeds == speeds[0]).all():
        starts.append(_filled(both, ranks_per_node))
    found = [_swapped(both, ranks, ranks_per_node, speeds) for ranks in starts]
    return min(found, key=lambda ranks: between_nodes(moved, ranks, ranks_per_node))


def _filled(both, ranks_per_node):
    """Ranks are given out in order: each to the part that exchanges most with the parts on the node so far."""
    parts = len(both)
    rank_of_part, free = np.full(parts, -1), np.ones(parts, bool)
    near = np.zeros(parts)
    for rank in range(parts):
        if rank % ranks_per_node == 0:
            near = both[free].sum(axis=0) * 1e-9  # of the first on a node: with those that are not placed yet
        part = int(np.where(free, near, -1).argmax())
        rank_of_part[part], free[part] = rank, False
        near = near + both[part]
    return rank_of_part


def _swapped(both, rank_of_part, ranks_per_node, speeds):
    """Two parts change ranks, those that help most, until no two are left that help."""
    rank_of_part = rank_of_part.copy()
    parts = np.arange(len(both))
    while True:
        node = rank_of_part // ranks_per_node
        with_node = both @ (node[:, None] == np.arange(node.max() + 1))  # what each part exchanges with each node
        gain = with_node[:, node] - with_node[parts, node][:, None]  # [i, j]: of part i at the node of part j
        gain = gain + gain.T - 2 * both
        gain[(node[:, None] == node) | (speeds[rank_of_part][:, None] != speeds[rank_of_part])] = 0
        first, second = np.unravel_index(gain.argmax(), gain.shape)
        if gain[first, second] <= 0:
            return rank_of_part
        rank_of_part[[first, second]] = rank_of_part[[second, first]]
