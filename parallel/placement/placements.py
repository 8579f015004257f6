"""Where the parts of a global array are, along one axis of the process grid.

| placement               | meaning                                                          | adjoint                 |
|-------------------------|------------------------------------------------------------------|-------------------------|
| `Shard(dim, partition)` | the ranks of the axis hold parts of one dimension                | `Shard(dim, partition)` |
| `Replicate`             | every rank of the axis holds the whole array                     | `Partial`               |
| `Partial`               | the ranks of the axis hold partial sums, which add up to the array | `Replicate`           |

The adjoint is the placement of the gradient: the gradients of copies have to be summed, and each term of a sum has the
gradient of the sum. Where the parts of a Shard overlap, the gradients of the copies of an element are partial sums as well;
the exchange that leads back to disjoint parts adds them.
"""

from dataclasses import dataclass

from parallel.placement.partition import Partition, Split

N, H, W, C = 0, 1, 2, -1  # the dimensions of activations: samples, rows and columns of images; features or channels are last
PIXELS = H, W  # those that only images have


@dataclass(frozen=True)
class Shard:
    """dim: the dimension. partition: a Partition of it; or a Split, where its length is that of a minibatch to come."""

    dim: int
    partition: Partition | Split

    @property
    def adjoint(self):
        return self

    def partition_of(self, samples):
        """The Partition of the dimension, in a minibatch of so many samples."""
        return self.partition.of_length(samples)

    def __str__(self):
        return f"Shard(dim={self.dim})"


@dataclass(frozen=True)
class Replicate:
    dim = None  # no dimension is sharded

    @property
    def adjoint(self):
        return Partial()

    def __str__(self):
        return "Replicate"


@dataclass(frozen=True)
class Partial:
    dim = None

    @property
    def adjoint(self):
        return Replicate()

    def __str__(self):
        return "Partial"
