"""The schemes of parallel training (batch, model, 2d, height), and the grid of each on a given number of ranks."""

import math

SCHEMES = ("batch", "model", "2d", "height")
MOST_RANKS = 1 << 24  # more than any machine has; beyond it listing the grids alone takes long


def grid_of(scheme, ranks):
    """The grid of a scheme on so many ranks, as text; None where the scheme has none (2d needs a composite number).

    ValueError for more ranks than MOST_RANKS.
    """
    if ranks > MOST_RANKS:
        raise ValueError(f"{ranks} ranks are more than any machine has: there may be {MOST_RANKS}")
    if scheme == "batch":
        return f"batch={ranks},model=1"
    if scheme == "model":
        return f"batch=1,model={ranks}"
    if scheme == "height":
        return f"batch=1,height={ranks},model=1"
    model = max(m for m in range(1, math.isqrt(ranks) + 1) if ranks % m == 0)
    return f"batch={ranks // model},model={model}" if model > 1 else None


def scheme_of(sizes):
    """The scheme to which a grid belongs. sizes: by axis; absent ones are 1."""
    axes = [axis for axis, size in sizes.items() if size > 1]
    return axes[0] if len(axes) == 1 else "2d" if axes else "serial"
