"""Simple partitions of a network, for comparison (Eserol 2019, section 5.1). All functions take a NetworkHypergraph, the number
of ranks and, for ranks that should get unequal shares, their speeds, and return the part of each vertex: an int64 array (V,).
The minibatch is where the first layer is, the loss where most outputs are."""

import numpy as np

from gridgrad.parallel.placement.partition import Partition


def layer_wise(model, ranks, speeds=None):
    """Every layer is at one rank, and those of a rank follow one another; the division is that of `_contiguous`."""
    speeds = _shares(ranks, speeds)
    vertices = _by_layer(model)
    work = np.array([model.hypergraph.weights[some].sum() for some in vertices])
    ends = _contiguous(work, speeds)
    parts = np.zeros(model.hypergraph.vertices, np.int64)
    for layer, some in enumerate(vertices):
        parts[some] = np.searchsorted(ends, layer, side="right")
    return _with_ends(model, parts, ranks)


def horizontal(model, ranks, speeds=None):
    """Every rank has an equal share of the filters or neurons of every layer, in rank order, and all channels of a filter."""
    parts = np.zeros(model.hypergraph.vertices, np.int64)
    for name, outputs in model.outputs.items():
        vertices = np.unique(outputs)
        share = Partition.weighted(len(vertices), tuple(_shares(ranks, speeds)))
        owners = np.repeat(np.arange(ranks), share.sizes)
        parts[vertices] = owners
        if name in model.pairs:
            parts[model.pairs[name][2]] = owners
    return _with_ends(model, parts, ranks)


def incremental(model, ranks, speeds=None):
    """A rank gets filter after filter, or in a fine grain channel after channel, until it has more than its share."""
    return _with_ends(model, _filled(model, np.concatenate(_by_layer(model)), ranks, speeds), ranks)


def random(model, ranks, speeds=None, seed=0):
    """As `incremental`, with all pieces in a random order: shares are even, and nothing is near what it needs."""
    order = np.random.default_rng(seed).permutation(np.concatenate(_by_layer(model)))
    return _with_ends(model, _filled(model, order, ranks, speeds), ranks)


METHODS = {"layer-wise": layer_wise, "horizontal": horizontal, "incremental": incremental, "random": random}


def _shares(ranks, speeds):
    return np.ones(ranks) / ranks if speeds is None else np.asarray(speeds, float) / np.sum(speeds)


def _by_layer(model):
    """The vertices of each layer, a list; in a fine grain filter by filter, and the sum of a filter behind its channels."""
    order = []
    for name, outputs in model.outputs.items():
        vertices = np.unique(outputs)
        if name in model.pairs:
            vertices = np.concatenate((model.pairs[name][2].T, vertices[:, None]), axis=1).ravel()
        order.append(vertices)
    return order


def _filled(model, order, ranks, speeds):
    """The parts if ranks are filled one after another with vertices in this order, each until it has more than its share."""
    done = np.cumsum(model.hypergraph.weights[order])
    parts, start, before = np.zeros(model.hypergraph.vertices, np.int64), 0, 0
    for rank, share in enumerate(_shares(ranks, speeds) * done[-1]):
        stop = len(order) if rank == ranks - 1 else min(len(order), np.searchsorted(done, before + share, side="right") + 1)
        parts[order[start:stop]] = rank
        start, before = stop, done[stop - 1] if stop else 0
    return parts


def _with_ends(model, parts, ranks):
    """Put the minibatch and the loss to their parts."""
    layers = list(model.outputs.values())
    parts[model.inputs] = parts[layers[0][0]]
    if model.loss is not None:
        parts[model.loss] = np.bincount(parts[layers[-1]], minlength=ranks).argmax()
    return parts


def _contiguous(work, speeds):
    """Where the layers of each rank end, int (ranks,). work: of each layer. The largest work / speed is the least; of several
    such divisions it is the one with the least sum of work^2 / speed."""
    before = np.concatenate(([0], np.cumsum(work, dtype=float)))
    loads = before[None, :] - before[:, None]  # [start, stop]
    loads[np.tri(len(before), k=-1, dtype=bool)] = np.inf

    def best(costs, join):
        """The ends with the least join of the ranks' costs. costs: for each rank [start, stop], or inf."""
        least, chosen = np.where(np.arange(len(before)) == 0, 0.0, np.inf), []
        for cost in costs:
            joined = join(least[:, None], cost)
            chosen.append(joined.argmin(axis=0))
            least = joined.min(axis=0)
        ends = [len(work)]
        for starts in reversed(chosen[1:]):
            ends.insert(0, int(starts[ends[0]]))
        return np.array(ends), least[-1]

    _, most = best((loads / speed for speed in speeds), np.maximum)
    allowed = most * (1 + 1e-12)
    return best((np.where(loads / speed <= allowed, loads**2 / speed, np.inf) for speed in speeds), np.add)[0]
