"""Arrays that are allocated once and used again, and work cut into blocks that stay in the cache."""

from math import prod

from nn import device

CHUNK = 1 << 16  # elements of a piece of an elementwise pass or of an update on a CPU
BLOCK_BYTES = 1 << 20  # of a block on a CPU: half a second-level cache
DEVICE_BLOCK_BYTES = 1 << 28  # on a GPU, which wants few large calls


class Workspace:
    """Named uninitialised arrays, grown when needed and never shrunk."""

    def __init__(self):
        self._spaces = {}

    def __call__(self, name, shape, dtype):
        """An array of `shape` under `name`: what was there before is lost."""
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
        """What was allocated."""
        return [flat for _, flat in self._spaces.values()]


scratch = Workspace()  # of the whole process: arrays that live within one call of one layer


def flat_pieces(*arrays, progress=None):
    """The arrays, all of one size, side by side in flat pieces of CHUNK elements; whole if one is not contiguous.

    progress: called behind each piece.
    """
    size = arrays[0].size
    if size <= CHUNK or not device.is_cpu() or not all(array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, size, CHUNK):
        yield tuple(array[start : start + CHUNK] for array in flat)
        if progress:
            progress()


def blocks(images, rows, row_bytes, step=1, block_bytes=None, progress=None):
    """Slices (images, rows) that cover a batch, of about `block_bytes` (BLOCK_BYTES) each: several images, or rows of one.

    row_bytes: what one row takes. step: rows come in multiples of it. On a GPU blocks have DEVICE_BLOCK_BYTES.
    progress: called behind each block.
    """
    fit = max(1, (block_bytes or BLOCK_BYTES if device.is_cpu() else DEVICE_BLOCK_BYTES) // max(1, row_bytes))
    if fit >= rows:
        count = -(-images // max(1, fit // max(1, rows)))
        many = -(-images // max(1, count))  # blocks of about the same size
        for start in range(0, images, max(1, many)):
            yield slice(start, min(start + many, images)), slice(0, rows)
            if progress:
                progress()
    else:
        fit = max(step, fit // step * step)
        for image in range(images):
            for start in range(0, rows, fit):
                yield slice(image, image + 1), slice(start, min(start + fit, rows))
                if progress:
                    progress()
