"""The plan "out": the ranks share the outputs of a layer."""

from typing import Any

from gridgrad.parallel.placement.placements import C, Replicate, Shard
from gridgrad.parallel.placement.plan import OUTPUTS, Plan, output_columns


class ShardOutputs(Plan):
    """Every rank has the whole input and computes its outputs, the columns of the weight: those that it owns, or its share."""

    word, use, is_candidate = "out", "split the weights", True
    input, weight = Replicate(), OUTPUTS
    output: Any = C

    def divide(self, placer, axis, layer):
        columns = output_columns(placer, axis, layer)
        return {"weight": Shard(-1, columns), "bias": Shard(0, columns)}, Shard(C, columns)
