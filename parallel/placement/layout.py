"""Which part of a minibatch each rank of a grid holds: answered for any rank, without communication."""

from dataclasses import dataclass
from functools import lru_cache

from parallel.placement.placements import C, H, N, Shard
from parallel.placement.partition import size, split


@lru_cache(maxsize=4096)
def parts_of_features(features, unit, ranks):
    """The slices of `features` on each rank, where `unit` of them (the pixels of a channel) stay together."""
    return tuple(slice(part.start * unit, part.stop * unit) for part in split(features // unit, ranks))


def parts(dim, samples, shape, ranks, unit=1):
    """The slices on each rank of a dimension, N, H or C, of `samples` samples of `shape`. unit: as of `parts_of_features`."""
    if dim == C:
        return parts_of_features(shape[-1], unit, ranks)
    return split(samples if dim == N else shape[0], ranks)


@dataclass(frozen=True)
class Layout:
    """The placement of a minibatch: samples are split along `batch`, and along the other axes as `placements` say.

    sizes: the grid's sizes by axis. placements: by axis, but for `batch`. shape: of a whole sample, (features,) or
    (height, width, channels). unit: how many features stay together. order: the axes that split the samples as well,
    outermost first: each splits what the ones before it left together.
    """

    sizes: dict
    placements: dict
    shape: tuple
    unit: int = 1
    order: tuple = ()

    def rows(self, batch_size, coordinates):
        """The slice of the global minibatch whose samples the rank at `coordinates` holds."""
        return self.rows_within(("batch", *self.order), batch_size, coordinates)

    def rows_within(self, axes, batch_size, coordinates):
        """The slice that is left after the splits along the first axes, `axes`."""
        rows = slice(0, batch_size)
        for axis in axes:
            part = split(size(rows), self.sizes[axis])[coordinates[axis]]
            rows = slice(rows.start + part.start, rows.start + part.stop)
        return rows

    def block(self, coordinates):
        """The slices of a sample, one a dimension, that the rank at `coordinates` holds."""
        block = [slice(0, length) for length in self.shape]
        for axis, placement in self.placements.items():
            if placement == Shard(H):
                block[0] = split(self.shape[0], self.sizes[axis])[coordinates[axis]]
            elif placement == Shard(C):
                block[-1] = parts_of_features(self.shape[-1], self.unit, self.sizes[axis])[coordinates[axis]]
        return tuple(block)

    def is_first_copy(self, coordinates):
        """Whether, of the ranks that hold the same samples, this is the one that speaks for them."""
        return all(coordinates[axis] == 0 for axis, placement in self.placements.items() if placement != Shard(N))
