"""Arrays that are allocated once and reused, and ways to split work into blocks that stay in the cache."""

from math import prod

from gridgrad.nn import device
from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import kernels

DEVICE_BLOCK_BYTES = 1 << 28  # the size of a block on a GPU, which is faster with a few large calls


class Workspace:
    """Named uninitialised arrays. The memory of each grows when necessary and never shrinks."""

    def __init__(self):
        self._spaces = {}

    def __call__(self, name, shape, dtype):
        """The array called `name`, with this shape and dtype and undefined elements.

        It may share its memory with the array that an earlier call returned for the same name.
        """
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


def flat_pieces(*arrays, progress=None):
    """Yield tuples of corresponding flat pieces of arrays of equal size, on a CPU so many at a time as the table says.

    The arrays are yielded whole if they are small, lie on a GPU, or if one of them is not contiguous.
    progress: a function that is called after each piece, or None.
    """
    size = arrays[0].size
    chunk = kernels().chunk
    if size <= chunk or not xp.is_cpu or not all(array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, size, chunk):
        yield tuple(array[start : start + chunk] for array in flat)
        if progress:
            progress()


def blocks(images, rows, row_bytes, step=1, block_bytes=None, progress=None):
    """Yield slices (images, rows) that together cover a batch; each is a block of several whole images or of rows of one.

    images, rows: the number of images and of rows per image. row_bytes: the memory that one row takes in a block.
    step: a block of rows has a multiple of so many rows, except the last. block_bytes: the approximate size of a block on a
    CPU, by default `block_bytes` of the table (`nn/kernels/kernel_table.py`); on a GPU it is always DEVICE_BLOCK_BYTES.
    progress: a function that is called after each block, or None.
    """
    fit = max(1, (block_bytes or kernels().block_bytes if xp.is_cpu else DEVICE_BLOCK_BYTES) // max(1, row_bytes))
    if fit >= rows:
        count = -(-images // max(1, fit // max(1, rows)))
        many = -(-images // max(1, count))  # images per block, so that all blocks have about the same size
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


def copy_runs(target, source):
    """Copy an array to one of the same shape; in both, the elements along the last dimension lie one after another in memory.

    On a CPU each such run is copied as one element, which is faster where runs are short, as the channels of a pixel are.
    """
    if xp.is_cpu and source.shape[-1]:
        run = f"V{source.shape[-1] * source.itemsize}"
        target, source = target.view(run), source.view(run)
    xp.copyto(target, source)
