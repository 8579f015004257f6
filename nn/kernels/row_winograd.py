"""Winograd's algorithm along the columns of images only, for convolutions with few channels.

Down an image, m rows of outputs are computed with n = m + kh - 1 products of rows instead of m kh: the input is transformed by
B^T, the kernel by G, and the products are transformed back by A^T. Each of these n products is a convolution with a kernel of
one row. For output column q it multiplies the pixels q to q + kw - 1 of a transformed row, which lie side by side in memory,
with a matrix (kw C, F), for the tiles of all images in a block at once. So nothing is unrolled, and the matrices have kw times
as many columns as with tiles in two dimensions (`nn/kernels/winograd.py`), whose transforms are slow for few channels.
"""

from functools import lru_cache
from itertools import groupby
from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import add_bias, rows_are_contiguous
from gridgrad.nn.kernels.window import turned_convolutions
from gridgrad.nn.kernels.winograd import INPUT, KERNEL, OUTPUT, transform
from gridgrad.nn.kernels.workspace import blocks, column_sums, scratch

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
        bias_sums = scratch("bias sums", db.shape, db.dtype)
        db.fill(0)
        for images, rows in self.blocks(x, dy.shape, progress):
            part = xp.ascontiguousarray(dy[images, rows])
            windows = self._windows(x, images, rows, columns)
            products = rows_of_tiles("products", self.n, windows.shape[2], columns, filters, w.dtype)
            for tiles, rows_inside, matrix in self._tiles(part, 0, products, self._matrix(OUTPUT, w).T):
                xp.matmul(matrix, rows_inside, out=tiles)
            self._add_products(windows.transpose(0, 1, 3, 2), products.transpose(0, 2, 1, 3), gradient)
            if db.size:
                xp.add(db, column_sums(part.reshape(-1, filters), bias_sums), out=db)
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
        i, t, _, c = points.strides
        points = xp.lib.stride_tricks.as_strided(points, (images, down, self.n, columns * channels), (down * t, t, i, c))
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
