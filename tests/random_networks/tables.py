"""Tables of kernels with which small arrays are computed in all the ways in which large ones are."""

import random
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gridgrad.nn.kernels.kernel_table import kernels, use


@contextmanager
def table_of(case):
    """With every other seed of a Case, blocks and pieces are so small that its arrays have several.

    Then the gradients of images may be scattered and the rows of kernels be unrolled one by one, however many channels there
    are, or neither.
    """
    table, rng = kernels(), random.Random(case.seed)
    with pytest.MonkeyPatch.context() as patched:
        if case.seed % 2:
            costs = rng.choice(({}, {"scatter_run": 0, "scatter_addition": 0}, {"turn_kernel": 0}))
            sizes = {"chunk": 200, "piece": 50, "block_bytes": 1 << 9, "fused_bytes": 1}
            use(replace(table, row_channels=rng.choice((0, 64)), **costs, **sizes))
            patched.setattr("gridgrad.nn.kernels.patches.FEWEST_WINDOWS", 1)
        try:
            yield
        finally:
            use(table)
