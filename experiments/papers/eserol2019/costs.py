"""What a partition of VGG16 costs: as the hypergraph counts it, and by way of a star, as the thesis does."""

from dataclasses import dataclass

import numpy as np

from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.parallel.partitioning.network_hypergraph import measure


@dataclass(frozen=True)
class Costs:
    """Of a partition. Volumes are in the unit of the thesis, of a forward pass.

    loads: the work of each rank, (ranks,). volume: connectivity-1. star: by way of a root for each layer. largest_layer: the
    most that a layer sends, connectivity-1. most_broadcast: the most that a root sends. messages: of a forward pass, None if
    not counted. most_moved: the most that one rank sends and receives, which is what it sends in a training step.
    """

    loads: np.ndarray
    volume: float
    star: float
    largest_layer: float
    most_broadcast: float
    messages: int | None = None
    most_moved: float | None = None

    @property
    def balance(self):
        """The most work of a rank over the mean."""
        return float(self.loads.max() / self.loads.mean())

    @property
    def at_work(self):
        """The work of the ranks that have any: the thesis' least and mean work, and its mean volume, are of these."""
        return self.loads[self.loads > 0]


def costs_of(owners, grain, groups=1, best_root=True):
    """The Costs of Owners, on the full hypergraph. best_root: see `star`."""
    model, ranks = vgg16.model(grain, None, groups), owners.ranks
    found = measure(model, model.parts(owners), ranks)
    loads = found.work * sum(vgg16.WORKS) / ranks
    by_star, most = star(owners, best_root)
    largest, moved = vgg16.melements([found.largest_array, found.most_moved]).tolist()
    return Costs(loads, float(vgg16.melements(found.volume)), by_star, largest, most, found.messages, moved)


def horizontal(ranks):
    """The Costs of dividing every layer into equal parts, the fully connected ones too, which are not counted as sent."""
    unpooled = vgg16.melements(filters_times(vgg16.SIDES) + sum(vgg16.NEURONS)).item()
    pooled = vgg16.melements(filters_times(vgg16.POOLED) + np.prod(vgg16.IMAGE)).item()
    largest = vgg16.melements(max(f * side**2 for f, side in zip(vgg16.FILTERS, vgg16.POOLED))).item() * (ranks - 1)
    volume = (ranks - 1) * pooled
    return Costs(
        np.full(ranks, sum(vgg16.WORKS) / ranks), volume, volume + (1 - 1 / ranks) * unpooled, largest, largest
    )  # fmt: skip


def filters_times(sides):
    """The elements of all maps of convolutions whose maps have these sides."""
    return sum(filters * side**2 for filters, side in zip(vgg16.FILTERS, sides))


def star(owners, best_root):
    """(what travels by way of a root for each layer, the most that a root sends of a layer), in the unit of the thesis.

    Every map, or partial sum of one, is sent to the root of its layer as it was made, and from there, pooled, to each other
    rank that computes any of the next layer. best_root: whether the root is the rank for which this is least, or where the last
    filter is made.
    """
    makers = [made_at(owners, name) for name in vgg16.layer_names()]
    users = [some.any(0) for some in makers]
    unpooled = [side**2 for side in vgg16.SIDES] + [1] * len(vgg16.NEURONS)
    pooled = [side**2 for side in vgg16.POOLED] + [1] * len(vgg16.NEURONS)
    total = broadcast = np.prod(vgg16.IMAGE) * (users[0].sum() - 1)
    for made, need, size, sent in zip(makers, users[1:], unpooled, pooled):
        gathered = size * (made.sum() - made.sum(0))
        from_root = sent * len(made) * (need.sum() - need)
        root = (gathered + from_root).argmin() if best_root else made[-1].nonzero()[0][-1]
        total += gathered[root] + from_root[root]
        broadcast = max(broadcast, from_root[root])
    return float(vgg16.melements(total)), float(vgg16.melements(broadcast))


def made_at(owners, name):
    """Whether a rank makes a map of a layer, or a partial sum of it: a bool array (maps, ranks)."""
    pairs = owners.pairs.get(name, owners.outputs[name][None])
    made = np.zeros((pairs.shape[1], owners.ranks), bool)
    made[np.broadcast_to(np.arange(pairs.shape[1]), pairs.shape), pairs] = True
    return made
