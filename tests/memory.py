"""Workspaces that never reuse memory, to see that no result depends on the reuse."""

import numpy as np

from gridgrad.nn import device
from gridgrad.nn.kernels.workspace import Workspace


def fresh_memory(monkeypatch):
    """From now on every array that a workspace returns has memory of its own, which holds NaN, or the like, at first.

    An array that is overwritten while it is still needed then keeps its numbers, and one that is read before it is written
    gives NaN: either way the result differs from the usual one.
    """

    def fresh(workspace, name, shape, dtype):
        array = device.empty(int(np.prod(shape)), dtype).reshape(shape)
        array.fill(np.nan if np.dtype(dtype).kind == "f" else 1)
        workspace._spaces[name] = array, array.reshape(-1)
        return array

    monkeypatch.setattr(Workspace, "__call__", fresh)
