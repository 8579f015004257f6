"""Measuring the table of kernels (`nn/kernels/kernel_table.py`) on a processor for which none comes with the project.

It is done once and within a budget of seconds, which the comparisons share; `gridgrad calibrate` measures without one.
Typical products and convolutions are computed in each way in turns. What there was no time for stays as in PRESET. Another way
than the plain call must be MARGIN times as fast; so where two measurements choose differently, both ways are about as fast.
"""

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf, log, prod

import numpy as np

from gridgrad.nn.device import empty, xp
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.gemm import matmul, product_over_rows
from gridgrad.nn.kernels.kernel_table import NO_LIMIT, ORIENTATIONS, PRESET, Kernels, Tiles, kernels, store, stored, use
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.nn.kernels.window import Window
from gridgrad.nn.measured import in_turns

BUDGET = 1.5  # seconds of a quick measurement
QUICKLY = "measured quickly"  # how the name of a table begins that such a measurement found
ROUNDS = 9
MARGIN = 1.03
ELEMENTS = 1 << 18  # of the left operand of products with few columns: as many as in a block of unrolled patches
DEPTHS = 28, 76, 145, 289, 577, 1153  # the k of products with few columns, mostly those of 3x3 and 5x5 kernels and a bias
OTHER_DEPTHS = 28, 64, 100, 256, 512, 800  # the k of other products
OTHER_SIZES = (1024, 128), (128, 512)  # their m and n: those of a 1x1 convolution, and of a small batch in a Linear layer
SHAPES = [  # of tiles, in order of preference: those with half as many columns are for products that the others do not divide
    tuple((rows, n) for n in (columns, columns // 2) for rows in (64, 32, 16, 50, 48, 24, 20)) for columns in (64, 32)
]
OVER_ROWS = (8192, 28, 32), (4096, 76, 32), (2048, 145, 32), (2048, 145, 64), (1024, 289, 64)  # rows, m, n
GROUPS = 1024, 256, 128, 64, 32  # the rows of their groups
CHANNELS = 192, 96, 64, 48, 32, 16, 8, 5
SMALL_BATCH = 16  # the batch up to which products with large matrices are cut, if that pays for half as many samples
BLOCK_BYTES = 1 << 19, 1 << 21
WINOGRAD = {"row_winograd": 3, "winograd_3x3": 3, "winograd_5x5": 5}  # the sizes of the kernels that they are measured with
PRODUCTS = len(ORIENTATIONS) * (3 * len(DEPTHS) + len(SHAPES) * len(OTHER_SIZES) * len(OTHER_DEPTHS)) + len(OVER_ROWS) + 1
COMPARISONS = PRODUCTS + len(WINOGRAD) * len(CHANNELS) + 1


def ones(*shape):
    """An array of ones in memory like that of layers, which matters: tiles are fast where rows begin at cache lines."""
    array = empty(prod(shape), np.float32).reshape(shape)
    array.fill(1)
    return array


@dataclass(frozen=True)
class TimedProduct:
    """A product (m, k) x (k, n) whose operands are row-major or transposes. orientation: one of ORIENTATIONS."""

    orientation: str
    m: int
    k: int
    n: int

    @cached_property
    def arrays(self):
        a = ones(self.k, self.m).T if self.orientation == "tiles_left_transposed" else ones(self.m, self.k)
        b = ones(self.n, self.k).T if self.orientation == "tiles_right_transposed" else ones(self.k, self.n)
        return a, b, ones(self.m, self.n)

    def __call__(self):
        matmul(*self.arrays)


@dataclass(frozen=True)
class ProductOverRows:
    """The product (rows, m).T x (rows, n)."""

    rows: int
    m: int
    n: int

    @cached_property
    def arrays(self):
        return ones(self.rows, self.m), ones(self.rows, self.n), ones(self.m, self.n)

    def __call__(self):
        product_over_rows(*self.arrays)


def timed_convolution(kernel, channels, filters, images=8, size=16):
    """A function: the forward and the backward pass of a convolution that keeps the size of its images."""
    window = Window((kernel,) * 2, (1, 1), ((kernel // 2,) * 2,) * 2)
    x, y = (ones(images, size, size, c) for c in (channels, filters))
    w, b = ones(kernel, kernel, channels, filters), ones(filters)
    gradients = [ones(*array.shape) for array in (w, b, x)]

    def passes():
        chosen = algorithm(window, channels, filters, size, size, np.float32, images)
        chosen.forward(x, w, b, y)
        chosen.backward(x, w, y, *gradients)

    return passes


def ensure_measured():
    """Measure the table, store it and use it, if this processor has none yet."""
    if kernels() != PRESET or not xp.is_cpu:
        return
    table = stored()
    if table is None:
        announce()
        table = measured(BUDGET)
        store(table)
    use(table)


def announce():
    words = "which ways to multiply matrices are fastest on this processor; thoroughly: gridgrad calibrate"
    print(f"measuring once, for {BUDGET:g} seconds, {words}", file=sys.stderr, flush=True)


def measured(budget=inf):
    """The table for this processor, measured now, for at most so many seconds."""
    before, how = kernels(), "measured" if budget == inf else QUICKLY
    try:
        return _measured(f"{how} on {processor().title}, {blas()}", comparisons(budget))
    finally:
        use(before)


class BudgetSpent(Exception):
    pass


def comparisons(budget):
    """The function `ratios` of a measurement of so many seconds; each call may take an equal part of the time that is left."""
    end, left = time.monotonic() + budget, COMPARISONS

    def ratios(tasks, plain, tables):
        """[seconds of the tasks with each of `tables`, relative to those with the table `plain`]. Or BudgetSpent."""
        nonlocal left
        now = time.monotonic()
        if now >= end:
            raise BudgetSpent
        part = now + (end - now) / left
        left = max(1, left - 1)
        base, *others = times(tasks, [plain, *tables], end=part)
        return [other / base for other in others]

    return ratios


def _measured(name, ratios):
    """A measured Kernels with this name; another one is in use afterwards. ratios: of `comparisons`."""
    table = replace(PRESET, name=name)
    with suppress(BudgetSpent):
        for orientation in ORIENTATIONS:
            table = replace(table, **{orientation: best_tiles(orientation, Kernels(name), ratios)})
        grouped = [ratios([ProductOverRows(*sizes)], table, [replace(table, group_rows=1)])[0] for sizes in OVER_ROWS]
        table = replace(table, group_rows=last_that_pays(GROUPS, grouped)[0])
        small, (k, n) = SMALL_BATCH // 2, (2048, 1024)
        few = list(map(TimedProduct, ORIENTATIONS, (small, k, small), (k, small, k), (n, n, n)))
        cut = replace(table, small_batch=SMALL_BATCH)
        table = cut if ratios(few, table, [cut])[0] * MARGIN < 1 else table
        unrolling = replace(table, **dict.fromkeys(WINOGRAD, 0))
        for field, kernel in WINOGRAD.items():
            winograd = replace(unrolling, **{field: 1})
            found = [ratios([timed_convolution(kernel, c, c, max(2, 512 // c))], unrolling, [winograd])[0] for c in CHANNELS]
            unrolling = replace(unrolling, **{field: last_that_pays(CHANNELS, found)[0]})
        table = unrolling
        unrolled = [timed_convolution(3, 16, 16, 16, 32), timed_convolution(5, 3, 32, 8, 32)]
        others = [replace(table, block_bytes=size) for size in BLOCK_BYTES]
        ratio, best = min(zip(ratios(unrolled, table, others), others), key=lambda pair: pair[0])
        table = best if ratio * MARGIN < 1 else table
    return table


def best_tiles(orientation, plain, ratios):
    """The Tiles that are fastest for products of one orientation. plain: a table without tiles. ratios: of `comparisons`."""

    def depth(depths, m, n, tiles):
        """(k, gain) of `last_that_pays` for these tiles. m: the rows of the products; None: so many that they fill a block."""
        table = replace(plain, **{orientation: tiles})
        tasks = [TimedProduct(orientation, m or ELEMENTS // k // 64 * 64, k, n) for k in depths]
        return last_that_pays(depths, [ratios([task], plain, [table])[0] for task in tasks])

    few = tuple(depth(DEPTHS, None, n, Tiles(few_columns=(NO_LIMIT,) * 3))[0] for n in (16, 32, 64))
    found = []
    for shapes in SHAPES:
        tiles = Tiles(shapes=shapes, most_k=NO_LIMIT, most_k_few_rows=NO_LIMIT)
        (many, gain), (few_rows, more) = (depth(OTHER_DEPTHS, *sizes, tiles) for sizes in OTHER_SIZES)
        found.append((gain + more, Tiles(few, shapes, many, few_rows)))
    gain, best = max(found, key=lambda pair: pair[0])
    return best if gain else Tiles(few)


def last_that_pays(steps, found):
    """(step, gain): up to which step a candidate pays, and the logarithm of what it saves; (0, 0) if it never does. All steps
    up to it are weighed together: a mismeasured one does not decide. found: seconds at each, relative to the plain way's."""
    losses = accumulate(log(ratio * MARGIN) for ratio in found)
    loss, step = min([(0.0, 0), *zip(losses, steps)], key=lambda pair: pair[0])
    return step, -loss


def times(tasks, tables, rounds=ROUNDS, end=inf):
    """The seconds of the tasks with each table, measured in turns; the last table stays in use. They are lower quartiles of
    the rounds, since disturbances make a measurement longer. The rounds end at the time `end` of the monotonic clock."""
    trials = [lambda table=table: sum(seconds(task, table) for task in tasks) for table in tables]
    in_turns(trials, 1)  # it touches the memory
    found = in_turns(trials, rounds, lambda: time.monotonic() >= end)
    return np.sort(found, axis=0)[len(found) // 4].tolist()


def seconds(task, table):
    """The seconds of this thread that a task takes with a table; other processes on its core do not count."""
    use(table)
    start = time.thread_time()
    task()
    return time.thread_time() - start
