"""The layout of an array: its placement along every axis of the grid, from which all else about it follows.

Which block a rank holds, which ranks hold the same block, who counts it in a sum over the grid, and along which axes its
gradient has to be summed: all are answered here for any rank, without communication.
"""

from dataclasses import dataclass, field

from gridgrad.parallel.placement.partition import size, within
from gridgrad.parallel.placement.placements import Invariant, Replicate


@dataclass(frozen=True)
class Layout:
    """shape: of the whole array; its first length is None for activations, whose samples come with each minibatch.

    sizes: ranks along each axis. placements: by axis, the outermost first: where several axes shard one dimension, each of
    them divides what the ones before it left together. An axis that is not named holds replicas.
    """

    shape: tuple
    sizes: dict = field(hash=False)
    placements: dict = field(hash=False)

    @property
    def sample_shape(self):
        """The shape of a whole sample of activations: (features,) or (height, width, channels)."""
        return self.shape[1:]

    def of(self, samples):
        """The layout of activations with `samples` samples."""
        return Layout((samples, *self.shape[1:]), self.sizes, self.placements)

    def part(self, dim, coordinates, inside=None):
        """The indices of dimension `dim` that the rank at `coordinates` holds, a slice or an index array.

        inside: if given, the name of an axis: only the axes before it divide the dimension.
        """
        dim %= len(self.shape)
        held = slice(0, self.shape[dim])
        for axis, placement in self.placements.items():
            if axis == inside:
                break
            split = placement.split_of(dim, len(self.shape))
            if split is not None:
                held = within(held, split.of_length(size(held)).part(coordinates[axis]))
        return held

    def block(self, coordinates):
        """The block that the rank at `coordinates` holds: for each dimension a slice or an index array."""
        return tuple(self.part(dim, coordinates) for dim in range(len(self.shape)))

    def rows(self, samples, coordinates):
        """The slice of a global minibatch of `samples` samples that the rank at `coordinates` holds, of activations."""
        return self.of(samples).part(0, coordinates)

    def sample_block(self, coordinates):
        """The part of each sample that the rank at `coordinates` holds, of activations: one for each dimension of a sample."""
        return tuple(self.part(dim, coordinates) for dim in range(1, len(self.shape)))

    def local_shape(self, coordinates):
        """The shape of the block that the rank at `coordinates` holds."""
        return tuple(size(part) for part in self.block(coordinates))

    @property
    def replicated(self):
        """The axes along which every rank holds the same block: those along which a parameter's gradient is a partial sum."""
        return tuple(axis for axis in self.sizes if self.placements.get(axis, Replicate()) in (Replicate(), Invariant()))

    @property
    def sharded(self):
        """The axes along which the ranks hold different blocks, the outermost first."""
        return tuple(axis for axis, placement in self.placements.items() if placement.dim is not None)

    def is_counted(self, coordinates):
        """Whether the rank at `coordinates` counts in sums over the grid: one of those that hold the same block does."""
        return all(coordinates[axis] == 0 for axis in self.replicated)
