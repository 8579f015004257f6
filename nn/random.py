"""Counter-based random numbers: every draw is a function of the seed and of *global* indices.

A rank that holds a block of a weight matrix or of a dropout mask draws exactly that block of the serial one. So all grids
start from the same network, drop the same activations and see the same minibatches. The generator is Philox 4x64 (Salmon et
al., SC 2011), which computes its n-th output as fast as its first, on the host, so that all devices get the same numbers.
"""

import zlib

import numpy as np

WORDS_PER_COUNT = 4  # one increment of the Philox counter yields four 64-bit words
CHUNK_BYTES = 1 << 23  # rows are drawn in chunks of this size, which bounds the temporary memory


def _philox(seed, stream, step, count=0):
    # Without the dtype, numbers from 2^63 on would become floats.
    key = np.array([seed, zlib.crc32(stream.encode())], np.uint64)
    return np.random.Philox(key=key, counter=np.array([count, 0, step, 0], np.uint64))


def random_block(seed, stream, width, rows, columns, dtype, step=0):
    """Some rows and columns, slices or index arrays, of a global array of random integers: (len(rows), len(columns)).
    seed, stream (a name) and step select that array, which has `width` columns and endless rows of an unsigned `dtype`."""
    # Each row starts at a new Philox counter, so a block is drawn without drawing the rows before it.
    itemsize = np.dtype(dtype).itemsize
    counts = -(-width * itemsize // (8 * WORDS_PER_COUNT))  # Philox counters per row
    drawn = counts * WORDS_PER_COUNT * 8 // itemsize  # columns drawn per row, padded to whole counters

    def draw(start, stop):
        raw = _philox(seed, stream, step, start * counts).random_raw((stop - start) * counts * WORDS_PER_COUNT)
        return raw.view(dtype).reshape(stop - start, drawn)[:, :width][:, columns]

    if isinstance(rows, slice):
        runs = [(rows.start, rows.stop)]
    else:  # consecutive rows are drawn together
        rows = np.asarray(rows, np.int64)
        runs = [(run[0], run[-1] + 1) for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(run)]
    chunk = max(1, CHUNK_BYTES // (counts * 8 * WORDS_PER_COUNT))
    pieces = [draw(r, min(r + chunk, stop)) for start, stop in runs for r in range(start, stop, chunk)] or [draw(0, 0)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def uniform_block(seed, stream, width, rows, columns, bound):
    """A block, as in `random_block`, of a global matrix of uniform numbers in [-bound, bound): float64 with 24 random bits."""
    integers = random_block(seed, stream, width, rows, columns, np.uint32)
    return ((integers >> 8) * 2.0**-23 - 1.0) * bound


def permutation(seed, epoch, count, stream="order"):
    """The order in which epoch `epoch` visits `count` samples, as an index array: the same on every rank."""
    return np.random.Generator(_philox(seed, stream, epoch)).permutation(count)
