"""What a rank does in a training step as operations, each of which requires earlier ones, for formats that are graphs.

| an action    | its operations                                                                                          |
|--------------|---------------------------------------------------------------------------------------------------------|
| `Compute`    | itself, which all that follows requires                                                                 |
| `Collective` | its messages (`experiments/export/rounds.py`), and after each round a `WAIT` for all of it; or itself   |
| `Send`       | itself, for which nothing waits                                                                         |
| `Expect`     | itself: the message is received                                                                         |
| `Receive`    | a `WAIT` for it                                                                                         |
"""

from typing import NamedTuple

from gridgrad.experiments.export.actions import Collective, Compute, Expect, Receive, Send
from gridgrad.experiments.export.rounds import OF_COLLECTIVES, rounds

WAIT = Compute("wait", 0.0)


class Operation(NamedTuple):
    """An operation. number: of it on its rank, from 1. requires: the numbers of those that must have ended before it begins.

    what: a Compute, Send, Expect or Collective. meeting: of a Collective, those of all its ranks, in their order.
    """

    number: int
    what: object
    requires: tuple
    meeting: list | None = None


def operations(actions, lists, whole=()):
    """Yield the Operations of a rank, in an order in which they can be done.

    actions: see `step_actions`. lists: its `meetings`. whole: the kinds of collectives that stay what they are.
    """
    number, last, expected = 0, (), {}
    for one in actions:
        match one:
            case Compute():
                number += 1
                yield Operation(number, one, last)
                last = (number,)
            case Collective() if one.kind in whole:
                number += 1
                yield Operation(number, one, last, next(lists))
                last = (number,)
            case Collective():
                for sends, receives in rounds(next(lists), one.place):
                    messages = [Send(*to, OF_COLLECTIVES) for to in sends]
                    messages += [Expect(*origin, OF_COLLECTIVES) for origin in receives]
                    numbers = range(number + 1, number + 1 + len(messages))
                    yield from (Operation(*message, last) for message in zip(numbers, messages, strict=True))
                    if messages:
                        number += len(messages) + 1
                        yield Operation(number, WAIT, (*last, *numbers))
                        last = (number,)
            case Send():
                number += 1
                yield Operation(number, one, last)
            case Expect():
                number += 1
                yield Operation(number, one, last)
                expected[one.sender, one.tag] = number
            case Receive():
                number += 1
                yield Operation(number, WAIT, (*last, expected.pop((one.sender, one.tag))))
                last = (number,)
