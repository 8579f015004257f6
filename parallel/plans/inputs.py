"""The plan "in": the ranks share the inputs of a layer, and each computes a partial sum of all outputs."""

from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import C, Partial, Shard
from gridgrad.parallel.placement.plan import INPUTS, Plan


class ShardInputs(Plan):
    """A rank has its inputs, which are rows of the weight, and computes a partial sum of all outputs.

    The bias must be added only once: the first rank that has any inputs adds it.
    """

    word, use, is_candidate = "in", "split the weights", True
    input, output, weight = C, Partial(), INPUTS

    def divide(self, placer, axis, layer):
        rows = placer.at[axis].partition
        adds_bias = next((rank for rank in range(rows.ranks) if rows.size(rank)), 0)
        return {"weight": Shard(-2, rows), "bias": Shard(0, Partition.at_rank(layer.outputs, rows.ranks, adds_bias))}, Partial()
