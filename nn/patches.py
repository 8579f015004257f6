"""The im2col algorithm of convolution."""

from math import prod

from nn import device
from nn.device import xp
from nn.gemm import matmul, product_over_rows
from nn.kernels import kernels
from nn.window import Window, matching_slices
from nn.workspace import blocks, scratch

FEW_CHANNELS = 4  # with at most so many input channels, patches are unrolled channel by channel


def padded(x, images, first, last, left, right, name):
    """A block of images with padding: (images, last - first, left + W + right, C). Pixels outside the images are zero.

    x: (n, H, W, C). images: a slice. first, last: the rows to take, from `first` to `last` - 1; they may lie outside.
    left, right: the columns of padding to add. name: of the scratch array. The result is a view of x if no padding is
    necessary and the pixels of each row are contiguous in memory, which the callers rely on.
    """
    height, width = x.shape[1:3]
    inside = slice(max(first, 0), max(min(last, height), max(first, 0)))
    contiguous_rows = x.strides[3] == x.itemsize and x.strides[2] == x.shape[3] * x.itemsize
    if inside == slice(first, last) and not left and not right and contiguous_rows:
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


class Patches:
    """The im2col algorithm: the pixels under each window are copied to a row of a matrix, which is multiplied by the kernel.

    The matrix has an additional column of ones and the kernel an additional row with the bias. So the product adds the bias,
    and in the backward pass the same column makes the product sum the gradient of the bias.
    """

    goes_block_by_block = True  # whether a pooling can process each block of outputs before it leaves the cache

    def __init__(self, window):
        self.window = window

    def pixels_computed(self, rows, columns):
        """The work for an output of this size, as a number of pixels for the cost model: simply all of them."""
        return rows * columns

    def forward(self, x, w, b, y, progress=None):
        """Write the convolution to y. b: may have no elements, if there is no bias."""
        filters = w.shape[3]
        kernel = scratch("kernel", (w.size // filters + bool(b.size), filters), w.dtype)
        kernel[: w.size // filters] = w.reshape(-1, filters)
        if b.size:
            kernel[-1] = b
        for images, rows in self.blocks(x, y.shape, progress):
            unrolled = self._unrolled(x, images, rows, y.shape[2], bool(b.size))
            part = y[images, rows]
            if part.flags.c_contiguous:
                matmul(unrolled, kernel, part.reshape(-1, filters), progress)
            else:
                product = scratch("product", part.shape, part.dtype)
                matmul(unrolled, kernel, product.reshape(-1, filters), progress)
                xp.copyto(part, product)

    def backward(self, x, w, dy, dw, db, dx=None, progress=None):
        """Write the gradients of the kernel, of the bias if db has elements, and of the input unless dx is None."""
        filters = w.shape[3]
        total = scratch("kernel gradient", (w.size // filters + bool(db.size), filters), w.dtype)
        total.fill(0)
        partial_sum = scratch("partial kernel gradient", total.shape, w.dtype)
        for images, rows in self.blocks(x, dy.shape, progress):
            unrolled = self._unrolled(x, images, rows, dy.shape[2], bool(db.size))
            product_over_rows(unrolled, dy[images, rows].reshape(-1, filters), partial_sum, progress)
            xp.add(total, partial_sum, out=total)
        dw[...] = total[: w.size // filters].reshape(w.shape)
        if db.size:
            db[...] = total[-1]
        if dx is not None:
            self.input_gradient(dy, w, dx, progress)

    def input_gradient(self, dy, w, dx, progress=None):
        """Write the gradient of the input to dx."""
        window = self._rotated_window(*dx.shape[1:3], *w.shape[2:])
        if window:
            rotated = scratch("rotated", (*window.kernel, w.shape[3], w.shape[2]), w.dtype)
            rotated[...] = w[::-1, ::-1].transpose(0, 1, 3, 2)
            Patches(window).forward(dy, rotated, w[0, 0, 0, :0], dx, progress)
        else:
            dx.fill(0)
            self._scatter(dy, w.reshape(-1, w.shape[3]), dx, progress)

    def _rotated_window(self, height, width, channels, filters):
        """The window of the convolution that computes the gradient of an input of this size, or None if there is none.

        With stride 1, the gradient of the input is the convolution of the gradient of the output with the kernel rotated by
        180 degrees, with input and output channels exchanged. None is also returned if scattering is faster.
        """
        (kh, kw), (ph, pw), outputs = self.window.kernel, self.window.padding, self.window.output(height, width)
        (top, bottom), (left, right) = [[k - 1 - p for p in pair] for k, pair in zip((kh, kw), (ph, pw))]
        window = Window((kh, kw), (1, 1), ((top, bottom), (left, right)))
        if self.window.stride != (1, 1) or min(top, bottom, left, right) < 0 or window.output(*outputs) != (height, width):
            return None
        if device.is_cpu() and prod(outputs) * scattering_cost(channels, filters) < height * width:
            return None
        return window

    def input_gradient_cost(self, height, width, channels, filters):
        """The cost of `input_gradient` for an input of this size, as a multiple of the cost of the forward pass."""
        if self._rotated_window(height, width, channels, filters):
            return height * width / max(1, prod(self.window.output(height, width)))
        return scattering_cost(channels, filters)

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
        kh, kw = self.window.kernel
        # Multiples of 4 rows, so that the tiles of the matrix product (`nn/gemm.py`) divide the block.
        return blocks(len(x), shape[1], shape[2] * kh * kw * x.shape[3] * x.itemsize, 4, progress=progress)

    def _unrolled(self, x, images, rows, columns, has_bias):
        """The matrix of the patches of a block of outputs, with a column of ones if there is a bias.

        Returns (windows, kh kw C + has_bias), row-major or as the transpose of a row-major array.
        images, rows: slices of the outputs. columns: the number of columns of the output.
        """
        (kh, kw), (sh, sw), ((top, _), (left, right)) = self.window.kernel, self.window.stride, self.window.padding
        count, height, channels = images.stop - images.start, rows.stop - rows.start, x.shape[3]
        first, pixels = rows.start * sh - top, kh * kw * channels
        block = padded(x, images, first, first + (height - 1) * sh + kh, left, right, "padded")
        if channels <= FEW_CHANNELS and sw <= 2:  # copy along the columns: runs along few channels are short
            planes = scratch("planes", (channels, *block.shape[:3]), x.dtype)
            planes[...] = block.transpose(3, 0, 1, 2)
            c, b, r, q = planes.strides
            windows = xp.lib.stride_tricks.as_strided(
                planes, (kh, kw, channels, count, height, columns), (r, q, c, b, r * sh, q * sw)
            )
            unrolled = scratch("unrolled", (pixels + has_bias, count * height * columns), x.dtype)
            xp.copyto(unrolled[:pixels].reshape(windows.shape), windows)
            unrolled[pixels:] = 1
            return unrolled.T
        b, r, q, c = block.strides
        windows = xp.lib.stride_tricks.as_strided(block, (count, height, columns, kh, kw * channels), (b, r * sh, q * sw, r, c))
        unrolled = scratch("unrolled", (count * height * columns, pixels + has_bias), x.dtype)
        step = unrolled.strides[0]
        target = xp.lib.stride_tricks.as_strided(
            unrolled, windows.shape, (height * columns * step, columns * step, step, kw * channels * x.itemsize, x.itemsize)
        )
        xp.copyto(target, windows)
        unrolled[:, pixels:] = 1
        return unrolled


def scattering_cost(channels, filters):
    """The cost of computing the gradient of the input by `_scatter`, as a multiple of the cost of the forward pass."""
    table = kernels()
    return 1 + (table.scatter_run + table.scatter_addition * channels) / max(1, 2 * channels * filters)
