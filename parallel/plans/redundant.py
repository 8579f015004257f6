"""The plan "redundant": every rank computes the whole layer for all samples, as all the others do.

The gradient of the weights is the same on all of them and is not summed. That pays where a layer is small, or a minibatch has
one sample alone; Grabaskas 2018 does so with layers that it does not split.
"""

from gridgrad.parallel.placement.placements import Invariant
from gridgrad.parallel.placement.plan import Plan


class ComputeRedundantly(Plan):
    """All arrays are Invariant."""

    word, use = "redundant", "hold whole weights, and all compute the same"
    input = output = Invariant()
    shares_work = False

    def divide(self, placer, axis, layer):
        return {"weight": Invariant(), "bias": Invariant()}, Invariant()
