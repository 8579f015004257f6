"""Placing the layers of a network on the axis `stage`: each chunk of consecutive layers is on one rank of the axis.

| array                                | along the axis `stage`                              |
|--------------------------------------|-----------------------------------------------------|
| parameters and buffers of a chunk    | `Shard(0, ..)`: all of it at the rank of the chunk  |
| input of the network                 | `Shard(N, ..)`: all samples at the rank of the first chunk |
| outputs of the network               | `Shard(N, ..)`: all samples at the rank of the last chunk  |

So a rank holds empty blocks of the parameters of other chunks, and what gathers, saves, loads or reads an array by its Layout
needs no rule of its own. Between two chunks activations travel from rank to rank in the placement that they have along the
other axes.
"""

from dataclasses import replace
from numbers import Integral

from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.placement.partition import Split
from gridgrad.parallel.placement.placements import AtRank


def check_cuts(cuts, layers):
    """Raise ValueError unless a network can be cut there. cuts: the positions of the layers with which new chunks begin."""
    whole = isinstance(cuts, tuple | list) and all(isinstance(one, Integral) for one in cuts)
    if not whole or list(cuts) != sorted(cuts) or cuts and not 0 <= cuts[0] <= cuts[-1] <= len(layers):
        raise ValueError(
            f"cuts {cuts!r}: they must be whole numbers that do not decrease, from 0 to {len(layers)}: the positions of the "
            f"layers with which new chunks begin"
        )


def cut(layers, cuts):
    """The chunks of a list of layers. cuts: where each chunk but the first begins."""
    bounds = [0, *cuts, len(layers)]
    return [layers[start:stop] for start, stop in zip(bounds, bounds[1:])]


def at_stage(layout, stage):
    """The Layout of an array all of which is at one rank of the axis `stage`. layout: along the other axes."""
    if layout.sizes[STAGE] == 1:
        return layout
    held = AtRank(0, Split.at_rank(layout.sizes[STAGE], stage))
    return replace(layout, placements=layout.placements | {STAGE: held})
