"""The two redistributions of Laugier et al. 2018 (Algorithms 2 and 3), which are not adjoint to each other.

There every rank of the model axis computes the same activations and the same whole gradient of them. So an
all-gather needs only a slice in backward, and what a layer hands back, one addend a rank, must be all-reduced.
Over the two directions that moves 3 (P-1)/P of a layer's activations where adjoint pairs move 2 (P-1)/P.
"""

from parallel.placement.placements import C, Partial, Replicate, Shard
from parallel.placement.redistribute import Redistribute


class GatherThenSlice(Redistribute):
    """Forward: all-gather the features. Backward: slice the gradient, which every rank holds whole."""

    def __init__(self, group, shape):
        super().__init__(group, Shard(C), Replicate(), shape)

    back = Replicate(), Shard(C)

    def __repr__(self):
        return f"GatherThenSlice({self.shape[-1]} features, {self.group.size} ranks)"


class CopyThenReduce(Redistribute):
    """Forward: nothing, every rank has the input whole. Backward: all-reduce the addends of its gradient."""

    def __init__(self, group, shape):
        super().__init__(group, Replicate(), Replicate(), shape)

    back = Partial(), Replicate()

    def __repr__(self):
        return f"CopyThenReduce({self.shape[-1]} features, {self.group.size} ranks)"
