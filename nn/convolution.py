"""Convolution of channels-last images: two algorithms based on matrix products, and the rule that chooses between them.

    y[n, p, q, f] = b[f] + sum_(i, j, c) x[n, p s + i - top, q s + j - left, c] w[i, j, c, f]

x: (n, H, W, C); w: (kh, kw, C, F); b: (F,); y: (n, P, Q, F); s: the stride. Pixels outside the image are zero.

| algorithm  | used for                                     | idea                                                        |
|------------|----------------------------------------------|-------------------------------------------------------------|
| `Patches`  | any shape                                    | im2col: a matrix of the pixels under each window, times w   |
| `Winograd` | 3x3 and 5x5 kernels, stride 1, many channels | F(m x m, r x r): m^2 outputs of (m+r-1)^2 products, not m^2 r^2 |

Both work on blocks of images and rows, so that temporary arrays stay in the cache and their size is bounded, however large
the batch is. `Patches` needs 1 MiB for the unrolled patches (or one row of them, if that is more) and the block of pixels.
`Winograd` needs four buffers of 2 MiB (or 112 tiles, if that is more: 8 MiB at 512 channels) and, in the backward pass,
three transformed kernels, each (m+r-1)^2 / r^2 times as large as the kernel. All layers share this memory. Winograd's
algorithm needs fewer operations, which is the only way to be faster than PyTorch's direct kernels on large layers: those
run near the peak speed of the processor.

Winograd's algorithm: Lavin and Gray 2016, section 4. The 2-D transforms are products with Kronecker products of the 1-D
matrices. The backward pass is the adjoint of each step. The largest relative errors in float32 are 1e-5, and 1e-6 with
`Patches`; float64 always uses `Patches`.

Both classes have the same methods, but only `Patches`, which `goes_block_by_block`, lets others work in its `blocks`. Their
argument `progress` is a function that is called after each block, or None.
"""

from fractions import Fraction
from functools import lru_cache
from math import prod

import numpy as np

from nn import device
from nn.device import xp
from nn.gemm import SMALL_PRODUCT, column_sums, divisor, matmul, product_over_rows
from nn.window import Window, matching_slices
from nn.workspace import blocks, scratch

FEW_CHANNELS = 4  # with at most so many input channels, patches are unrolled channel by channel
WINOGRAD_CHANNELS = 24  # the numbers of input and output channels from which Winograd's algorithm is faster
WINOGRAD_BYTES = 1 << 21  # the size of each buffer for a block
FEWEST_TILES = 112  # the fewest tiles in a block, even if the buffers get larger than that
# The cost model of `_scatter`: adding a run of channels to a pixel takes as long as RUN_COST + ADDITION_COST * channels
# operations of a matrix product.
ADDITION_COST, RUN_COST = 100, 1500


def algorithm(window, channels, filters, rows, columns, dtype):
    """The algorithm for a layer: a Patches or Winograd object. This is the only place where it is chosen.

    window: the Window of the layer. channels, filters: C and F. rows, columns: P and Q. dtype: that of the arrays.
    The choice depends on these and on the kind of device only, never on the batch size or a measurement, so results are
    bitwise reproducible. A GPU always uses `Patches`, in large blocks, because its library is best at large products.
    """
    kh, kw = window.kernel
    winograd_applies = kh == kw and kh in (3, 5) and window.stride == (1, 1) and dtype == np.float32
    if winograd_applies and device.is_cpu() and min(channels, filters) >= WINOGRAD_CHANNELS:
        # Outputs are computed in whole tiles: take the tile size that needs the fewest products, as parts beyond the image
        # are wasted. Winograd's algorithm must at least halve the products, or the transforms cost more than it saves.
        best = min((Winograd(window, m) for m in (4, 3)), key=lambda one: one.tile_count(rows, columns) * one.n**2)
        if 2 * best.tile_count(rows, columns) * best.n**2 <= rows * columns * kh * kw:
            return best
    return Patches(window)


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
    return 1 + (RUN_COST + ADDITION_COST * channels) / max(1, 2 * channels * filters)


