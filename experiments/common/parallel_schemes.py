"""Grids for any number of ranks: templates such as "batch=*,model=2", and the names of those that the papers compare."""

import math

from gridgrad.parallel.grid.process_grid import checked_sizes, parse_grid, written

STAR = "*"  # the size of an axis that takes the ranks which the other axes leave
AUTO = "auto"  # the grid that the planner chooses
SCHEMES = {"batch": "batch=*", "model": "model=*", "2d": "batch=*,model=*", "height": "height=*"}  # {name: template}
MOST_RANKS = 1 << 24  # more than any machine has; beyond it listing the grids alone takes long


def grid_at(template, ranks):
    """The grid of a template on so many ranks, as text; None where it has none. ValueError for a text that is no template. Two
    starred axes share their ranks as equally as they can, the first taking more; a prime number of ranks has no such grid."""
    if ranks > MOST_RANKS:
        raise ValueError(f"{ranks} ranks are more than any machine has: there may be {MOST_RANKS}")
    if template == AUTO:
        return AUTO if ranks > 1 else written(checked_sizes({}))
    sizes = parse_grid(template.replace(STAR, "1"))
    starred = [axis for axis in sizes if f"{axis}={STAR}" in (word.strip() for word in template.split(","))]
    if len(starred) > 2:
        raise ValueError(f"grid '{template}': at most two axes can be {STAR}")
    left, remainder = divmod(ranks, math.prod(sizes.values()))
    if remainder or (not starred and left > 1):
        return None
    if len(starred) == 2:
        fewer = max(n for n in range(1, math.isqrt(left) + 1) if left % n == 0)
        if fewer == 1 < left:
            return None
        sizes |= dict(zip(starred, (left // fewer, fewer)))
    else:
        sizes |= dict.fromkeys(starred, left)
    return written(checked_sizes(sizes))


def grid_of(scheme, ranks):
    """The grid of a scheme on so many ranks, as text; None where the scheme has none (2d needs a composite number)."""
    return grid_at(SCHEMES[scheme], ranks)


def scheme_of(sizes):
    """The scheme to which a grid belongs. sizes: by axis; absent ones are 1."""
    axes = [axis for axis, size in sizes.items() if size > 1]
    return axes[0] if len(axes) == 1 else "2d" if axes else "serial"
