"""The plan "hidden", which only a TiedAutoencoder can have: the ranks share its hidden units, the columns of its weight.

Each rank computes some of them, and the part of the output that these add. The bias of the decoder must be added only once: the
first rank that has any hidden units adds it.
"""

from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import Partial, Replicate, Shard
from gridgrad.parallel.placement.plan import OUTPUTS, Plan, output_columns


class ShardHiddenUnits(Plan):
    """Every rank has the whole input and computes a partial sum of the output."""

    word, use, kinds, is_candidate = "hidden", "split the weights", ("autoencoder",), True
    input, output, weight = Replicate(), Partial(), OUTPUTS

    def refusal(self, layer):
        if layer.kind not in self.kinds:
            return "has no hidden units: hidden is for autoencoders"

    def divide(self, placer, axis, layer):
        units = output_columns(placer, axis, layer)
        first = next(rank for rank in range(units.ranks) if units.size(rank))
        decoder_bias = Shard(0, Partition.at_rank(layer.inputs, units.ranks, first))
        return {"weight": Shard(-1, units), "bias": Shard(-1, units), "decoder_bias": decoder_bias}, Partial()