# The points at which Cook-Toom evaluates polynomials, in the order of use. Small numbers keep rounding errors small.
POINTS = (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2))


@lru_cache
def transforms(m, r):
    """The matrices of Winograd's F(m, r): (A^T, G, B^T) such that y = A^T ((G g) * (B^T d)).

    g: a kernel of r elements; d: m + r - 1 inputs; y: m outputs; *: elementwise. The matrices are (m, n), (n, r) and (n, n)
    with n = m + r - 1, computed exactly as rationals and rounded once to float64.

    Cook-Toom's construction: polynomials of degree < m and < r are evaluated at n points, the last of which is infinity.
    B^T is the transposed inverse of the evaluation, scaled so that its entries stay small.
    """
    n = m + r - 1
    points = POINTS[: n - 1]

    def evaluation(degree):
        return [[Fraction(p) ** k for k in range(degree)] for p in points] + [
            [Fraction(k == degree - 1) for k in range(degree)]
        ]

    inverse = _inverted(evaluation(n))
    scales = []
    for p in points:
        scale = Fraction(1)
        for q in points:
            scale *= p - q if p != q else 1
        scales.append(scale)
    scales.append(Fraction(1))
    b = [[inverse[k][i] * scales[i] for k in range(n)] for i in range(n)]
    g = [[value / scale for value in row] for row, scale in zip(evaluation(r), scales)]
    a = [list(column) for column in zip(*evaluation(m))]
    return tuple(np.array([[float(v) for v in row] for row in matrix]) for matrix in (a, g, b))


