"""The two redistributions of Laugier et al. 2018 (Algorithms 2 and 3), which are not adjoint to each other.

There every rank of the model axis computes the same activations and the same whole gradient of them. So an all-gather needs
only a slice in backward, and the gradient that a layer hands back, one partial sum on each rank, must be all-reduced. Over the
two directions that moves 3 (P-1)/P of a layer's activations where adjoint pairs move 2 (P-1)/P.
"""

from parallel.placement.placements import Partial, Replicate
from parallel.placement.redistribute import Redistribute


class GatherThenSlice(Redistribute):
    """Forward: all-gather the features. Backward: slice the gradient, which every rank holds whole.

    shard: the placement of the features before.
    """

    def __init__(self, group, shard, shape):
        super().__init__(group, shard, Replicate(), shape)

    @property
    def back(self):
        return Replicate(), self.source

    def __repr__(self):
        return f"GatherThenSlice({self.shape[-1]} features, {self.group.size} ranks)"


class CopyThenReduce(Redistribute):
    """Forward: nothing, every rank has the input whole. Backward: all-reduce the partial sums of its gradient."""

    def __init__(self, group, shape):
        super().__init__(group, Replicate(), Replicate(), shape)

    back = Partial(), Replicate()

    def __repr__(self):
        return f"CopyThenReduce({self.shape[-1]} features, {self.group.size} ranks)"
