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

from math import prod

from nn.device import xp
from nn.layer import Layer
from nn.window import along
from parallel.placement.layout import parts
from parallel.placement.placements import Partial, Replicate, Shard
from parallel.placement.partition import resized, size


class Redistribute(Layer):
    """`source -> target` in forward, `target* -> source*` in backward.

    Arrays are (samples, features) or (samples, height, width, channels); a Shard splits the samples, the height or the
    last dimension.
    group: the ranks of the axis. shape: the global shape of a sample. unit: how many features stay together.
    rows: from the global batch size, the slice of samples that the *group* holds together.
    """

    def __init__(self, group, source, target, shape, rows=None, unit=1):
        self.group, self.source, self.target, self.shape, self.unit = group, source, target, shape, unit
        self.rows = rows or (lambda batch_size: slice(0, batch_size))

    @property
    def back(self):
        """(from, to) of what backward moves: the adjoint."""
        return self.target.adjoint, self.source.adjoint

    def forward(self, x, context):
        return self.move(x, self.source, self.target, "forward", context)

    def input_gradient(self, dy, context):
        return self.move(dy, *self.back, "backward", context)

    def move(self, x, source, target, direction, context):
        """x, placed as `source`, placed as `target`. The direction names the workspace the result lies in."""
        if source == target or self.group.size == 1:
            return x
        return MOVES[type(source), type(target)](self, xp.ascontiguousarray(x), source, target, direction, context)

    def parts(self, shard, batch_size):
        """The slices of all ranks along the sharded dimension, of a global minibatch of so many samples."""
        return parts(shard.dim, size(self.rows(batch_size)), self.shape, self.group.size, self.unit)

    def part(self, shard, batch_size):
        return self.parts(shard, batch_size)[self.group.rank]

    def _all_gather(self, x, source, target, direction, context):
        parts, shape = self.parts(source, context.batch_size), list(x.shape)
        shape[source.dim] = parts[-1].stop
        out = context[self].workspace(direction, tuple(shape), x.dtype)
        shapes = [resized(x.shape, source.dim, size(part)) for part in parts]
        self._into(
            out,
            source.dim,
            parts,
            shapes,
            lambda flat, counts: self.group.all_gather(x, flat, counts, self.name),
            context,
        )
        return out

    def _reduce_scatter(self, x, source, target, direction, context):
        parts = self.parts(target, context.batch_size)
        blocks, counts = self._blocks(x, target.dim, parts, context)
        out = context[self].workspace(
            direction, resized(x.shape, target.dim, size(self.part(target, context.batch_size))), x.dtype
        )
        self.group.reduce_scatter(blocks, out, counts, self.name)
        return out

    def _all_to_all(self, x, source, target, direction, context):
        mine, parts = size(self.part(target, context.batch_size)), self.parts(source, context.batch_size)
        blocks, counts = self._blocks(x, target.dim, self.parts(target, context.batch_size), context)
        shapes = [resized(resized(x.shape, target.dim, mine), source.dim, size(part)) for part in parts]
        out = context[self].workspace(direction, resized(shapes[0], source.dim, parts[-1].stop), x.dtype)
        self._into(
            out,
            source.dim,
            parts,
            shapes,
            lambda flat, received: self.group.all_to_all(blocks, counts, flat, received, self.name),
            context,
        )
        return out

    def _all_reduce(self, x, source, target, direction, context):
        out = context[self].workspace(direction, x.shape, x.dtype)
        xp.copyto(out, x)
        self.group.all_reduce(out, self.name)
        return out

    def _slice(self, x, source, target, direction, context):
        return x[along(target.dim, self.part(target, context.batch_size))]

    def _embed(self, x, source, target, direction, context):
        parts = self.parts(source, context.batch_size)
        out = context[self].workspace(direction, resized(x.shape, source.dim, parts[-1].stop), x.dtype)
        out.fill(0)
        out[along(source.dim, self.part(source, context.batch_size))] = x
        return out

    def _keep_one(self, x, source, target, direction, context):
        return x if self.group.rank == 0 else xp.zeros_like(x)

    def _blocks(self, x, dim, parts, context):
        """x cut along `dim` into contiguous blocks, one after another, and their element counts."""
        counts = [x.size // max(x.shape[dim], 1) * size(part) for part in parts]
        if dim == 0:
            return x, counts
        flat = context[self].workspace("send", (x.size,), x.dtype)
        start = 0
        for part, count in zip(parts, counts):
            block = x[along(dim, part)]
            flat[start : start + count].reshape(block.shape)[...] = block
            start += count
        return flat, counts

    def _into(self, out, dim, parts, shapes, receive, context):
        """Let `receive` write the blocks of all ranks one after another, and place them in `out` along `dim`."""
        counts = [prod(shape) for shape in shapes]
        if dim == 0:
            receive(out, counts)
            return
        flat = context[self].workspace("receive", (sum(counts),), out.dtype)
        receive(flat, counts)
        start = 0
        for part, shape, count in zip(parts, shapes, counts):
            out[along(dim, part)] = flat[start : start + count].reshape(shape)
            start += count

    def __repr__(self):
        shape = "x".join(map(str, self.shape))
        return f"Redistribute({self.source} -> {self.target} of {shape}, {self.group.size} ranks)"


MOVES = {
    (Shard, Replicate): Redistribute._all_gather,
    (Partial, Shard): Redistribute._reduce_scatter,
    (Partial, Replicate): Redistribute._all_reduce,
    (Shard, Shard): Redistribute._all_to_all,
    (Replicate, Shard): Redistribute._slice,
    (Shard, Partial): Redistribute._embed,
    (Replicate, Partial): Redistribute._keep_one,
}
