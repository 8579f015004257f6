"""The im2col algorithm of convolution: the pixels under each window become a row of a matrix, and that is multiplied.

It works on blocks of images and rows, so that the unrolled patches stay in the cache and their memory is bounded.
"""

from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.gemm import divisor, matmul, product_over_rows
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.window import matching_slices, turned_convolutions
from gridgrad.nn.kernels.workspace import blocks, column_sums, copy_runs, pieces, scratch

FEW_CHANNELS = 4  # with at most so many input channels, patches are unrolled channel by channel
FEWEST_WINDOWS = 256  # the fewest windows in a block, even if it gets larger than usual: each block reads the whole kernel


def padded(x, images, first, last, left, right, name):
    """A block of images, (images, last - first, left + W + right, C), zero outside the images, where the rows `first` and
    `last` - 1 may lie: the scratch array `name`, or a view of x if nothing is to be added and the pixels of each row are
    contiguous in memory, which the callers rely on. left, right: the columns to add."""
    height, width = x.shape[1:3]
    inside = slice(max(first, 0), max(min(last, height), max(first, 0)))
    if inside == slice(first, last) and not left and not right and rows_are_contiguous(x):
        return x[images, first:last]
    count = images.stop - images.start
    block = scratch(name, (count, last - first, left + width + right, x.shape[3]), x.dtype)
    top = inside.start - first
    bottom = top + inside.stop - inside.start
    block[:, :top] = 0
    block[:, bottom:] = 0
    block[:, top:bottom, :left] = 0
    block[:, top:bottom, left + width :] = 0
    block[:, top:bottom, left : left + width] = x[images, inside]
    return block


def rows_are_contiguous(part):
    """Whether the pixels of each row of a block (images, rows, columns, channels) lie side by side in memory."""
    return part.strides[3] == part.itemsize and part.strides[2] == part.shape[3] * part.itemsize


def add_bias(part, b):
    """Add the bias to a block of outputs, (images, rows, columns, F). b: (F,), or empty if there is none."""
    if not b.size:
        return
    if not part.flags.c_contiguous:
        xp.add(part, b, out=part)
        return
    for piece, bias in pieces((part,), (b,)):
        xp.add(piece, bias, out=piece)


def add_bias_gradient(part, db):
    """Add the gradient of the bias from a block of gradients of outputs, (images, rows, columns, F), to db: (F,), or empty."""
    if db.size:
        xp.add(db, column_sums(part.reshape(-1, db.size), scratch("bias sums", db.shape, db.dtype)), out=db)


