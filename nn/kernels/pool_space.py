"""The scratch memory in which a pooling works on a block of images, and which of its windows have the same places in them."""

from functools import lru_cache
from math import prod

from gridgrad.nn.kernels.window import COLUMNS, along, matching_slices
from gridgrad.nn.kernels.workspace import copy_runs, scratch


class Space:
    """Scratch memory for a block of images, (images, rows, width, channels), whose rows are pooled and whose columns are not,
    to `outputs` columns. `places`: for each place in a window, an array with the column that each window has there."""

    def __init__(self, window, shape, outputs, dtype):
        self.window, self.outputs = window, outputs
        (images, rows, width, channels), (k, stride, left) = shape, window.along(COLUMNS)
        # Where windows overlap, the columns at places a stride apart are the same memory, shifted by a column. Each row then
        # has some more columns than there are outputs, whose contents mean nothing.
        shift = (k - 1) // stride
        wide = images, rows, outputs + shift, channels
        self.halfway = scratch("halfway", shape, dtype)  # the block
        self.wide = scratch("wide", wide, dtype) if shift else None  # for the output, where there are more columns
        self.places, self._copies, self._outside, self._first = [None] * k, [], [], []
        for first in range(min(k, stride)):
            flat = scratch(f"columns {first}", (prod(wide) + shift * channels,), dtype)
            apart = flat[: prod(wide)].reshape(wide)
            inside, columns = matching_slices(first - left, stride, outputs + shift, width)
            self._copies.append((apart[:, :, inside], self.halfway[:, :, columns]))
            outside = apart[:, :, : inside.start], apart[:, :, inside.stop :], flat[prod(wide) :]
            self._outside += [part for part in outside if part.size]
            self._first.append(flat[: (k - 1 - first) // stride * channels])
            for i in range(first, k, stride):
                start = i // stride * channels
                self.places[i] = flat[start : start + prod(wide)].reshape(wide)

    def take_apart(self, in_padding):
        """Copy the columns of `halfway` to `places`. in_padding: the value of the columns outside the image."""
        for part in self._outside:
            part.fill(in_padding)
        for apart, columns in self._copies:
            copy_runs(apart, columns)

    def clear_first(self):
        """Set to 0 what the last place of each window does not overwrite, so that the other places can be added."""
        for part in self._first:
            part.fill(0)

    def put_together(self):
        """Copy the columns in `places`, which are gradients, to `halfway`."""
        clear_uncovered(self.window, COLUMNS, self.halfway, self.outputs)
        for apart, columns in self._copies:
            copy_runs(columns, apart)


@lru_cache(maxsize=16)
def space_for(window, shape, outputs, dtype, on_cpu):
    """A Space with these arguments. It is kept, because many blocks have the same shape and making one takes long."""
    return Space(window, shape, outputs, dtype)


def clear_uncovered(window, axis, dx, outputs):
    """Set to 0 the rows or columns that no window has at one of its last places, as many as the stride: others are added."""
    k, stride, before = window.along(axis)
    if k < stride:
        dx.fill(0)
        return
    for outside in (slice(0, max(0, k - stride - before)), slice(max(0, (outputs - 1) * stride + k - before), None)):
        part = dx[along(axis, outside)]
        if part.size:
            part.fill(0)


@lru_cache(maxsize=4096)
def runs(k, stride, before, outputs, length):
    """[(slice of outputs, range of places)]: runs of outputs whose windows have the same places inside the image."""
    inside = [range(max(0, before - p * stride), min(k, length + before - p * stride)) for p in range(outputs)]
    starts = [p for p in range(outputs) if not p or inside[p] != inside[p - 1]]
    return [(slice(start, stop), inside[start]) for start, stop in zip(starts, [*starts[1:], outputs])]