def _inverted(matrix):
    """The inverse of a square matrix of Fractions, by Gauss-Jordan elimination."""
    n = len(matrix)
    rows = [list(row) + [Fraction(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(k for k in range(i, n) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(n):
            if k != i and rows[k][i]:
                rows[k] = [v - rows[k][i] * u for v, u in zip(rows[k], rows[i])]
    return [row[n:] for row in rows]


@lru_cache
def kronecker_transforms(m, r, dtype):
    """The 2-D matrices of F(m x m, r x r), on the device: the Kronecker product of each matrix of `transforms` with itself."""
    return tuple(device.to_device(np.kron(matrix, matrix).astype(dtype)) for matrix in transforms(m, r))


class Winograd:
    """Winograd's F(m x m, r x r): tiles of the image and the kernel are transformed, multiplied elementwise, transformed back.

    A tile of n x n pixels with n = m + r - 1 gives m x m outputs. The elementwise products, summed over the channels, are
    n^2 matrix products (tiles, C) x (C, F), one for each of the n^2 points of a transformed tile.
    """

    goes_block_by_block = False

    def __init__(self, window, m=4):
        self.window, self.m, self.r = window, m, window.kernel[0]
        self.n = m + self.r - 1

    def tile_count(self, rows, columns):
        """The number of tiles that cover an output of rows x columns pixels."""
        return prod(self._tile_grid(slice(0, rows), columns))

    def pixels_computed(self, rows, columns):
        """The work for an output of this size, as a number of pixels for the cost model.

        The model's tables were measured with tiles of 4 x 4 outputs, so this is the number of pixels for which such tiles
        need as many products.
        """
        return self.tile_count(rows, columns) * 16 * (self.n / (3 + self.r)) ** 2

    def input_gradient_cost(self, height, width, channels, filters):
        """The cost of `input_gradient`, as a multiple of the cost of the forward pass: it takes the same products again."""
        return 1

    def forward(self, x, w, b, y, progress=None):
        """Write the convolution to y. b: may have no elements, if there is no bias."""
        out, kernel_transform, into = kronecker_transforms(self.m, self.r, x.dtype)
        kernel = self._kernel(kernel_transform, w)
        filters = w.shape[3]
        for images, rows in self._blocks(x, y, progress):
            tiles = self._image_tiles(x, images, rows, y.shape[2])
            points = self._transformed(into, tiles, "points")
            shape = tiles.shape[2:5]
            products = scratch("products", (self.n**2, points.shape[1], filters), x.dtype)
            xp.matmul(points, kernel, out=products)
            results = scratch("results", (self.m, self.m, *shape, filters), x.dtype)
            transform(out, products.reshape(self.n**2, -1), results.reshape(self.m**2, -1))
            part = y[images, rows]
            self._place(results, b, part)

    def _place(self, results, b, part):
        """Write results, (m, m, images, tile rows, tile columns, F), plus the bias to `part`, a block of outputs."""
        for i in range(self.m):
            for j in range(self.m):
                target = part[:, i :: self.m, j :: self.m]
                source = results[i, j, :, : target.shape[1], : target.shape[2]]
                if b.size:
                    xp.add(source, b, out=target)
                else:
                    xp.copyto(target, source)

    def backward(self, x, w, dy, dw, db, dx=None, progress=None):
        """Write the gradients of the kernel, of the bias if db has elements, and of the input unless dx is None."""
        out, kernel_transform, into = kronecker_transforms(self.m, self.r, x.dtype)
        kernel = self._kernel(kernel_transform, w) if dx is not None else None
        kernel_gradient = scratch("kernel gradient", (self.n**2, *w.shape[2:]), w.dtype)
        kernel_gradient.fill(0)
        partial_sum = scratch("partial kernel gradient", kernel_gradient.shape, w.dtype)
        db.fill(0)
        sums = scratch("column sums", db.shape, db.dtype)
        if dx is not None:
            dx.fill(0)
        for images, rows in self._blocks(x, dy, progress):
            tiles = self._image_tiles(x, images, rows, dy.shape[2])
            points = self._transformed(into, tiles, "points")
            products = self._product_gradients(out, dy, images, rows)
            xp.matmul(points.transpose(0, 2, 1), products, out=partial_sum)
            xp.add(kernel_gradient, partial_sum, out=kernel_gradient)
            if db.size:
                xp.add(db, column_sums(dy[images, rows].reshape(-1, w.shape[3]), sums), out=db)
            if dx is not None:
                self._to_pixels(products, kernel, into, tiles.shape[2:5], images, rows, dx)
        flat = kernel_gradient.reshape(self.n**2, -1)
        transform(kernel_transform.T, flat, dw.reshape(self.r**2, -1))

    def input_gradient(self, dy, w, dx, progress=None):
        """Write the gradient of the input to dx."""
        out, kernel_transform, into = kronecker_transforms(self.m, self.r, dy.dtype)
        kernel = self._kernel(kernel_transform, w)
        dx.fill(0)
        for images, rows in self._blocks(dx, dy, progress):
            products = self._product_gradients(out, dy, images, rows)
            shape = (images.stop - images.start, *self._tile_grid(rows, dy.shape[2]))
            self._to_pixels(products, kernel, into, shape, images, rows, dx)

    def _to_pixels(self, products, kernel, into, shape, images, rows, dx):
        """Add the gradient of the input for one block to dx.

        products: the gradients of the products, (n^2, tiles, F). kernel: the transformed one. shape: (images, tile rows,
        tile columns).
        """
        points = scratch("points", (*products.shape[:2], kernel.shape[1]), dx.dtype)
        xp.matmul(products, kernel.transpose(0, 2, 1), out=points)
        tiles = scratch("tiles", (self.n, self.n, *shape, kernel.shape[1]), dx.dtype)
        transform(into.T, points.reshape(self.n**2, -1), tiles.reshape(self.n**2, -1))
        self._scatter(tiles, images, rows, dx)

    def _kernel(self, kernel_transform, w):
        """The transformed kernel: (n^2, C, F)."""
        kernel = scratch("kernel", (self.n**2, *w.shape[2:]), w.dtype)
        transform(kernel_transform, w.reshape(self.r**2, -1), kernel.reshape(self.n**2, -1))
        return kernel

    def _blocks(self, x, y, progress):
        """Yield slices (images, rows) of the output whose tiles fit the cache. x, y: arrays like the input and the output."""
        tile = self.n**2 * max(x.shape[3], y.shape[3]) * x.itemsize
        # Each block reads the whole transformed kernel, so a block needs enough tiles for this to be negligible.
        most = max(WINOGRAD_BYTES, FEWEST_TILES * tile)
        return blocks(len(x), y.shape[1], -(-y.shape[2] // self.m) * tile // self.m, self.m, most, progress)

    def _tile_grid(self, rows, columns):
        """(rows, columns) of the grid of tiles that covers the slice `rows` of the outputs. columns: those of the output."""
        return -(-(rows.stop - rows.start) // self.m), -(-columns // self.m)

    def _image_tiles(self, x, images, rows, columns):
        """The overlapping tiles of n x n pixels for a block of outputs: (n, n, images, tile rows, tile columns, C)."""
        (top, _), (left, _) = self.window.padding
        down, across = self._tile_grid(rows, columns)
        first = rows.start - top
        right = max(0, across * self.m + self.r - 1 - left - x.shape[2])
        block = padded(x, images, first, first + down * self.m + self.r - 1, left, right, "padded")
        return self._tiles(block, self.n, down, across, "tiles")

    def _tiles(self, block, size, down, across, name):
        """The tiles of size x size pixels that start at every m-th pixel: (size, size, images, down, across, channels).

        block: (images, rows, columns, channels). down, across: the number of tiles. name: of the scratch array.
        """
        b, r, q, c = block.strides
        view = xp.lib.stride_tricks.as_strided(
            block, (size, size, len(block), down, across, block.shape[3]), (r, q, b, self.m * r, self.m * q, c)
        )
        tiles = scratch(name, view.shape, block.dtype)
        xp.copyto(tiles, view)
        return tiles

    def _transformed(self, matrix, tiles, name):
        """The tiles after multiplication by a 2-D transform: (n^2, tiles, channels). name: of the scratch array."""
        flat = tiles.reshape(-1, tiles.shape[2] * tiles.shape[3] * tiles.shape[4] * tiles.shape[5])
        points = scratch(name, (len(matrix), flat.shape[1]), tiles.dtype)
        transform(matrix, flat, points)
        return points.reshape(len(matrix), -1, tiles.shape[5])

    def _product_gradients(self, out, dy, images, rows):
        """The gradients of the products for a block of outputs: (n^2, tiles, F)."""
        down, across = self._tile_grid(rows, dy.shape[2])
        stop = rows.start + down * self.m
        block = padded(dy, images, rows.start, stop, 0, across * self.m - dy.shape[2], "padded gradient")
        return self._transformed(out.T, self._tiles(block, self.m, down, across, "results"), "products")

    def _scatter(self, tiles, images, rows, dx):
        """Add the gradients of tiles, which overlap, to the pixels of dx."""
        (top, _), (left, _) = self.window.padding
        for i in range(self.n):
            p, r = matching_slices(i - top, self.m, tiles.shape[3], dx.shape[1], rows.start // self.m)
            for j in range(self.n):
                q, c = matching_slices(j - left, self.m, tiles.shape[4], dx.shape[2])
                target = dx[images, r, c]
                xp.add(target, tiles[i, j, :, p, q], out=target)


def transform(matrix, data, out):
    """Write matrix @ data to out, for a small matrix (m, k) and data (k, columns) with many columns.

    On a CPU the columns are divided into groups of 32 to 512, for which OpenBLAS does not pack: see `nn/gemm.py`.
    """
    width = divisor(data.shape[1], min(512, SMALL_PRODUCT // matrix.size)) if device.is_cpu() else 0
    if width < 32:
        xp.matmul(matrix, data, out=out)
        return
    groups = data.shape[1] // width
    cut = lambda a: a.reshape(len(a), groups, width).transpose(1, 0, 2)  # noqa: E731
    xp.matmul(matrix, cut(data), out=cut(out))
