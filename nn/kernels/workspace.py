"""Arrays that are allocated once and reused, ways to split work into pieces that stay in the cache, and sums of columns."""

from math import prod

from gridgrad.nn import device
from gridgrad.nn.device import xp
from gridgrad.nn.graphs import constant
from gridgrad.nn.kernels.kernel_table import kernels

DEVICE_BLOCK_BYTES = 1 << 28  # the size of a block on a GPU, which is faster with a few large calls


class Workspace:
    """Named uninitialised arrays. The memory of each grows when necessary and never shrinks."""

    def __init__(self):
        self._spaces = {}

    def __call__(self, name, shape, dtype):
        """The array called `name`, with undefined elements; an earlier one of this name may have the same memory."""
        view, flat = self._spaces.get(name, (None, None))
        if view is not None and view.shape == shape and view.dtype == dtype:
            return view
        size = prod(shape)
        if flat is None or flat.size < size or flat.dtype != dtype:
            flat = device.empty(size, dtype)
        view = flat[:size].reshape(shape)
        self._spaces[name] = view, flat
        return view

    def arrays(self):
        """All allocated arrays, flat."""
        return [flat for _, flat in self._spaces.values()]


scratch = Workspace()  # shared by the whole process, for arrays that are needed only within one call of one layer


def blocks(images, rows, row_bytes, step=1, block_bytes=None, progress=None):
    """Yield slices (images, rows) that cover a batch: several whole images or rows of one; `progress` is called after each.
    row_bytes: of a row. step: divides the rows of a block. block_bytes: about those of a block on a CPU, else the table's."""
    fit = max(1, (block_bytes or kernels().block_bytes if xp.is_cpu else DEVICE_BLOCK_BYTES) // max(1, row_bytes))
    if fit >= rows:
        count = -(-images // max(1, fit // max(1, rows)))
        many, height = -(-images // max(1, count)), max(1, rows)  # all blocks have about the same size
    else:
        many, height = 1, max(step, fit // step * step)
    for image in range(0, images, max(1, many)):
        for start in range(0, max(1, rows), height):
            yield slice(image, min(image + many, images)), slice(start, min(start + height, rows))
            if progress:
                progress()


def flat_pieces(*arrays, progress=None):
    """Tuples of flat pieces of arrays of equal size, `chunk` elements of the table each; `progress` is called after each.
    There is one piece, the arrays, if they are small, lie on a GPU, or if one of them is not contiguous."""
    chunk = kernels().chunk
    if arrays[0].size <= chunk or not xp.is_cpu or not all(array.flags.c_contiguous for array in arrays):
        return (arrays,)
    return _flat_pieces([array.reshape(-1) for array in arrays], chunk, progress)


def _flat_pieces(flat, chunk, progress):
    for start in range(0, flat[0].size, chunk):
        yield tuple(array[start : start + chunk] for array in flat)
        if progress:
            progress()


# ----- operations on every channel of arrays (.., channels)


def pieces(arrays, vectors):
    """Yield flat pieces of about `piece` elements of the table, copies if arrays are not contiguous, each with the vectors
    (channels,) in their type, repeated to its length. On a GPU arrays are matrices (.., channels), vectors as they are."""
    channels, dtype = arrays[0].shape[-1], arrays[0].dtype
    if not arrays[0].size:
        return
    if not xp.is_cpu:
        yield *(a.reshape(-1, channels) for a in arrays), *vectors
        return
    length = piece_length(arrays[0])
    # In loops over few channels NumPy is slow, so the vectors are as long as a piece.
    vectors = [_repeated(v, scratch(f"channels {i}", (length,), dtype)) for i, v in enumerate(vectors)]
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, length):
        some = [a[start : start + length] for a in flat]
        yield *some, *(v[: some[0].size] for v in vectors)


def _repeated(vector, out):
    """Fill `out`, whose size is a multiple of the vector's, with copies of the vector; returns it."""
    filled = vector.size
    out[:filled] = vector
    while filled < out.size:  # by doubling, since copies of a few elements are slow
        more = min(filled, out.size - filled)
        out[filled : filled + more] = out[:more]
        filled += more
    return out


def piece_length(x):
    """The number of elements of each of the `pieces` of x but the last."""
    return min(max(1, kernels().piece // x.shape[-1]) * x.shape[-1], x.size) if xp.is_cpu else x.size


def sums_of_pieces(x, count):
    """Uninitialised memory for `count` sums of each piece of x for each channel: (count, pieces, channels)."""
    pieces = -(-x.size // max(1, piece_length(x))) if x.size else 0
    return scratch("sums of pieces", (count, pieces, x.shape[-1]), x.dtype)


def channel_sums(piece, out):
    """Write the sums of a piece for each channel to `out`, (channels,), and return it."""
    return column_sums(piece.reshape(-1, len(out)), out)


def column_sums(a, out):
    """Write the sums of the columns of a, (rows, columns), to `out`, (columns,), and return it."""
    return xp.dot(_ones(len(a), a.dtype), a, out=out)  # three times as fast as sum(axis=0)


@constant(maxsize=64)
def _ones(count, dtype):
    """`count` ones, on the device. They must not be written to."""
    return xp.ones(count, dtype)


def copy_runs(target, source):
    """Copy an array to one of the same shape; in both, the elements along the last dimension lie side by side in memory.
    On a CPU each such run is copied as one element, which is faster where runs are short, as the channels of a pixel are."""
    if xp.is_cpu and source.shape[-1]:
        run = f"V{source.shape[-1] * source.itemsize}"
        target, source = target.view(run), source.view(run)
    xp.copyto(target, source)
