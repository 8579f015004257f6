"""The plan "hypergraph": any partition of the filters, or of single channels of filters, over the axis `model`.

An array of activations is at the owners of its channels. Before each layer with weights a rank receives the channels that its
part of the layer needs, each once and in one message from each rank that owns some of them; in backward the gradients return
the same way and are added.

| array                                          | coarse grain            | fine grain                            |
|------------------------------------------------|-------------------------|---------------------------------------|
| activations between layers                     | `Shard(C, owned)`       | `Shard(C, owned)`                     |
| input of the layer                             | `Copies(C, needed)`     | `Copies(C, needed)`                   |
| weight                                         | `Tile(needed, owned)`   | `Shard(-1, pairs)`: `PairedLayer`     |
| output of the layer                            | `Shard(C, owned)`       | `PartialShard(C, made)`               |
| behind it                                      | the same                | `Shard(C, owned)`: the sums are added |

Several ranks need the same channel, or make partial sums of the same feature map. All sends are exchanges of the table of
moves. Pooling, normalisation and activations run at the owner of a channel, before it is sent. All
ranks have the input of the network; of a normalisation that comes first each has an even part of the channels. So a parameter
is at one rank, and no gradient has to be summed over the axis: asynchronous pipelines need that. Where several branches take
one array, a rank receives what any of them needs once. All outputs go to one rank, which computes the loss. (Eserol 2019,
chapter 3; the thesis did not execute the fine grain.)
"""

import numpy as np

from gridgrad.nn.layers.sparse_linear import SparseLinear
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.placement.partition import Partition, Split, indices, union
from gridgrad.parallel.placement.placements import AtRank, C, Copies, N, PartialShard, Replicate, Shard, Tile
from gridgrad.parallel.placement.plan import OUTPUTS, Plan
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.add_bias import AddBias
from gridgrad.parallel.plans.owners import Owners
from gridgrad.parallel.plans.paired_layer import PairedLayer, Pairs, Product, rectangles

HYPERGRAPH = "hypergraph"


class PartitionOfNetwork(Plan):
    """All layers have it. The owners that a Placer takes are an Owners."""

    word, use = HYPERGRAPH, "hold the filters that a partition gives them"
    input, output, weight = C, C, OUTPUTS
    mixes = sums_gradients = False
    divides_apart = needs_owners = True
    axes = BATCH, MODEL

    def check(self, text, grid):
        if grid.sizes[MODEL] > 1:  # otherwise there is nothing to own
            super().check(text, grid)

    def checked_owners(self, owners, layers, grid):
        ranks = grid.sizes[MODEL]
        if ranks == 1:
            return {}
        if not isinstance(owners, Owners):
            raise ValueError(
                f"plan '{self.word}' needs owners: those of a file, or of parallel.partitioning.good_partition.partition"
            )
        if owners.ranks != ranks:
            raise ValueError(
                f"owners: the partition is for {owners.ranks} ranks, the axis {MODEL} has {ranks}: make one for {ranks}"
            )
        owners.check(layers)
        for layer in layers:
            if layer.name in owners.pairs and isinstance(layer, SparseLinear):
                raise ValueError(f"owners: layer {layer.name} {layer!r} is sparse and has no fine grain: leave its pairs out")
        return owners

    def start(self, placer, axis):
        return Replicate()

    def place(self, placer, axis, layer):
        """The input of a layer comes to the ranks that need it, and each holds its part of the weight."""
        (place_pairs if layer.name in placer.owners.pairs else place_filters)(placer, axis, layer)
        return True

    def starts_of_branches(self, placer, axis, branches, name, added):
        """A channel is sent to a rank once, also if several branches need it there.

        A branch that begins with a layer with weights needs the inputs of that layer, and an empty branch whose output is added
        to that of the first needs the channels that the first one ends with. Any other branch begins with what a rank owns.
        """
        owned = placer.at[axis]
        if owned == Replicate():
            return [owned] * len(branches)
        starts = []
        for branch in branches:
            start = owned
            if branch and branch[0].kind:
                start = owned.needing(needed_and_made(placer.owners, branch[0])[0])
            elif starts and not branch and added:
                first = placer.fork()
                first.place(branches[0])
                start = first.at[axis]
            starts.append(start)
        parts = zip(*(start.partition.parts for start in (owned, *starts)))
        placer.move(axis, owned.needing(Partition.of(owned.partition.length, tuple(map(union, parts)))), name)
        return starts

    def join(self, placer, axis, branches, name):
        """The concatenated channels are where those of the branches are."""
        apart = [branch for branch in branches if branch.at[axis] == Replicate()]
        if len(apart) < len(branches):
            for branch in apart:  # of what every rank has, each takes a part
                branch.move(axis, branch.shard(axis, C), name)
            placer.at[axis] = Shard(C, side_by_side([branch.at[axis].partition for branch in branches]))

    def finish(self, placer, axis):
        """Bring all outputs of the network to the rank that computes the loss."""
        ranks, rank = placer.grid.sizes[axis], placer.owners.loss
        placer.move(axis, Shard(C, Partition.at_rank(placer.shape[-1], ranks, rank)), "output")
        placer.move(axis, AtRank(N, Split.at_rank(ranks, rank)), "output")


