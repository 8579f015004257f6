"""Collectives as messages between their ranks, for simulators that know none, or only those of all ranks; and what a rank does
as operations that require earlier ones, for formats that are graphs.

In one round of a collective each of its ranks sends, receives, and waits for both. There are as many rounds, and as many bytes
from each rank, as the table of collectives says (`parallel/grid/collectives.py`), whatever the collective is:

| a collective                                  | its rounds                                                               |
|-----------------------------------------------|--------------------------------------------------------------------------|
| whose messages are known, such as an exchange | one, in which all messages travel; empty ones are left out               |
| of log2(ranks) rounds                         | pairs exchange one block with the rank half of the group away, then two  |
|                                               | with that a quarter away, and so on (Thakur et al. 2005, of all-reduces) |
| of log2(ranks) rounds, rounded up             | in round k 2^k blocks to the rank 2^k away (Bruck et al. 1997)           |
| of twice as many, such as an all-reduce       | the same, backwards and then forwards, each with half of the bytes       |
| of any other number of rounds                 | a ring: as many bytes to the next rank in each of them                   |

This is the order of an all-gather; reductions go backwards, which takes as long. Where the blocks of the ranks differ, each
rank still sends its own bytes in total, in messages that are in proportion.
"""

from collections import defaultdict
from functools import partial
from itertools import accumulate, count
from typing import NamedTuple

from gridgrad.experiments.export.actions import Collective, Compute, Expect, Receive, Send
from gridgrad.parallel.grid.collectives import COLLECTIVES, rounded_up_log2

OF_COLLECTIVES = 0  # the tag of all messages of collectives; those of pipelines have tags from 1
WAIT = Compute("wait", 0.0)


def meetings(actions):
    """For each rank, an iterator of the collectives that it takes part in, each as the list of the Collectives of its ranks.
    ValueError if ranks of a group do not enter the same ones. actions: a list for each rank."""
    found, per_rank = defaultdict(list), []
    for of_rank in actions:
        numbers, mine = defaultdict(int), []
        for one in of_rank:
            if isinstance(one, Collective):
                key = one.ranks, numbers[one.ranks]
                numbers[one.ranks] += 1
                found[key].append(one)
                mine.append(found[key])
        per_rank.append(mine)
    for meeting in found.values():
        first = meeting[0]
        if len(meeting) < len(first.ranks) or any(one.kind != first.kind for one in meeting):
            raise ValueError(f"not all ranks of a group enter the {first.kind} of layer {first.layer}: this plan has no step")
    return list(map(iter, per_rank))


def rounds(meeting, place):
    """Yield what the rank at a place of a collective sends and receives in each round, and waits for: two lists of (other rank,
    bytes). meeting: the Collectives of all its ranks, in their order."""
    mine = meeting[place]
    if mine.messages is not None:
        sends = [(mine.ranks[to], nbytes) for to, nbytes in mine.messages.items()]
        receives = [(one.ranks[one.place], one.messages[place]) for one in meeting if place in one.messages]
        yield sends, receives
        return
    size = len(mine.ranks)
    found = steps(mine.kind, size)
    ends = [0, *accumulate(blocks for _, blocks in found)]
    for number, (place_of, _) in enumerate(found):
        after, before = place_of(place, 1), place_of(place, -1)
        sent, received = (
            one.nbytes * ends[number + 1] // ends[-1] - one.nbytes * ends[number] // ends[-1] for one in (mine, meeting[before])
        )
        yield [(mine.ranks[after], sent)], [(mine.ranks[before], received)]


def steps(kind, ranks):
    """For each round of a collective (a function of a place and 1 or -1, the sizes of its messages in proportion), a list. The
    function returns the place to which a rank sends, 1, or the one from which it receives, -1."""
    number, logarithm = COLLECTIVES[kind].rounds(ranks), rounded_up_log2(ranks)
    if number not in (logarithm, 2 * logarithm):
        return [(partial(further, 1, ranks), 1)] * number
    distances = [2**k for k in range(logarithm)]
    blocks = [min(distance, ranks - distance) for distance in distances]
    if ranks == 2**logarithm:
        found = [(partial(paired, distance), of) for distance, of in zip(reversed(distances), blocks, strict=True)]
    else:
        found = [(partial(further, distance, ranks), of) for distance, of in zip(distances, blocks, strict=True)]
    return found if number == logarithm else [*reversed(found), *found]


def further(distance, ranks, place, way):
    return (place + way * distance) % ranks


def paired(distance, place, way):
    return place ^ distance


class Operation(NamedTuple):
    number: int  # of it on its rank, from 1
    what: object  # a Compute, Send, Expect or Collective
    requires: tuple  # the numbers of those that must have ended before it begins
    meeting: list | None = None  # of a Collective, those of all its ranks, in their order


def operations(actions, lists, whole=()):
    """Yield the Operations of a rank, in an order in which they can be done; nothing waits for a Send. lists: its `meetings`.
    whole: the kinds of collectives that stay what they are."""
    numbers, last, expected = count(1), (), {}
    for one in actions:
        meeting = next(lists) if isinstance(one, Collective) else None
        if meeting and one.kind not in whole:
            for sends, receives in rounds(meeting, one.place):
                messages = [Send(*to, OF_COLLECTIVES) for to in sends]
                messages += [Expect(*origin, OF_COLLECTIVES) for origin in receives]
                begun = [Operation(next(numbers), message, last) for message in messages]
                yield from begun
                if begun:
                    wait = Operation(next(numbers), WAIT, (*last, *(message.number for message in begun)))
                    yield wait
                    last = (wait.number,)
            continue
        number = next(numbers)
        match one:
            case Receive():
                yield Operation(number, WAIT, (*last, expected.pop((one.sender, one.tag))))
            case Expect():
                expected[one.sender, one.tag] = number
                yield Operation(number, one, last)
            case _:
                yield Operation(number, one, last, meeting)
        if not isinstance(one, Send | Expect):
            last = (number,)
