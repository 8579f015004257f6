"""What the ranks of an update protocol send and compute in a step: each protocol says it of itself, for predictions.

Every worker is one rank. It computes gradients in each step, which is not counted here.
"""

from collections.abc import Sequence
from typing import NamedTuple

UPDATE = 4  # additions and multiplications for each parameter, of an update with momentum


class Message(NamedTuple):
    """A message. elements: numbers in it; 0 of one that only asks. times: how many such messages a step has on average."""

    sender: int
    receiver: int
    elements: int
    times: float = 1.0


class WorkOfStep(NamedTuple):
    """Additions and multiplications on parameters.

    elements: how many parameters each worker works on. operations: for each of them. times: how often in a step on average.
    """

    elements: Sequence[int]
    operations: float
    times: float = 1.0


class Traffic(NamedTuple):
    """All that is sent and computed in a step.

    work: of the workers. sums: (elements, times) of all-reduces over all workers. rounds: lists of Messages with parameters or
    gradients; those of a round travel at the same time, and the next round begins when all have arrived. requests: Messages
    that take no time. serving: the WorkOfStep of parameter servers, in a step.
    asynchronous: whether a server does this work for each worker apart, and no worker waits for the gradients of others; rounds
    are then what workers push to servers, and what they fetch from them.
    """

    work: Sequence[WorkOfStep]
    sums: Sequence[tuple[int, float]] = ()
    rounds: Sequence[Sequence[Message]] = ()
    requests: Sequence[Message] = ()
    serving: WorkOfStep | None = None
    asynchronous: bool = False

    def sent(self, workers: int) -> tuple[list[float], list[float]]:
        """(messages, elements) that each rank sends in a step, without those of all-reduces."""
        messages, elements = [0.0] * workers, [0.0] * workers
        for one in [*self.requests, *(one for found in self.rounds for one in found)]:
            messages[one.sender] += one.times
            elements[one.sender] += one.times * one.elements
        return messages, elements
