"""Operations on every channel of an array (.., channels), in pieces that stay in the cache.

Pieces are flat, and the vectors of the channels are repeated to the same length: in loops over few channels NumPy is slow.
"""

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.gemm import column_sums
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.workspace import scratch


def pieces(arrays, vectors):
    """Yield corresponding pieces of arrays (.., channels), each with the vectors (channels,) in a shape that fits them.

    On a CPU all are flat: pieces have about `piece` elements (`nn/kernels/kernel_table.py`), and vectors are repeated to as
    many. A GPU gets everything at once, as matrices with a row for each sample or pixel. The vectors are rounded to the type of
    the arrays. Pieces of contiguous arrays are views; of others they are copies.
    """
    channels, dtype = arrays[0].shape[-1], arrays[0].dtype
    if not arrays[0].size:
        return
    if not xp.is_cpu:
        yield *(a.reshape(-1, channels) for a in arrays), *(v.astype(dtype) for v in vectors)
        return
    length = piece_length(arrays[0])
    vectors = [repeated(v, scratch(f"channels {i}", (length,), dtype)) for i, v in enumerate(vectors)]
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, length):
        some = [a[start : start + length] for a in flat]
        yield *some, *(v[: some[0].size] for v in vectors)


def repeated(vector, out):
    """Fill `out`, whose size is a multiple of the vector's, with copies of the vector; returns it."""
    filled = vector.size
    out[:filled] = vector
    while filled < out.size:  # by doubling, since copies of a few elements are slow
        more = min(filled, out.size - filled)
        out[filled : filled + more] = out[:more]
        filled += more
    return out


def piece_length(x):
    """The number of elements of each piece of x but the last."""
    return min(max(1, kernels().piece // x.shape[-1]) * x.shape[-1], x.size) if xp.is_cpu else x.size


def sums_of_pieces(x, count):
    """Uninitialised memory for `count` sums of each piece of x for each channel: (count, pieces, channels)."""
    pieces = -(-x.size // max(1, piece_length(x))) if x.size else 0
    return scratch("sums of pieces", (count, pieces, x.shape[-1]), x.dtype)


def channel_sums(piece, out):
    """Write the sums of a piece for each channel to `out`, (channels,), and return it."""
    return column_sums(piece.reshape(-1, len(out)), out)
