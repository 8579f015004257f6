"""All communication inside a network: moving an array from one placement to another along one axis of the grid.

| forward                             | backward                              |
|-------------------------------------|---------------------------------------|
| `Shard -> Replicate`: all-gather    | `Partial -> Shard`: reduce-scatter    |
| `Partial -> Shard`: reduce-scatter  | `Shard -> Replicate`: all-gather      |
| `Partial -> Replicate`: all-reduce  | `Partial -> Replicate`: all-reduce    |
| `Shard(a) -> Shard(b)`: all-to-all  | `Shard(b) -> Shard(a)`: all-to-all    |
| `Replicate -> Shard`: take a slice  | `Shard -> Partial`: put it into zeros |
| `Replicate -> Partial`: keep one    | `Replicate -> Partial`: keep one      |
"""

import numpy as np

from nn.layer import Layer
from parallel.placements import Partial, Replicate, Shard
from parallel.split import size, split


class Redistribute(Layer):
    """`source -> target` in forward, `target* -> source*` in backward.

    Arrays are (samples, ..., features); a Shard splits dimension 0 or the last one.
    group: the ranks of the axis. features: the global size of the last dimension.
    rows: from the global batch size, the slice of samples that the *group* holds together.
    """

    def __init__(self, group, source, target, features, rows=None):
        self.group, self.source, self.target, self.features = group, source, target, features
        self.rows = rows or (lambda batch_size: slice(0, batch_size))

    def begin(self, seed, step, batch_size):
        self.samples = size(self.rows(batch_size))

    def forward(self, x, training=False):
        return self.move(x, self.source, self.target, "forward")

    def input_gradient(self, dy):
        return self.move(dy, self.target.adjoint, self.source.adjoint, "backward")

    def move(self, x, source, target, direction):
        """x, placed as `source`, placed as `target`. The direction names the workspace the result lies in."""
        if source == target or self.group.size == 1:
            return x
        return MOVES[type(source), type(target)](self, np.ascontiguousarray(x), source, target, direction)

    def parts(self, shard):
        """The slices of all ranks along the sharded dimension."""
        return split(self.samples if shard.dim == 0 else self.features, self.group.size)

    def part(self, shard):
        return self.parts(shard)[self.group.rank]

    def _all_gather(self, x, source, target, direction):
        parts, shape = self.parts(source), list(x.shape)
        shape[source.dim] = parts[-1].stop
        out = self.workspace(direction, tuple(shape), x.dtype)
        shapes = [_resized(x.shape, source.dim, size(part)) for part in parts]
        self._into(
            out,
            source.dim,
            parts,
            shapes,
            lambda flat, counts: self.group.all_gather(x, flat, counts, self.name),
        )
        return out

    def _reduce_scatter(self, x, source, target, direction):
        parts = self.parts(target)
        blocks, counts = self._blocks(x, target.dim, parts)
        out = self.workspace(direction, _resized(x.shape, target.dim, size(self.part(target))), x.dtype)
        self.group.reduce_scatter(blocks, out, counts, self.name)
        return out

    def _all_to_all(self, x, source, target, direction):
        mine, parts = size(self.part(target)), self.parts(source)
        blocks, counts = self._blocks(x, target.dim, self.parts(target))
        shapes = [_resized(_resized(x.shape, target.dim, mine), source.dim, size(part)) for part in parts]
        out = self.workspace(direction, _resized(shapes[0], source.dim, parts[-1].stop), x.dtype)
        self._into(
            out,
            source.dim,
            parts,
            shapes,
            lambda flat, received: self.group.all_to_all(blocks, counts, flat, received, self.name),
        )
        return out

    def _all_reduce(self, x, source, target, direction):
        out = self.workspace(direction, x.shape, x.dtype)
        np.copyto(out, x)
        self.group.all_reduce(out, self.name)
        return out

    def _slice(self, x, source, target, direction):
        return x[_along(target.dim, self.part(target))]

    def _embed(self, x, source, target, direction):
        parts = self.parts(source)
        out = self.workspace(direction, _resized(x.shape, source.dim, parts[-1].stop), x.dtype)
        out.fill(0)
        out[_along(source.dim, self.part(source))] = x
        return out

    def _keep_one(self, x, source, target, direction):
        return x if self.group.rank == 0 else np.zeros_like(x)

    def _blocks(self, x, dim, parts):
        """x cut along `dim` into contiguous blocks, one after another, and their element counts."""
        counts = [x.size // max(x.shape[dim], 1) * size(part) for part in parts]
        if dim == 0:
            return x, counts
        flat = self.workspace("send", (x.size,), x.dtype)
        start = 0
        for part, count in zip(parts, counts):
            block = x[_along(dim, part)]
            flat[start : start + count].reshape(block.shape)[...] = block
            start += count
        return flat, counts

    def _into(self, out, dim, parts, shapes, receive):
        """Let `receive` write the blocks of all ranks one after another, and place them in `out` along `dim`."""
        counts = [int(np.prod(shape)) for shape in shapes]
        if dim == 0:
            receive(out, counts)
            return
        flat = self.workspace("receive", (sum(counts),), out.dtype)
        receive(flat, counts)
        start = 0
        for part, shape, count in zip(parts, shapes, counts):
            out[_along(dim, part)] = flat[start : start + count].reshape(shape)
            start += count

    def __repr__(self):
        return f"Redistribute({self.source} -> {self.target}, {self.features} features, {self.group.size} ranks)"


MOVES = {
    (Shard, Replicate): Redistribute._all_gather,
    (Partial, Shard): Redistribute._reduce_scatter,
    (Partial, Replicate): Redistribute._all_reduce,
    (Shard, Shard): Redistribute._all_to_all,
    (Replicate, Shard): Redistribute._slice,
    (Shard, Partial): Redistribute._embed,
    (Replicate, Partial): Redistribute._keep_one,
}


def _along(dim, part):
    """The index that takes `part` of dimension 0 or of the last dimension."""
    return (part,) if dim == 0 else (Ellipsis, part)


def _resized(shape, dim, length):
    shape = list(shape)
    shape[dim] = length
    return tuple(shape)
