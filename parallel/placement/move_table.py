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

Each row is a Move (`moves.py`, `local_moves.py`, `master_moves.py`). Training, the sums of gradients, the byte formulas, the
cost model and the planner all use this one table.
"""

from typing import Any

from gridgrad.parallel.placement.local_moves import FirstRankKeeps, PutIntoZeros, SameRank, TakePart, Unchanged
from gridgrad.parallel.placement.master_moves import HandIn, HandOut
from gridgrad.parallel.placement.moves import AllGather, AllReduce, AllToAll, Exchange, Move, ReduceScatter, Step
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

EXCHANGE, HAND_OUT, HAND_IN = Exchange(), HandOut(), HandIn()
MOVES = {
    (Shard, Replicate): AllGather(),
    (Partial, Shard): ReduceScatter(),
    (Partial, Replicate): AllReduce(),
    (Shard, Shard): AllToAll(),  # of another dimension
    (Shard, Copies): EXCHANGE,
    (PartialShard, Shard): EXCHANGE,
    (Copies, Shard): TakePart(),
    (Shard, PartialShard): PutIntoZeros(),
    (Copies, Copies): TakePart(),
    (PartialShard, PartialShard): PutIntoZeros(),
    (Replicate, Shard): TakePart(),
    (Shard, Partial): PutIntoZeros(),
    (Replicate, Copies): TakePart(),
    (PartialShard, Partial): PutIntoZeros(),
    (Replicate, Partial): FirstRankKeeps(),
    (Shard, Invariant): AllGather(),
    (Partial, Invariant): AllReduce(),
    (Invariant, Shard): TakePart(),
    (Invariant, Partial): FirstRankKeeps(),
    (Invariant, Replicate): Unchanged(),
    (Replicate, Invariant): Unchanged(),
    (Shard, AtRank): SameRank(),
    (AtRank, Shard): SameRank(),
    (AtMaster, Shard): HAND_OUT,
    (AtMaster, Copies): HAND_OUT,
    (Shard, AtMaster): HAND_IN,
    (PartialShard, AtMaster): HAND_IN,
}


def move_of(source: Any, target: Any) -> Move:
    """The row of the table for two placements; KeyError if there is none."""
    key = type(source), type(target)
    return EXCHANGE if key == (Shard, Shard) and source.dim == target.dim else MOVES[key]


def step_of(group, source, target, here, samples):
    """The Step from one placement to another by the row of the table; KeyError if there is none. The arguments: see Step."""
    return Step(move_of(source, target), group, source, target, here, samples)


def sum_in_place(group, array, layer):
    """`Partial -> Replicate` within an array: every rank gets the sum. layer: the name under which the bytes are counted."""
    step = step_of(group, Partial(), Replicate(), array.shape, None)
    step.move.in_place(step, array, None, layer)


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
        total += step_of(Member(group_size, rank), source, target, here, samples).sent
    return total


class Member:
    """One rank of a group of a given size, for a Step that is only counted and never run."""

    def __init__(self, size, rank):
        self.size, self.rank = size, rank
