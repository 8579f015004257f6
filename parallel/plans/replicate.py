"""The plan "replicate": every rank holds the whole weight and computes the layer for its part of the samples."""

from gridgrad.parallel.placement.plan import Plan


class ReplicateWeights(Plan):
    """The axis acts as a further batch axis."""

    word, use = "replicate", "split the samples and hold whole weights, as on the axis batch"
    kinds = "linear", "conv", "autoencoder"

    def is_tried(self, kinds, sizes, shape):
        return True
