"""The two redistributions of Laugier et al. 2018 (Algorithms 2 and 3), which are not adjoint to each other.

In these algorithms every rank of the model axis holds all activations of a layer and the whole gradient of them. So the
backward of the all-gather is only a slice, while the gradient of a layer's input, of which each rank computes one partial sum,
must be all-reduced. Over both directions a rank sends 3 (P-1)/P of a layer's activations; the adjoint pair all-gather and
reduce-scatter sends 2 (P-1)/P.
"""

from parallel.placement.placements import Partial, Replicate
from parallel.placement.redistribute import Redistribute


class GatherThenSlice(Redistribute):
    """Forward: all-gather the features. Backward: take this rank's slice of the gradient, which every rank holds whole.

    group: the ranks of the model axis. shard: the placement of the features before the all-gather. shape: of a whole sample.
    """

    def __init__(self, group, shard, shape):
        super().__init__(group, shard, Replicate(), shape)

    @property
    def back(self):
        return Replicate(), self.source

    def __repr__(self):
        return f"GatherThenSlice({self.shape[-1]} features, {self.group.size} ranks)"


class CopyThenReduce(Redistribute):
    """Forward: nothing, since every rank has the whole input. Backward: all-reduce the partial sums of the input's gradient."""

    def __init__(self, group, shape):
        super().__init__(group, Replicate(), Replicate(), shape)

    back = Partial(), Replicate()

    def __repr__(self):
        return f"CopyThenReduce({self.shape[-1]} features, {self.group.size} ranks)"