def place_filters(placer, axis, layer):
    """Place a layer with a coarse grain: a rank holds the filters that it owns. The names: see the table above."""
    needed, owned = needed_and_made(placer.owners, layer)
    bring(placer, axis, needed, layer)
    weight, bias = placer.layout_of(layer.weight, {axis: Tile(needed, owned)}), bias_layout(placer, axis, owned, layer)
    placer.append(layer.placed(weight=weight, bias=bias), layer.name)
    placer.at[axis] = Shard(C, owned)


def place_pairs(placer, axis, layer):
    """Place a layer with a fine grain: the products, the sums of what they make, and the bias."""
    owners, owned = placer.owners.pairs[layer.name], placer.owners.partition(layer.name)
    rank = placer.grid.coordinates[axis]
    needed, made = needed_and_made(placer.owners, layer)
    bring(placer, axis, needed, layer)
    held = Shard(-1, Partition.owned(owners.ravel(), placer.owners.ranks))
    pairs = Pairs(layer.weight)
    pairs = pairs.placed(placer.layout_of(pairs, {axis: held}))
    mine = [indices(partition.part(rank)) for partition in (needed, made, held.partition)]
    products = [Product(layer, rows, columns, *mine) for rows, columns in rectangles(owners == rank)]
    after = layer.output_shape(placer.shape)
    placer.append(PairedLayer(pairs, products, needed.size(rank), made.size(rank), after), layer.name)
    if made != owned:
        sums = PartialShard(C, made), Shard(C, owned)
        placer.append(Redistribute(placer.grid.group(axis), *sums, after, placer.rows_along(axis)), layer.name)
    placer.at[axis] = Shard(C, owned)
    if layer.bias in layer.parameters:
        placer.append(AddBias(layer.bias.placed(bias_layout(placer, axis, owned, layer))), layer.name)


def bring(placer, axis, needed, layer):
    """Bring the input of a layer to the ranks that need it. needed: the Partition of its channels."""
    at = placer.at[axis]
    placer.move(axis, Copies(C, needed) if at.dim is None else at.needing(needed), layer.name)


def bias_layout(placer, axis, owned, layer):
    """The Layout of a bias, each element of which is at the owner of its output."""
    return placer.layout_of(layer.bias, {axis: Shard(0, owned)})


def needed_and_made(owners, layer):
    """(the Partition of a layer's inputs that the ranks need, that of the outputs of which they compute something)."""
    if layer.name not in owners.pairs:
        owned = owners.partition(layer.name)
        return Partition.of(layer.inputs, tuple(layer.inputs_of(part) for part in owned.parts)), owned
    pairs = owners.pairs[layer.name]
    mine = [pairs == rank for rank in range(owners.ranks)]
    return [Partition.of(pairs.shape[dim], tuple(np.flatnonzero(held.any(1 - dim)) for held in mine)) for dim in (0, 1)]


def side_by_side(partitions):
    """The Partition of dimensions that are joined one after another."""
    offsets = np.cumsum([0, *(partition.length for partition in partitions)])
    parts = zip(*(partition.parts for partition in partitions))
    joined = (np.concatenate([indices(part) + offset for part, offset in zip(of_rank, offsets)]) for of_rank in parts)
    return Partition.of(int(offsets[-1]), tuple(joined))


# ----- cutting a placed network for a pipeline


def between_exchanges(layers):
    """(chunks, exchanges) of placed layers: lists of the layers between two exchanges, and the exchanges.

    The cuts are the same on all ranks. ValueError for a network with branches that exchange channels within them.
    """
    chunks, exchanges = [[]], []
    for layer in layers:
        if type(layer) is Redistribute and layer.is_exchange and layer.moves("forward"):
            exchanges.append(layer)
            chunks.append([])
            continue
        if layer.children and any(isinstance(leaf, Redistribute) for leaf in leaves([layer])):
            raise ValueError(
                f"layer {layer.name}: a partition has no pipeline where branches of the network exchange channels: "
                f"use a grid with the axis stage"
            )
        chunks[-1].append(layer)
    return chunks, exchanges
