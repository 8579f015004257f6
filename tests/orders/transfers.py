"""What is under way between ranks: messages, collectives, and the requests by which ranks ask for them.

Where MPI says that memory must not be read or written meanwhile, that is checked: an array that is being received or summed is
filled with NaN until it is there, and a message must not change between its sending and its arrival.
"""

import numpy as np
from mpi4py import MPI

from tests.orders.machine import GO, Pause, Violation

OPERATIONS = (MPI.SUM, np.add), (MPI.MAX, np.maximum), (MPI.MIN, np.minimum)
NOT_YET = -(1 << 40)  # in an array of whole numbers that is being summed


class Until(Pause):
    """Until a condition is true. causes: of going on, a function."""

    def __init__(self, condition, words, causes=tuple, within=None):
        self.condition, self.words, self._causes, self.within = condition, words, causes, within

    def actions(self, actor):
        return [(GO, actor)] if self.condition() else []

    def causes(self, action):
        return self._causes()


class Message:
    """array: what was sent; content: a copy. event: the number of the one that sent it. left: whether it has arrived."""

    def __init__(self, world, array, key):
        self.array, self.content, self.event, self.left = array, array.copy(), world.machine.number, world.is_eager
        self.place = world.place("left", key)
        self.memory = None if self.left else world.memory(array, key[1], self.place)

    def leave(self, machine):
        """It arrives. Raises Violation if its array has changed meanwhile."""
        if not self.left:
            self.left_at = machine.number
            machine.event.writes.add(self.place)
            machine.event.reads.add(self.memory)
            if self.array.tobytes() != self.content.tobytes():
                raise Violation("a message is changed before it has left")
        self.left = True

    def Irecv(self, buffer):
        """As of the mpi4py.MPI.Message that `Improbe` returns."""
        buffer[...] = self.content
        return DONE


class Done:
    """A request that is complete from the beginning."""

    def Test(self):
        return True

    def Wait(self):
        pass


DONE = Done()


class Sending:
    """The request of a message that may not have left yet."""

    def __init__(self, comm, message):
        self.comm, self.message = comm, message

    def Test(self):
        """Whether it has left. Where the rank only forgets those that have left, that is no matter of order."""
        machine = self.comm.machine
        if not self.comm.is_tidying and machine.event is not None and machine.acting is self.comm.actor:
            machine.event.observe(self.message.place, self.message.left)
        return self.message.left

    def Wait(self):
        while not self.message.left:
            words = f"a message to leave rank {self.comm.own}"
            self.comm.wait(Until(lambda: self.message.left, words, lambda: (self.message.left_at,)))


class Receive:
    """The request of a message that was announced: where it is written to. place: of what says that it has arrived."""

    def __init__(self, comm, buffer, key):
        self.comm, self.buffer, self.key, self.arrived = comm, buffer, key, None
        self.place, self.event = comm.world.place("arrived", key), comm.machine.number
        if buffer.dtype.kind == "f":
            buffer[...] = np.nan

    def move(self, message):
        """The message arrives."""
        machine = self.comm.machine
        event = machine.event
        event.causes |= {message.event, self.event} - {-1}
        event.writes.add(self.place)
        message.leave(machine)
        if self.buffer.dtype.kind == "f" and not np.isnan(self.buffer).all():
            raise Violation(f"rank {self.comm.own} writes to memory in which it receives a message")
        self.buffer[...] = message.content
        self.arrived = machine.number
        event.words.append(f"a message of rank {self.key[1]} arrives on rank {self.key[2]}: {message.content.tolist()}")

    def Test(self):
        self.comm.machine.event.observe(self.place, self.arrived is not None)
        return self.arrived is not None

    def Wait(self):
        if not self.comm.machine.stopping:
            words = f"a message of rank {self.key[1]} with the tag {self.key[3]}"
            self.comm.wait(Until(lambda: self.arrived is not None, words, lambda: (self.arrived,)))

    def Cancel(self):
        """It is used where a training step has failed, which ends the execution."""


class Meeting:
    """A collective. values: {rank: what it brings}. events: {rank: the number of the one in which it came}."""

    def __init__(self, words, first):
        self.words, self.first, self.values, self.events, self.reduced, self.requests = words, first, {}, {}, None, []

    def reduction(self, operation):
        """The arrays of all ranks, reduced in the order of the ranks. Violation if they do not fit together."""
        if self.reduced is None:
            arrays = [self.values[rank] for rank in sorted(self.values)]
            if len({(array.shape, array.dtype) for array in arrays}) > 1:
                raise Violation(f"{self.words}: arrays of {', '.join(str(array.shape) for array in arrays)}")
            function = next(function for known, function in OPERATIONS if known == operation)
            self.reduced = arrays[0].copy()
            for array in arrays[1:]:
                function(self.reduced, array, out=self.reduced)
        return self.reduced


class Summing:
    """The request of an all-reduce that nobody waits for yet."""

    def __init__(self, comm, meeting, array, op):
        self.comm, self.meeting, self.array, self.op, self.completed = comm, meeting, array, op, None
        array[...] = np.nan if array.dtype.kind == "f" else NOT_YET
        self.place = "summed", comm.own, meeting.words

    def complete(self):
        machine = self.comm.machine
        machine.event.causes |= set(self.meeting.events.values())
        machine.event.writes.add(self.place)
        self.array[...] = self.meeting.reduction(self.op)
        self.completed = machine.number
        machine.event.words.append(f"{self.meeting.words} is complete on rank {self.comm.own}")

    def Test(self):
        self.comm.machine.event.observe(self.place, None if self.completed is None else self.array.tobytes())
        return self.completed is not None

    def Wait(self):
        words = f"others in {self.meeting.words}"
        self.comm.wait(Until(lambda: self.completed is not None, words, lambda: (self.completed,)))
        event = self.comm.machine.event
        event.label = *event.label, self.array.tobytes()
