"""The table of moves: how an array is brought from one placement along an axis of the grid to another.

| forward                                                  | collective     | backward                                |
|----------------------------------------------------------|----------------|-----------------------------------------|
| `Shard(d, p) -> Replicate`                               | all-gather     | `Partial -> Shard(d, p)`                |
| `Partial -> Shard(d, p)`                                 | reduce-scatter | `Shard(d, p) -> Replicate`              |
| `Partial -> Replicate`                                   | all-reduce     | `Partial -> Replicate`                  |
| `Shard(d, p) -> Shard(e, q)`                             | all-to-all     | `Shard(e, q) -> Shard(d, p)`            |
| `Shard(d, p) -> Shard(d, q)`                             | exchange       | `Shard(d, q) -> Shard(d, p)`            |
| `Shard(d, p) -> Copies(d, q)`: halos, needed channels    | exchange       | `PartialShard(d, q) -> Shard(d, p)`     |
| `PartialShard(d, p) -> Shard(d, q)`                      | exchange       | `Shard(d, q) -> Copies(d, p)`           |
| `Copies(d, p) -> Shard(d, q)` of what a rank holds       | -              | `Shard(d, q) -> PartialShard(d, p)`     |
| `Copies(d, p) -> Copies(d, q)` of what a rank holds      | -              | `PartialShard(d, q) -> PartialShard(d, p)` |
| `Replicate -> Shard(d, p)`: take the own part            | -              | `Shard(d, p) -> Partial`                |
| `Replicate -> Copies(d, p)`: take the own part           | -              | `PartialShard(d, p) -> Partial`         |
| `Shard(d, p) -> Partial`: pad the part with zeros        | -              | `Replicate -> Shard(d, p)`              |
| `Replicate -> Partial`: zeros on all but the first rank  | -              | `Replicate -> Partial`                  |
| `Shard(d, p) -> Invariant`                               | all-gather     | `Invariant -> Shard(d, p)`: the own part |
| `Invariant -> Shard(d, p)`: take the own part            | -              | `Shard(d, p) -> Invariant`: all-gather  |
| `Invariant -> Replicate`: nothing changes                | -              | `Partial -> Invariant`: all-reduce      |
| `Partial -> Invariant`                                   | all-reduce     | `Invariant -> Replicate`                |
| `Replicate -> Invariant`: nothing changes                | -              | `Invariant -> Partial`: zeros on all but rank 0 |
| `Shard(d, p) -> AtRank(e)`, all of p at that rank        | -              | `AtRank(e) -> Shard(d, p)`              |
| `AtMaster(d) -> Shard(d, p)`                             | hand out       | `Shard(d, p) -> AtMaster(d)`            |
| `AtMaster(d) -> Copies(d, p)`                            | hand out       | `PartialShard(d, p) -> AtMaster(d)`     |
| `Shard(d, p) -> AtMaster(e)`                             | hand in        | `AtMaster(e) -> Shard(d, p)`            |

The rows are in `moves.py`. Training, the sums of gradients, the byte formulas, the cost model and the planner all use it.
"""

from typing import Any

from gridgrad.parallel.grid.grid_description import GroupDescription
from gridgrad.parallel.placement.moves import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    FirstRankKeeps,
    HandIn,
    HandOut,
    Move,
    PutIntoZeros,
    ReduceScatter,
    SameRank,
    TakePart,
    Unchanged,
)
from gridgrad.parallel.placement.partition import resized
from gridgrad.parallel.placement.placements import (
    AtMaster,
    AtRank,
    Copies,
    Invariant,
    Partial,
    PartialShard,
    Replicate,
    Shard,
)

MOVES: dict[tuple, type[Move]] = {
    (Shard, Replicate): AllGather,
    (Partial, Shard): ReduceScatter,
    (Partial, Replicate): AllReduce,
    (Shard, Shard): AllToAll,  # of another dimension
    (Shard, Copies): Exchange,
    (PartialShard, Shard): Exchange,
    (Copies, Shard): TakePart,
    (Shard, PartialShard): PutIntoZeros,
    (Copies, Copies): TakePart,
    (PartialShard, PartialShard): PutIntoZeros,
    (Replicate, Shard): TakePart,
    (Shard, Partial): PutIntoZeros,
    (Replicate, Copies): TakePart,
    (PartialShard, Partial): PutIntoZeros,
    (Replicate, Partial): FirstRankKeeps,
    (Shard, Invariant): AllGather,
    (Partial, Invariant): AllReduce,
    (Invariant, Shard): TakePart,
    (Invariant, Partial): FirstRankKeeps,
    (Invariant, Replicate): Unchanged,
    (Replicate, Invariant): Unchanged,
    (Shard, AtRank): SameRank,
    (AtRank, Shard): SameRank,
    (AtMaster, Shard): HandOut,
    (AtMaster, Copies): HandOut,
    (Shard, AtMaster): HandIn,
    (PartialShard, AtMaster): HandIn,
}


def move_of(source: Any, target: Any) -> type[Move]:
    """The row of the table for two placements; KeyError if there is none."""
    key = type(source), type(target)
    return Exchange if key == (Shard, Shard) and source.dim == target.dim else MOVES[key]


def move_between(group, source, target, here, samples=None):
    """The Move from one placement to another by the row of the table; KeyError if there is none. The arguments: see Move."""
    return move_of(source, target)(group, source, target, here, samples)


def sum_in_place(group, array, layer):
    """`Partial -> Replicate` within an array: every rank gets the sum. layer: the name under which the bytes are counted."""
    move_between(group, Partial(), Replicate(), array.shape).in_place(array, None, layer)


def elements_sent(source, target, samples, shape, group_size):
    """Elements that all ranks of a group together send in one move.

    source, target: placements. samples: how many the group holds together. shape: of a whole sample.
    """
    if source == target or group_size == 1:
        return 0
    whole, total = (samples, *shape), 0
    for rank in range(group_size):
        here = whole
        if source.dim is not None:
            here = resized(whole, source.dim, source.partition_of(samples).size(rank))
        total += move_between(GroupDescription(group_size, rank), source, target, here, samples).sent
    return total
