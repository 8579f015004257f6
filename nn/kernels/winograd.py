"""Winograd's convolution, in two dimensions and along the columns of images only.

Tiles of n x n pixels, with n = m + r - 1, give m x m outputs with n^2 products instead of m^2 r^2. With m = 4 and a kernel of
r = 3, these are four times fewer. A tile d and a kernel g are transformed, multiplied elementwise, and the products transformed
back (Lavin and Gray 2016, section 4):

    Y = A^T ((G g G^T) * (B^T d B)) A

In two dimensions the elementwise products, summed over the channels, are a matrix product (tiles, C) x (C, F) for each of the
n^2 points of a transformed tile. The transforms are matrix products, too, first along the rows of the image, then along its
columns, each with its own m. They read overlapping tiles where they lie, as views with strides. Backward goes by the adjoint of
each step.

In one dimension, m rows of outputs are computed with n = m + kh - 1 products of rows instead of m kh, down the image. Each of
these is a convolution with a kernel of one row. For output column q it multiplies the pixels q to q + kw - 1 of a transformed
row, which lie side by side in memory, with a matrix (kw C, F), for the tiles of all images in a block at once. So nothing is
unrolled, and the matrices have kw times as many columns as in two dimensions, where transforms are slow for few channels.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import add_bias, add_bias_gradient, padded, products_cost, rows_are_contiguous
from gridgrad.nn.kernels.window import matching_slices, turned_convolutions
from gridgrad.nn.kernels.workspace import blocks, column_sums, scratch

# The sizes of tiles for a kernel of so many rows and columns. Larger tiles have larger rounding errors.
TILES = {3: ((4, 4), (4, 2), (2, 4), (2, 2)), 5: ((3, 2), (2, 3), (2, 2))}
GRADIENTS_AT_ONCE = 1 << 20  # the elements of the gradients of transformed kernels that are computed at a time
KERNELS_AT_ONCE = 1 << 12  # so many kernels are transformed at once, so that they stay in the cache
# Products are summed over so many channels at a time, because the transforms amplify the rounding errors of long sums: more so
# the transforms with many points, which are the keys.
CHANNELS_AT_ONCE = {4: 128, 5: 128, 6: 128, 7: 64}

# The finite points at which Cook-Toom evaluates polynomials, for transforms with n points: of many sets of small fractions,
# those with the smallest rounding errors.
POINTS = {
    4: (0, 1, -1),
    5: (0, Fraction(3, 4), Fraction(-3, 4), Fraction(5, 3)),
    6: (0, Fraction(2, 3), Fraction(-2, 3), Fraction(3, 2), Fraction(-3, 2)),
    7: (0, 1, -1, Fraction(7, 4), Fraction(-7, 4), Fraction(1, 3)),
}
OUTPUT, KERNEL, INPUT = range(3)  # the matrices of `transforms`


@lru_cache
def transforms(m, r):
    """(A^T, G, B^T) of F(m, r) in one dimension, (m, n), (n, r) and (n, n): y = A^T ((G g) * (B^T d)), with n = m + r - 1.
    By Cook-Toom: polynomials of degree < m and < r are evaluated at n points, the last of which is infinity. B^T is the
    transposed inverse, scaled so that its entries stay small. Entries are exact and rounded once, to float64."""
    points = np.array([Fraction(p) for p in POINTS[m + r - 1]])
    others = [np.poly(points[points != p]) for p in points]  # polynomials by their roots, the highest coefficient first
    scales = [*map(np.polyval, others, points), 1]
    b = [[*polynomial[::-1], 0] for polynomial in others] + [np.poly(points)[::-1]]
    g = [[value / scale for value in row] for row, scale in zip(_evaluation(points, r), scales)]
    a = zip(*_evaluation(points, m))
    return tuple(np.array([[float(value) for value in row] for row in matrix]) for matrix in (a, g, b))


def _evaluation(points, degree):
    """The matrix that evaluates a polynomial with so many coefficients at the points and at infinity."""
    return [[p**k for k in range(degree)] for p in points] + [[Fraction(k == degree - 1) for k in range(degree)]]


@lru_cache
def transform(m, r, which, dtype):
    """A matrix of `transforms`, rounded to `dtype` and contiguous, on the device. which: OUTPUT, KERNEL or INPUT."""
    return to_device(np.ascontiguousarray(transforms(m, r)[which], dtype))


class Winograd:
    """The convolution of one window with tiles of m[0] x m[1] outputs. The stride of the window must be 1."""

    goes_block_by_block = False

    def __init__(self, window, m=(4, 4)):
        self.window, self.m = window, m
        self.n = tuple(m + r - 1 for m, r in zip(m, window.kernel))
        self.points = prod(self.n)

    def _matrices(self, which, dtype):
        """The matrices of `transforms` for the rows and for the columns. which: INPUT, KERNEL or OUTPUT."""
        return [transform(m, r, which, dtype) for m, r in zip(self.m, self.window.kernel)]

    def products(self, rows, columns):
        """The elementwise products for an output of rows x columns pixels, for one input channel and filter."""
        return prod(self._tile_grid(slice(0, rows), columns)) * self.points

    def pixels_computed(self, rows, columns):
        """The pixels for which the largest tiles, with which the cost model was measured, need as many products."""
        kernel = self.window.kernel
        outputs = TILES[kernel[0]][0]
        return self.products(rows, columns) * prod(outputs) / prod(m + r - 1 for m, r in zip(outputs, kernel))

    def cost(self, table, channels, filters, rows, columns, images):
        # five transforms: of x in both passes, its gradient, y, and the gradient of y
        transforms = table.transform_channel * (3 * channels + 2 * filters) + 5 * table.transform_point
        points = images * self.products(rows, columns) * (products_cost(table, channels, filters) + transforms)
        return points + 3 * table.transform_kernel * self.points * channels * filters

    def input_gradient_cost(self, images, height, width, channels, filters):
        return 1  # it takes the same products again

    def forward(self, x, w, b, y, progress=None):
        kernel = self._kernel(w)
        for images, rows in self.blocks(x, y.shape, progress):
            points = self._points(x, images, rows, y.shape[2])
            products = scratch("products", (*points.shape[:-1], w.shape[3]), x.dtype)
            multiply(points, kernel, products, CHANNELS_AT_ONCE[max(self.n)])
            part = y[images, rows]
            self._outputs(products, part)
            add_bias(part, b)

    def backward(self, x, w, dy, dw, db, dx=None, progress=None):
        kernel = None if dx is None else self._kernel(w)
        left, right = (g.T for g in self._matrices(KERNEL, w.dtype))
        # Gradients of small transformed kernels are added up over all blocks; of large ones each block's is transformed back.
        transformed = self.points, *w.shape[2:]
        kernel_gradient = scratch("kernel gradient", transformed, w.dtype) if prod(transformed) <= GRADIENTS_AT_ONCE else None
        (dw if kernel_gradient is None else kernel_gradient).fill(0)
        db.fill(0)
        if dx is not None:
            dx.fill(0)
        for images, rows in self.blocks(x, dy.shape, progress):
            points = self._points(x, images, rows, dy.shape[2])
            products = self._product_gradients(dy, images, rows)
            if kernel_gradient is None:
                add_kernel_gradient(matrices(points), matrices(products), left, right, dw)
            else:
                add_products(matrices(points), matrices(products), kernel_gradient, self.n[1])
            add_bias_gradient(dy[images, rows], db)
            if dx is not None:
                self._to_pixels(products, kernel, images, rows, dx)
        if kernel_gradient is not None:
            transform_kernels(left, right, kernel_gradient, dw)

    def input_gradient(self, dy, w, dx, progress=None):
        kernel = self._kernel(w)
        dx.fill(0)
        for images, rows in self.blocks(dx, dy.shape, progress):
            self._to_pixels(self._product_gradients(dy, images, rows), kernel, images, rows, dx)

    def _kernel(self, w):
        """The transformed kernel: (points, C, F)."""
        kernel = scratch("kernel", (self.points, *w.shape[2:]), w.dtype)
        transform_kernels(*self._matrices(KERNEL, w.dtype), w, kernel)
        return kernel

    def blocks(self, x, shape, progress=None):
        tile = self.points * max(x.shape[3], shape[3]) * x.itemsize
        # Each block reads the whole transformed kernel, so a block needs enough tiles for this to be negligible.
        most = max(kernels().winograd_bytes, kernels().winograd_tiles * tile)
        return blocks(len(x), shape[1], -(-shape[2] // self.m[1]) * tile // self.m[0], self.m[0], most, progress)

    def _tile_grid(self, rows, columns):
        """(rows, columns) of the grid of tiles that covers the slice `rows` of the outputs. columns: those of the output."""
        return -(-(rows.stop - rows.start) // self.m[0]), -(-columns // self.m[1])

    def _points(self, x, images, rows, columns):
        """The transformed tiles of the input for a block of outputs: (*n, images, tile rows, tile columns, C)."""
        (top, _), (left, _) = self.window.padding
        (down, across), (kh, kw) = self._tile_grid(rows, columns), self.window.kernel
        first, right = rows.start - top, max(0, across * self.m[1] + kw - 1 - left - x.shape[2])
        block = padded(x, images, first, first + down * self.m[0] + kh - 1, left, right, "padded")
        return self._transformed(self._matrices(INPUT, x.dtype), block, down, across, "points")

    def _product_gradients(self, dy, images, rows):
        """The gradients of the products for a block of outputs: (*n, images, tile rows, tile columns, F)."""
        down, across = self._tile_grid(rows, dy.shape[2])
        right = across * self.m[1] - dy.shape[2]
        block = padded(dy, images, rows.start, rows.start + down * self.m[0], 0, right, "padded gradient")
        return self._transformed([at.T for at in self._matrices(OUTPUT, dy.dtype)], block, down, across, "products")

    def _transformed(self, pair, block, down, across, name):
        """left @ tile @ right.T for the tiles that start at every m-th pixel: (*n, images, down, across, channels), as `name`.
        pair: (left, right), with as many columns as a tile has rows and columns. block: (images, rows, columns, channels)."""
        (left, right), (images, _, columns, channels) = pair, block.shape
        (height, width), (m_rows, m_columns) = (left.shape[1], right.shape[1]), self.m
        b, r, q, c = block.strides
        tiles = xp.lib.stride_tricks.as_strided(block, (images, down, height, columns * channels), (b, m_rows * r, r, c))
        halfway = scratch("halfway", (images, down, self.n[0], columns, channels), block.dtype)
        xp.matmul(left, tiles, out=halfway.reshape(images, down, self.n[0], -1))
        b, d, i, q, c = halfway.strides
        shape = self.n[0], images, down, across, width, channels
        tiles = xp.lib.stride_tricks.as_strided(halfway, shape, (i, b, d, m_columns * q, q, c))
        points = scratch(name, (*self.n, images, down, across, channels), block.dtype)
        xp.matmul(right, tiles, out=points.transpose(0, 2, 3, 4, 1, 5))
        return points

    def _outputs(self, products, part):
        """Write the outputs of a block to `part`, (images, rows, columns, F), from products, (*n, images, ..., F)."""
        left, right = self._matrices(OUTPUT, part.dtype)
        images, down, across, filters = products.shape[2:]
        halfway = scratch("halfway", (self.m[0], *products.shape[1:]), products.dtype)
        rows = lambda array: array.reshape(len(array), self.n[1] * images * down, -1).transpose(1, 0, 2)  # noqa: E731
        xp.matmul(left, rows(products), out=rows(halfway))
        whole = images, down * self.m[0], across * self.m[1], filters
        fits = part.shape == whole and part.flags.c_contiguous
        target = part if fits else scratch("whole tiles", whole, part.dtype)
        tiles = target.reshape(images, down, self.m[0], across, self.m[1], filters).transpose(2, 0, 1, 3, 4, 5)
        xp.matmul(right, halfway.transpose(0, 2, 3, 4, 1, 5), out=tiles)
        if not fits:
            xp.copyto(part, target[:, : part.shape[1], : part.shape[2]])

    def _to_pixels(self, products, kernel, images, rows, dx):
        """Add the gradient of the input for one block to dx. kernel: transformed. products: of `_product_gradients`."""
        left, right = (bt.T for bt in self._matrices(INPUT, dx.dtype))
        (m_rows, m_columns), (n_rows, n_columns), channels = self.m, self.n, dx.shape[3]
        count, down, across = products.shape[2:5]
        points = scratch("points", (*products.shape[:-1], channels), dx.dtype)
        multiply(products, kernel.transpose(0, 2, 1), points, CHANNELS_AT_ONCE[max(self.n)])
        # Tiles overlap: the last columns of a tile are added to the following tiles, which may lie beyond the last one.
        reach = -(-n_columns // m_columns) - 1
        columns = scratch("columns", (n_rows, count, down, across + reach, n_columns, channels), dx.dtype)
        xp.matmul(right, points.transpose(0, 2, 3, 4, 1, 5), out=columns[:, :, :, :across])
        columns[:, :, :, across:, :m_columns] = 0
        for shift in range(1, reach + 1):
            overlap = columns[:, :, :, :across, shift * m_columns : (shift + 1) * m_columns]
            target = columns[:, :, :, shift : shift + across, : overlap.shape[4]]
            xp.add(target, overlap, out=target)
        pixels = scratch("pixels", (count, down, n_rows, across + reach, m_columns * channels), dx.dtype)
        own = columns.reshape(*columns.shape[:4], -1)[..., : m_columns * channels]
        xp.matmul(left, own.transpose(1, 2, 3, 0, 4), out=pixels.transpose(0, 1, 3, 2, 4))
        (top, _), (before, _) = self.window.padding
        width = min(dx.shape[2], (across + reach) * m_columns - before)
        pixels = pixels.reshape(count, down, n_rows, -1, channels)[:, :, :, before : before + width]
        for i in range(n_rows):
            p, r = matching_slices(i - top, m_rows, down, dx.shape[1], rows.start // m_rows)
            target = dx[images, r, :width]
            xp.add(target, pixels[:, p, i], out=target)


def matrices(points):
    """An array (*n, images, tile rows, tile columns, channels) as matrices (tiles, channels), one for each point."""
    return points.reshape(points.shape[0] * points.shape[1], -1, points.shape[-1])


def multiply(points, kernel, out, at_once):
    """Write points (*n, .., C) @ kernel (points, C, F) to out (*n, .., F), summed over `at_once` channels at a time."""
    points, out = matrices(points), matrices(out)
    channels = kernel.shape[1]
    if channels <= at_once:
        xp.matmul(points, kernel, out=out)
        return
    partial_sum = scratch("sum over some channels", out.shape[1:], out.dtype)
    for point, matrix, total in zip(points, kernel, out):
        xp.matmul(point[:, :at_once], matrix[:at_once], out=total)
        for start in range(at_once, channels, at_once):
            some = slice(start, start + at_once)
            xp.matmul(point[:, some], matrix[some], out=partial_sum)
            xp.add(total, partial_sum, out=total)


def add_products(points, products, kernel_gradient, at_once):
    """Add points.T @ products, (points, tiles, C) and (points, tiles, F), to the gradient of the transformed kernel,
    (points, C, F), for `at_once` points at a time."""
    partial_sum = scratch("products of some points", (at_once, *kernel_gradient.shape[1:]), points.dtype)
    for start in range(0, len(points), at_once):
        some = slice(start, start + at_once)
        xp.matmul(points[some].transpose(0, 2, 1), products[some], out=partial_sum)
        xp.add(kernel_gradient[some], partial_sum, out=kernel_gradient[some])


def add_kernel_gradient(points, products, left, right, dw):
    """Add left @ (points.T @ products) @ right.T to dw, (kh, kw, C, F), for some channels at a time, which takes little memory.
    points: (points, tiles, C). products: (points, tiles, F). left, right: (kh, n) and (kw, n)."""
    channels, filters = dw.shape[2:]
    at_once = max(1, GRADIENTS_AT_ONCE // (len(points) * filters) // 16 * 16)
    for start in range(0, channels, at_once):
        part, gradient = points[:, :, start : start + at_once], dw[:, :, start : start + at_once]
        of_points = scratch("products of some channels", (len(points), part.shape[2], filters), dw.dtype)
        xp.matmul(part.transpose(0, 2, 1), products, out=of_points)
        share = scratch("share of the gradient", gradient.shape, dw.dtype)
        transform_kernels(left, right, of_points, share)
        xp.add(gradient, share, out=gradient)


def transform_kernels(left, right, kernels, out):
    """Write left (p, kh) @ kernel @ right.T (kw, q) to out, (p, q, C, F), for each input channel and filter.
    kernels: (kh, kw, C, F). The first two dimensions of both may be joined."""
    (p, kh), (q, kw) = left.shape, right.shape
    kernels, out = kernels.reshape(kh, kw, -1), out.reshape(p, q, -1)
    for start in range(0, kernels.shape[2], KERNELS_AT_ONCE):
        some = slice(start, start + KERNELS_AT_ONCE)
        part = kernels[..., some]
        halfway = scratch("kernels halfway", (kh, q, part.shape[2]), kernels.dtype)
        xp.matmul(right, part, out=halfway)
        xp.matmul(left, halfway.transpose(1, 0, 2), out=out[..., some].transpose(1, 0, 2))


# ----- in one dimension

ROW_TILES = {3: (4, 3, 2), 5: (3, 2)}  # the rows of outputs in a tile, for a kernel of so many rows
MOST_CHANNELS = {4: 256, 5: 256, 6: 256, 7: 64}  # up to which rounding errors stay small, for each number of points
FEWEST_TILES = 32  # the fewest tiles in a block with which each product has enough rows
CONFLICTING_BYTES = 1024  # rows whose distance is a multiple of this compete for the same places in the first cache


class RowWinograd:
    """The convolution of one window with tiles of m rows of outputs. The stride of the window must be 1."""

    goes_block_by_block = True

    def __init__(self, window, m):
        self.window, self.m, self.n = window, m, m + window.kernel[0] - 1

    def products(self, rows, columns):
        """The products for an output of rows x columns pixels, for one input channel, filter and column of the kernel."""
        return -(-rows // self.m) * self.n * columns

    def pixels_computed(self, rows, columns):
        outputs = ROW_TILES[self.window.kernel[0]][0]
        return self.products(rows, columns) * outputs / (outputs + self.window.kernel[0] - 1)

    def cost(self, table, channels, filters, rows, columns, images):
        # The input's gradient is a convolution, too; the kernel's costs as much as forward.
        (kh, kw), (vertical, horizontal) = self.window.kernel, self.window.padding
        height, width = rows + kh - 1 - sum(vertical), columns + kw - 1 - sum(horizontal)
        forward = self._cost_of_pass(table, channels, filters, rows, columns, images)
        return 2 * forward + self._cost_of_pass(table, filters, channels, height, width, images)

    def _cost_of_pass(self, table, channels, filters, rows, columns, images):
        """That of products, two transforms, and a kernel that each block reads once for each column."""
        kw = self.window.kernel[1]
        products = images * self.products(rows, columns) * kw * 2 * channels * filters * (1 + table.narrow / filters)
        transforms = table.transform_row * images * rows * ((columns + kw - 1) * channels + columns * filters)
        blocks = sum(1 for _ in self.blocks_of((images, rows, columns, filters), channels, 4))
        return products + transforms + table.row_kernel * blocks * self.n * columns * kw * channels * filters

    def input_gradient_cost(self, images, height, width, channels, filters):
        return height * width / max(1, prod(self.window.output(height, width)))

    def forward(self, x, w, b, y, progress=None):
        (kh, kw, channels, filters), columns = w.shape, y.shape[2]
        kernel = scratch("kernel", (self.n, 1, kw * channels, filters), w.dtype)
        xp.matmul(self._matrix(KERNEL, w), w.reshape(kh, -1), out=kernel.reshape(self.n, -1))
        for images, rows in self.blocks(x, y.shape, progress):
            part = y[images, rows]
            windows = self._windows(x, images, rows, columns)
            products = rows_of_tiles("products", self.n, windows.shape[2], columns, filters, w.dtype)
            xp.matmul(windows, kernel, out=products.transpose(0, 2, 1, 3))
            target = part if rows_are_contiguous(part) else scratch("outputs", part.shape, part.dtype)
            for tiles, rows_inside, matrix in self._tiles(target, 0, products, self._matrix(OUTPUT, w).T):
                xp.matmul(matrix.T, tiles, out=rows_inside)
            add_bias(target, b)
            if target is not part:
                xp.copyto(part, target)

    def backward(self, x, w, dy, dw, db, dx=None, progress=None):
        (kh, kw, channels, filters), columns = w.shape, dy.shape[2]
        gradient = scratch("kernel gradient", (self.n, kw * channels * filters), w.dtype)
        gradient.fill(0)
        db.fill(0)
        for images, rows in self.blocks(x, dy.shape, progress):
            part = xp.ascontiguousarray(dy[images, rows])
            windows = self._windows(x, images, rows, columns)
            products = rows_of_tiles("products", self.n, windows.shape[2], columns, filters, w.dtype)
            for tiles, rows_inside, matrix in self._tiles(part, 0, products, self._matrix(OUTPUT, w).T):
                xp.matmul(matrix, rows_inside, out=tiles)
            self._add_products(windows.transpose(0, 1, 3, 2), products.transpose(0, 2, 1, 3), gradient)
            add_bias_gradient(part, db)
        xp.matmul(self._matrix(KERNEL, w).T, gradient, out=dw.reshape(kh, -1))
        if dx is not None:
            self.input_gradient(dy, w, dx, progress)

    def input_gradient(self, dy, w, dx, progress=None):
        for window, gradients, turned, part in turned_convolutions(self.window, dy, w, dx):
            RowWinograd(window, self.m).forward(gradients, turned, w[0, 0, 0, :0], part, progress)

    def blocks(self, x, shape, progress=None):
        return self.blocks_of(shape, x.shape[3], x.itemsize, progress)

    def blocks_of(self, shape, channels, itemsize, progress=None):
        """The `blocks` of outputs of this shape for inputs with so many channels, and numbers of so many bytes."""
        images, rows, columns, filters = shape
        row = self.n * (columns + self.window.kernel[1]) * max(channels, filters) * itemsize
        return blocks(images, rows, row // self.m, self.m, max(kernels().winograd_bytes, FEWEST_TILES * row), progress)

    def _matrix(self, which, like):
        return transform(self.m, self.window.kernel[0], which, like.dtype)

    def _windows(self, x, images, rows, columns):
        """The pixels of each window in the transformed rows of a block of outputs: (n, columns, tiles, kw C), which overlap."""
        (top, _), (left, _) = self.window.padding
        kw, channels, down = self.window.kernel[1], x.shape[3], -(-(rows.stop - rows.start) // self.m)
        block = x[images] if rows_are_contiguous(x) else xp.ascontiguousarray(x[images])
        right = left + block.shape[2]
        points = rows_of_tiles("points", self.n, len(block) * down, columns + kw - 1, channels, x.dtype)
        points[:, :, :left] = 0
        points[:, :, right:] = 0
        inside = points[:, :, left:right]
        for tiles, rows_inside, matrix in self._tiles(block, rows.start - top, inside, self._matrix(INPUT, x)):
            xp.matmul(matrix, rows_inside, out=tiles)
        i, t, q, c = points.strides
        return xp.lib.stride_tricks.as_strided(points, (self.n, columns, len(block) * down, kw * channels), (i, q, t, c))

    def _tiles(self, image, first, points, matrix):
        """Yield (points of tiles, rows of the image, columns of the matrix) such that points = matrix @ rows, or its adjoint.
        The first tile starts at the row `first`, which may lie above the image, and each next one m rows further down. Rows
        outside the image are left out; the points of tiles that lie outside entirely are set to 0 here."""
        # points: (n, images * tiles, columns, channels), matrix: (n, rows of a tile). What is yielded, for the tiles cut
        # in the same way: (images, tiles, n, columns * channels), (images, tiles, rows, columns * channels), (n, rows).
        images, height, columns, channels = image.shape
        down = points.shape[1] // images
        points = points.reshape(self.n, images, down, columns * channels).transpose(1, 2, 0, 3)
        b, r, _, c = image.strides
        for some, inside in cut_tiles(down, first, self.m, matrix.shape[1], height):
            if not inside:
                points[:, some] = 0
                continue
            top = image[:, first + some.start * self.m + inside.start :]
            shape = images, some.stop - some.start, inside.stop - inside.start, columns * channels
            rows = xp.lib.stride_tricks.as_strided(top, shape, (b, self.m * r, r, c))
            yield points[:, some], rows, matrix[:, inside]

    def _add_products(self, windows, gradients, total):
        """Add the sums over tiles and columns of windows, (n, columns, kw C, tiles), @ the gradients of products, (n, columns,
        tiles, F), to `total`, (n, kw C F)."""
        (_, columns, pixels, _), filters = windows.shape, gradients.shape[3]
        at_once = min(columns, max(1, kernels().winograd_bytes // (pixels * filters * total.itemsize)))
        products = scratch("products of columns", (at_once, pixels, filters), total.dtype)
        sums = scratch("sums of products", (pixels * filters,), total.dtype)
        for left, right, sum_of_point in zip(windows, gradients, total):
            for start in range(0, columns, at_once):
                some = products[: columns - start]
                xp.matmul(left[start : start + at_once], right[start : start + at_once], out=some)
                xp.add(sum_of_point, column_sums(some.reshape(len(some), -1), sums), out=sum_of_point)


@lru_cache(maxsize=1024)
def cut_tiles(tiles, first, step, size, length):
    """Which rows of each tile lie in the image: [(slice of tiles, slice of their rows, or None if there are none)].
    Tiles of `size` rows start at the row `first` of the image, and each `step` rows further. length: the rows of the image."""
    inside = [(max(0, -start), min(size, length - start)) for start in range(first, first + tiles * step, step)]
    cuts = [(pair, [tile for tile, _ in some]) for pair, some in groupby(enumerate(inside), key=lambda entry: entry[1])]
    return [(slice(some[0], some[-1] + 1), slice(*pair) if pair[0] < pair[1] else None) for pair, some in cuts]


def rows_of_tiles(name, points, tiles, columns, channels, dtype):
    """Scratch memory for rows of pixels: (points, tiles, columns, channels), with one column more between rows if necessary."""
    conflict = columns * channels * dtype.itemsize % CONFLICTING_BYTES == 0
    return scratch(name, (points, tiles, columns + conflict, channels), dtype)[:, :, :columns]
