"""Placements: how a global array is distributed over the ranks along one axis of the process grid.

The adjoint is the placement of the array's gradient. Where ranks hold copies of an element, each computes a partial sum of its
gradient, and these must be added. Where they hold partial sums, the gradient of each of them is the gradient of the whole sum.

The loss computes the gradient of the outputs that a rank holds, so the outputs of a network must have a placement that is its
own adjoint: with `Replicate` every rank would hold the whole gradient where a partial sum of it is expected. `Invariant` is the
placement of the activations in Laugier et al. 2018 (Algorithms 2 and 3), where all ranks do compute the same gradient.
"""

from dataclasses import dataclass, field

from gridgrad.parallel.placement.partition import Partition, Split

N, H, W, C = 0, 1, 2, -1  # dimensions of activations: samples, image rows, image columns; the last one is features or channels
PIXELS = H, W  # the dimensions that only images have
MASTER = 0  # the rank that holds what is AtMaster


class Placement:
    """What all placements have in common; here the answers of those in which every rank holds an array of the full shape."""

    dim: int | None = None  # the dimension that is sharded

    @property
    def adjoint(self) -> "Placement":
        """The placement of the gradient: the same, except where it is said otherwise."""
        return self

    def split_of(self, dim: int, dims: int) -> Partition | Split | None:
        """The Partition or Split of dimension `dim`, counted from 0, of an array with `dims` of them; None if it is whole."""
        return None

    def __str__(self):
        return type(self).__name__


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank holds its part of one dimension.

    Parameters
    ----------
    dim : int
        The dimension: N, H, W or C of activations, or one of a weight.
    partition : Partition or Split
        Which of its indices each rank holds; for the samples a Split, because the batch size is not known yet.

    Examples
    --------
    >>> from gridgrad.parallel import C, Partition, Shard
    >>> features = Shard(C, Partition.even(7, 2))
    >>> print(features, features.adjoint == features, features.partition.sizes)
    Shard(dim=-1) True [4, 3]
    """

    dim: int = field()  # without the default of other placements
    partition: Partition | Split = field()

    def partition_of(self, samples: int) -> Partition:
        """The Partition of the dimension. samples: of the minibatch, which is the length of the dimension where that is N."""
        return self.partition.of_length(samples)

    def split_of(self, dim: int, dims: int) -> Partition | Split | None:
        return self.partition if self.dim % dims == dim else None

    def needing(self, partition: Partition) -> "Shard":
        """The placement in which each rank holds these indices, which may overlap: this one if it holds just them already."""
        return self if partition == self.partition else Copies(self.dim, partition)

    def __str__(self):
        return f"{type(self).__name__}(dim={self.dim})"


class Copies(Shard):
    """Each rank holds its part of one dimension, and the parts may overlap, as with a halo: copies of what other ranks own."""

    @property
    def adjoint(self):
        return PartialShard(self.dim, self.partition)


class PartialShard(Shard):
    """Each rank holds its part of one dimension; the parts may overlap, and an element is the sum of what ranks hold of it."""

    @property
    def adjoint(self):
        return Copies(self.dim, self.partition)


class AtRank(Shard):
    """One rank holds the whole array: all indices of one dimension are its part."""


class AtMaster(Shard):
    """The first rank, the master, holds the whole array: it hands out parts or copies of it, and gets them handed in."""


@dataclass(frozen=True)
class Tile(Placement):
    """Of a weight: each rank holds a rectangle, its part of the inputs and of the outputs, which are the last two dimensions.
    The rectangles do not overlap, but their sides may. What no rectangle covers is zero."""

    inputs: Partition
    outputs: Partition
    dim = -1

    def split_of(self, dim, dims):
        return {dims - 2: self.inputs, dims - 1: self.outputs}.get(dim)


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank holds the whole array.

    Examples
    --------
    >>> from gridgrad.parallel import Partial, Replicate
    >>> Replicate().adjoint  # each rank computes a partial sum of the gradient
    Partial()
    """

    @property
    def adjoint(self) -> "Partial":
        """The placement of the gradient."""
        return Partial()


@dataclass(frozen=True)
class Partial(Placement):
    """Every rank holds an array of the full shape; the global array is the sum of them.

    Examples
    --------
    >>> from gridgrad.parallel import Partial
    >>> Partial().adjoint  # the gradient of each term is that of the sum
    Replicate()
    """

    @property
    def adjoint(self) -> Replicate:
        """The placement of the gradient."""
        return Replicate()


@dataclass(frozen=True)
class Invariant(Placement):
    """Every rank holds the whole array and, in backward, the whole gradient of it: nothing has to be summed."""
