"""The placement of a TiedAutoencoder."""

from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import Partial, Shard
from gridgrad.parallel.placement.plans import CHOICES


def place_autoencoder(placer, layer):
    """Place a TiedAutoencoder: where its hidden units are sharded, every rank computes a partial sum of the output.

    The bias of the decoder must be added only once: the first rank that has any hidden units adds it.
    """
    sizes = placer.grid.sizes
    choices = {axis: placer.choices[axis][layer] for axis in placer.at}
    sharded, adding, outputs = {}, {}, {}
    for axis, choice in choices.items():
        placer.move(axis, placer.wanted(axis, choice, placer.at), layer.name, CHOICES[choice].move)
        outputs[axis] = placer.at[axis]
        if CHOICES[choice].weight is not None:
            units = placer.owners.get(layer.name) or placer.splits[axis].of_length(layer.hidden)
            first = next(rank for rank in range(sizes[axis]) if units.size(rank))
            sharded[axis], outputs[axis] = Shard(-1, units), Partial()
            adding[axis] = Shard(0, Partition.at_rank(layer.inputs, sizes[axis], first))
    placements = {"weight": sharded, "bias": sharded, "decoder_bias": adding}
    block = layer.placed(**{p.name: placer.layout_of(p, placements[p.name]) for p in layer.parameters})
    placer.append(block, layer.name)
    placer.at |= outputs
