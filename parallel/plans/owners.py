"""Which rank of the axis `model` computes what of each layer with weights: a partition of the network's work.

The plan "hypergraph" executes any such partition (`parallel/plans/hypergraph.py`), and `parallel/partitioning` finds good
ones. In the *coarse grain* a unit of work is an output of a layer: a filter of a convolution or a neuron. In the *fine grain*
it is one channel of a filter, so that a filter's channels may be at several ranks. Each of them computes a partial sum of the
filter's feature map, and the owner of the filter adds them (Eserol 2019, sections 3.3 and 3.4).
"""

from dataclasses import dataclass, field

import numpy as np

from gridgrad.parallel.placement.partition import Partition


@dataclass(frozen=True, eq=False)
class Owners:
    """The owner of every piece of a network.

    ranks: how many there are along the axis. outputs: {name of a layer: an array with the rank that owns each output}, for all
    layers with weights. pairs: {name of a layer: an array (inputs, outputs) with the rank that multiplies each input channel
    with its part of each filter}, for the layers with a fine grain; all others are computed by the owners of their outputs.
    loss: the rank that computes the loss, to which all outputs of the network are sent.
    Raises ValueError for an owner that is no rank, or pairs that do not fit their outputs.
    """

    ranks: int
    outputs: dict
    pairs: dict = field(default_factory=dict)
    loss: int = 0
    _partitions: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        for kind in ("outputs", "pairs"):
            found = {name: np.asarray(owners) for name, owners in getattr(self, kind).items()}
            object.__setattr__(self, kind, found)
            for name, owners in found.items():
                if owners.ndim != (1 if kind == "outputs" else 2) or owners.dtype.kind not in "iu":
                    raise ValueError(f"owners: the {kind} of layer {name} must be an array of ranks, not {owners.dtype} "
                                     f"{owners.shape}")  # fmt: skip
                if owners.size and not 0 <= owners.min() <= owners.max() < self.ranks:
                    raise ValueError(f"owners: those of layer {name} must be ranks from 0 to {self.ranks - 1}")
        for name, owners in self.pairs.items():
            if name not in self.outputs or owners.shape[1] != len(self.outputs[name]):
                raise ValueError(f"owners: the pairs of layer {name} must be one row an input, with one rank for each output")
        if not 0 <= self.loss < self.ranks:
            raise ValueError(f"owners: the loss is at rank {self.loss}, of {self.ranks}")

    def check(self, layers):
        """Raise ValueError, in one line, unless a network has these owners. layers: its layers with weights."""
        names = {layer.name for layer in layers}
        for name in sorted(names ^ self.outputs.keys()):
            raise ValueError(f"owners: {'there are none for' if name in names else 'there is no'} layer {name} with weights")
        for layer in layers:
            name, pairs = layer.name, self.pairs.get(layer.name)
            if len(self.outputs[name]) != layer.outputs:
                raise ValueError(f"owners: layer {name} {layer!r} has {layer.outputs} outputs, not {len(self.outputs[name])}")
            if pairs is not None and len(pairs) != layer.inputs:
                raise ValueError(f"owners: layer {name} {layer!r} has {layer.inputs} inputs, not {len(pairs)}")

    def partition(self, name):
        """The Partition of the outputs of a layer."""
        if name not in self._partitions:
            self._partitions[name] = Partition.owned(self.outputs[name], self.ranks)
        return self._partitions[name]