class Patches:
    """The convolution of one window, which may be any."""

    goes_block_by_block = True  # whether a pooling can process each block of outputs before it leaves the cache

    def __init__(self, window):
        self.window = window

    def pixels_computed(self, rows, columns):
        """The work for an output of this size, as a number of pixels for the cost model: all of them."""
        return rows * columns

    def cost(self, table, channels, filters, rows, columns, images):
        """The cost of a training step for an output of this size, in operations of a large matrix product."""
        pixel = products_cost(table, channels, filters) + table.unroll * (2 * channels + filters)
        return prod(self.window.kernel) * (images * rows * columns * pixel + 3 * table.read_kernel * channels * filters)

    def forward(self, x, w, b, y, progress=None):
        """Write the convolution to y. b: may have no elements, if there is no bias."""
        for images, rows in self.blocks(x, y.shape, progress):
            part = y[images, rows]
            target = part if part.flags.c_contiguous else scratch("product", part.shape, part.dtype)
            self._multiply(x, images, rows, w, target, progress)
            add_bias(target, b)
            if target is not part:
                xp.copyto(part, target)

    def backward(self, x, w, dy, dw, db, dx=None, progress=None):
        """Write the gradients of the kernel, of the bias if db has elements, and of the input unless dx is None."""
        partial_sum = scratch("partial kernel gradient", w.shape, w.dtype)
        db.fill(0)
        for number, (images, rows) in enumerate(self.blocks(x, dy.shape, progress)):
            gradient = dy[images, rows]
            self._sum_products(x, images, rows, gradient, partial_sum if number else dw, progress)
            if number:
                xp.add(dw, partial_sum, out=dw)
            add_bias_gradient(gradient, db)
        if dx is not None:
            self.input_gradient(dy, w, dx, progress)

    def _multiply(self, x, images, rows, w, target, progress):
        """Write a block of outputs to `target`, (images, rows, columns, F)."""
        unrolled, filters = self._unrolled(x, images, rows, target.shape[2]), w.shape[3]
        matmul(unrolled, w.reshape(-1, filters), target.reshape(-1, filters), progress)

    def _sum_products(self, x, images, rows, gradient, dw, progress):
        """Write the gradient of the kernel from a block of gradients of outputs, (images, rows, columns, F), to dw."""
        unrolled, filters = self._unrolled(x, images, rows, gradient.shape[2]), dw.shape[3]
        product_over_rows(unrolled, gradient.reshape(-1, filters), dw.reshape(-1, filters), progress)

    def input_gradient(self, dy, w, dx, progress=None):
        """Write the gradient of the input to dx."""
        if self._scattering_pays(*dx.shape, w.shape[3]):
            dx.fill(0)
            self._scatter(dy, w.reshape(-1, w.shape[3]), dx, progress)
            return
        for window, gradients, turned, part in turned_convolutions(self.window, dy, w, dx):
            self.of(window, gradients.shape[3]).forward(gradients, turned, w[0, 0, 0, :0], part, progress)

    def of(self, window, channels):
        """The algorithm for the convolutions that compute the gradient of the input."""
        return unrolling(window, channels)

    def _scattering_pays(self, images, height, width, channels, filters):
        """Whether `_scatter` is the faster way to the gradient of an input of this size."""
        if not xp.is_cpu:
            return False
        outputs = images * prod(self.window.output(height, width))
        products = 2 * channels * filters
        turning = images * height * width / prod(self.window.stride) * products + kernels().turn_kernel * channels * filters
        return outputs * scattering_cost(channels, filters) * products < turning

    def input_gradient_cost(self, images, height, width, channels, filters):
        """The cost of `input_gradient` for an input of this size, as a multiple of the cost of the forward pass."""
        if self._scattering_pays(images, height, width, channels, filters):
            return scattering_cost(channels, filters)
        return height * width / max(1, prod(self.window.stride) * prod(self.window.output(height, width)))

    def _scatter(self, dy, kernel, dx, progress):
        """Add the gradients that each window passes back to the pixels under it. kernel: (kh kw C, F)."""
        (kh, kw), (sh, sw), ((top, _), (left, _)) = self.window.kernel, self.window.stride, self.window.padding
        n, height, width, channels = dx.shape
        for images, rows in self.blocks(dx, dy.shape, progress):
            g = dy[images, rows]
            pixel_gradients = scratch("unrolled", (*g.shape[:3], kh, kw, channels), dx.dtype)
            matmul(g.reshape(-1, g.shape[3]), kernel.T, pixel_gradients.reshape(-1, kernel.shape[0]), progress)
            for i in range(kh):
                p, r = matching_slices(i - top, sh, g.shape[1], height, rows.start)
                for j in range(kw):
                    q, c = matching_slices(j - left, sw, g.shape[2], width)
                    target = dx[images, r, c]
                    xp.add(target, pixel_gradients[:, p, q, i, j], out=target)

    def blocks(self, x, shape, progress=None):
        """Yield slices (images, rows) of outputs whose patches fit the cache. x: the input. shape: that of all outputs."""
        patch = prod(self.window.kernel) * x.shape[3] * x.itemsize
        # Multiples of 4 rows, so that the tiles of the matrix product (`nn/kernels/gemm.py`) divide the block.
        return blocks(len(x), shape[1], shape[2] * patch, 4, max(kernels().block_bytes, FEWEST_WINDOWS * patch), progress)

    def _unrolled(self, x, images, rows, columns):
        """The patches of a block of outputs: (windows, kh kw C), row-major or the transpose of such. images, rows: slices."""
        (kh, kw), (sh, sw), ((top, _), (left, right)) = self.window.kernel, self.window.stride, self.window.padding
        count, height, channels = images.stop - images.start, rows.stop - rows.start, x.shape[3]
        first, pixels = rows.start * sh - top, kh * kw * channels
        block = padded(x, images, first, first + (height - 1) * sh + kh, left, right, "padded")
        if (kh, kw, sh, sw) == (1, 1, 1, 1) and block.flags.c_contiguous:
            return block.reshape(-1, channels)
        if channels <= FEW_CHANNELS and sw <= 2:  # copy along the columns: runs along few channels are short
            planes = scratch("planes", (channels, *block.shape[:3]), x.dtype)
            planes[...] = block.transpose(3, 0, 1, 2)
            c, b, r, q = planes.strides
            shape = kh, kw, channels, count, height, columns
            windows = xp.lib.stride_tricks.as_strided(planes, shape, (r, q, c, b, r * sh, q * sw))
            unrolled = scratch("unrolled", (pixels, count * height * columns), x.dtype)
            copy = copy_runs if sw == 1 else xp.copyto
            copy(unrolled.reshape(windows.shape), windows)
            return unrolled.T
        b, r, q, c = block.strides
        windows = xp.lib.stride_tricks.as_strided(block, (count, height, columns, kh, kw * channels), (b, r * sh, q * sw, r, c))
        unrolled = scratch("unrolled", (count * height * columns, pixels), x.dtype)
        copy_runs(unrolled.reshape(windows.shape), windows)
        return unrolled


