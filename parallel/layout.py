"""Which samples and features each rank of a grid holds: answered for any rank, without communication."""

from dataclasses import dataclass

from parallel.placements import C, N, Shard
from parallel.split import size, split


@dataclass(frozen=True)
class Layout:
    """The placement of a minibatch: samples split along `batch`, and on the axis `model` as `placement` says.

    sizes: the grid's sizes by axis. features: the global size of the last dimension.
    """

    sizes: dict
    placement: object
    features: int

    def rows(self, batch_size, coordinates):
        """The slice of the global minibatch whose samples the rank at `coordinates` holds."""
        block = split(batch_size, self.sizes["batch"])[coordinates["batch"]]
        if self.placement != Shard(N):
            return block
        part = split(size(block), self.sizes["model"])[coordinates["model"]]
        return slice(block.start + part.start, block.start + part.stop)

    def columns(self, coordinates):
        """The slice of the features that the rank at `coordinates` holds."""
        if self.placement != Shard(C):
            return slice(0, self.features)
        return split(self.features, self.sizes["model"])[coordinates["model"]]

    def is_first_copy(self, coordinates):
        """Whether, of the ranks that hold the same samples, this is the one that speaks for them."""
        return self.placement == Shard(N) or coordinates["model"] == 0
