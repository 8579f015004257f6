"""The convolution without patches, for GPUs: one product of matrices for each pixel of the kernel, added in place.

The rows and columns of the input that a pixel (i, j) of the kernel sees are those of pixel (0, 0), shifted. Where images have
their padding, their pixels are the rows of one matrix, (pixels, C), and shifted pixels are its rows from another one on:

    y[r] = sum_(i, j) x[r + i W + j] w[i, j],    W: the width with padding

So nothing is copied as often as there are pixels in a kernel. Sums in the last columns and rows of each image, where windows
reach beyond it, are not copied to the output. With a stride of s every s-th row and column, from each of the first s on, is an
image of its own, in which the kernel moves by single pixels.
"""

from itertools import product

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.patches import FEW_CHANNELS, Patches
from gridgrad.nn.kernels.window import matching_slices
from gridgrad.nn.kernels.workspace import blocks, scratch

# What copying an element of a patch costs, in operations of a product: measured on an H200 for 14 to 224 pixels a side and
# 64 to 512 channels, where it predicts which way is faster, and the ratio to 10 %.
UNROLL = 116


class Shifted(Patches):
    """The convolution of one window by shifted products."""

    @classmethod
    def pays(cls, window, channels, filters, rows, columns):
        """Whether it does less work than patches for an output of rows x columns."""
        if window.kernel == (1, 1) or channels <= FEW_CHANNELS or not rows * columns:
            return False
        down, across = cls(window).reach
        computed = (rows + down) * (columns + across) / (rows * columns)
        return computed * 2 * filters < 2 * filters + UNROLL

    def blocks(self, x, shape, progress=None):
        return blocks(len(x), shape[1], shape[2] * (x.shape[3] + shape[3]) * x.itemsize, progress=progress)

    def of(self, window, channels):
        return Shifted(window)

    @property
    def reach(self):
        """How many outputs further down and to the right the last row and column of a kernel lie."""
        return tuple((k - 1) // stride for k, stride in zip(self.window.kernel, self.window.stride))

    def _multiply(self, x, images, rows, w, target, progress):
        places, length, shape = self._places(x, images, rows, target.shape[2])
        wide = scratch("shifted products", (*shape, w.shape[3]), x.dtype)
        sums = wide.reshape(-1, w.shape[3])[:length]
        for number, ((i, j), pixels) in enumerate(places):
            if number:
                xp.add_product(pixels, w[i, j], sums)
            else:
                xp.matmul(pixels, w[i, j], out=sums)
        xp.copyto(target, wide[:, : target.shape[1], : target.shape[2]])

    def _sum_products(self, x, images, rows, gradient, dw, progress):
        (_, height, width, filters) = gradient.shape
        places, length, shape = self._places(x, images, rows, width)
        wide = scratch("shifted products", (*shape, filters), x.dtype)
        wide[:, height:] = 0
        wide[:, :height, width:] = 0
        wide[:, :height, :width] = gradient
        for (i, j), pixels in places:
            xp.matmul(pixels.T, wide.reshape(-1, filters)[:length], out=dw[i, j])

    def _places(self, x, images, rows, columns):
        """([((i, j), pixels that this pixel of the kernel sees, (length, C))], length, (images, rows, columns) of the sums)."""
        (kh, kw), (sh, sw), ((top, _), (left, _)) = self.window.kernel, self.window.stride, self.window.padding
        down, across = self.reach
        shape = images.stop - images.start, rows.stop - rows.start + down, columns + across
        flat = {}
        for i, j in product(range(min(kh, sh)), range(min(kw, sw))):
            image = scratch(f"every row and column from {i} and {j} on", (*shape, x.shape[3]), x.dtype)
            p, r = matching_slices(i - top, sh, shape[1], x.shape[1], rows.start)
            q, c = matching_slices(j - left, sw, shape[2], x.shape[2])
            for outside in (slice(0, p.start), slice(p.stop, None)):
                image[:, outside] = 0
            for outside in (slice(0, q.start), slice(q.stop, None)):
                image[:, p, outside] = 0
            image[:, p, q] = x[images, r, c]
            flat[i, j] = image.reshape(-1, x.shape[3])
        length = shape[0] * shape[1] * shape[2] - down * shape[2] - across
        places = []
        for i, j in product(range(kh), range(kw)):
            shift = i // sh * shape[2] + j // sw
            places.append(((i, j), flat[i % sh, j % sw][shift : shift + length]))
        return places, length, shape
