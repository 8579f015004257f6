"""The plan "laugier": the algorithm of Laugier et al. 2018 (Algorithms 2 and 3).

The outputs are all-gathered to every rank at once, and backward slices the gradient of the output and all-reduces that of the
input: over both directions a rank sends 3 (P-1)/P of a layer's activations, where all-gather and reduce-scatter send
2 (P-1)/P. It is here for comparison with the other plans.
"""

from gridgrad.parallel.placement.placements import Invariant
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.outputs import ShardOutputs


class GatherEveryLayer(ShardOutputs):
    """A layer as with "out", and the all-gather behind it."""

    word, is_candidate, mixes = "laugier", False, False
    output = Invariant()

    def behind(self, placer, axis, layer):
        shape = layer.output_shape(placer.shape)
        placer.append(Redistribute(placer.grid.group(axis), placer.at[axis], Invariant(), shape), layer.name)
        placer.at[axis] = Invariant()
