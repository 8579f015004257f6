"""Where the pieces of a global array are, along one axis of the process grid.

| placement    | meaning                                  | adjoint      |
|--------------|------------------------------------------|--------------|
| `Shard(dim)` | split along one dimension, maybe unevenly | `Shard(dim)` |
| `Replicate`  | every rank of the axis holds it whole     | `Partial`    |
| `Partial`    | the ranks hold addends of it              | `Replicate`  |

The adjoint is the placement of the gradient: what was copied has gradients to be summed, and the addends of a
sum all have the gradient of the sum.
"""

from dataclasses import dataclass

N, H, C = 0, 1, -1  # the dimensions that are sharded: samples are first, then the rows of images; features (channels) last


@dataclass(frozen=True)
class Shard:
    dim: int

    @property
    def adjoint(self):
        return self


@dataclass(frozen=True)
class Replicate:
    @property
    def adjoint(self):
        return Partial()


@dataclass(frozen=True)
class Partial:
    @property
    def adjoint(self):
        return Replicate()