class RowPatches(Patches):
    """The convolution of a window that moves down by single rows, with patches of one row of the kernel, which are multiplied
    with each row of the kernel. So copies cost less and products more: for few channels this is faster."""

    ROWS_OF_PRODUCT = 256  # about so many patches are multiplied at once

    def blocks(self, x, shape, progress=None):
        kh, kw = self.window.kernel
        row = shape[2] * (kw * x.shape[3] + kh * shape[3]) * x.itemsize
        return blocks(len(x), shape[1], row, 4, progress=progress)

    def _row_patches(self, x, images, rows, columns):
        """The patches of each row of the kernel: (kh, images, groups of rows, patches, kw C), which overlap in memory."""
        (kh, kw), (_, sw), ((top, _), (left, right)) = self.window.kernel, self.window.stride, self.window.padding
        count, height, channels = images.stop - images.start, rows.stop - rows.start, x.shape[3]
        first = rows.start - top
        block = padded(x, images, first, first + height + kh - 1, left, right, "padded")
        b, r, q, c = block.strides
        windows = xp.lib.stride_tricks.as_strided(block, (count, height + kh - 1, columns, kw * channels), (b, r, q * sw, c))
        unrolled = scratch("unrolled", windows.shape, x.dtype)
        copy_runs(unrolled, windows)
        group = divisor(height, max(1, self.ROWS_OF_PRODUCT // columns))
        b, r, q, c = unrolled.strides
        shape = kh, count, height // group, group * columns, kw * channels
        return xp.lib.stride_tricks.as_strided(unrolled, shape, (r, b, group * r, q, c))

    def _multiply(self, x, images, rows, w, target, progress):
        patches, (kh, kw, channels, filters) = self._row_patches(x, images, rows, target.shape[2]), w.shape
        products = scratch("product of rows", (*patches.shape[:-1], filters), x.dtype)
        xp.matmul(patches, w.reshape(kh, 1, 1, kw * channels, filters), out=products)
        products = products.reshape(kh, *target.shape)
        xp.add(products[0], products[1], out=target)
        for others in products[2:]:
            xp.add(target, others, out=target)

    def _sum_products(self, x, images, rows, gradient, dw, progress):
        patches = self._row_patches(x, images, rows, gradient.shape[2])
        kh, count, groups, size, pixels = patches.shape
        products = scratch("product of rows", (kh, count * groups, pixels * dw.shape[3]), x.dtype)
        gradient = gradient.reshape(1, count, groups, size, -1)
        xp.matmul(patches.transpose(0, 1, 2, 4, 3), gradient, out=products.reshape(kh, count, groups, pixels, -1))
        for some, out in zip(products, dw, strict=True):
            column_sums(some, out.reshape(-1))


def unrolling(window, channels):
    """The way to unroll patches for a window, and images with so many channels: a Patches or RowPatches object."""
    several = xp.is_cpu and window.kernel[0] > 1 and window.stride[0] == 1
    return RowPatches(window) if several and FEW_CHANNELS < channels <= kernels().row_channels else Patches(window)


def products_cost(table, channels, filters):
    """The cost of the products of one element of a kernel in a training step: forward, gradients, gradient of the input."""
    to_filters, to_channels = (1 + table.narrow / columns for columns in (filters, channels))
    return 2 * channels * filters * (2 * to_filters + to_channels)


def scattering_cost(channels, filters):
    """The cost of computing the gradient of the input by `_scatter`, as a multiple of the cost of the forward pass."""
    return 1 + (kernels().scatter_run + kernels().scatter_addition * channels) / max(1, 2 * channels * filters)
