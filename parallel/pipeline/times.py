"""How long the instructions of a schedule take."""

from dataclasses import dataclass, field


class Times:
    """What `simulate` and `stream` ask for. Subclasses define `seconds`, and `message` if messages take time."""

    def seconds(self, rank, instruction):
        """Seconds that the rank is busy with an Instruction; for sends and receives, without the flight of the message."""
        raise NotImplementedError

    def message(self, sender, receiver, instruction):
        """(latency, occupied) in seconds, of what one rank sends another in a SEND_F or SEND_B.

        How messages travel says `Network` of `parallel/grid/virtual_time.py`.
        """
        return 0.0, 0.0


@dataclass(frozen=True)
class UnitTimes(Times):
    """The same times on all ranks and for all chunks. B takes as long as I and W together. latency: of messages."""

    forward: float = 1
    input: float = 1
    weight: float = 1
    update: float = 0
    latency: float = 0

    def seconds(self, rank, instruction):
        return self._of_op.get(instruction.op, 0)

    @property
    def _of_op(self):
        return {
            "F": self.forward,
            "I": self.input,
            "W": self.weight,
            "B": self.input + self.weight,
            "U": self.update,
        }

    def message(self, sender, receiver, instruction):
        return self.latency, 0


@dataclass(frozen=True)
class TableTimes(Times):
    """Times from a table, for example measured ones.

    table: {(rank, op, chunk) or, for one alone, (rank, op, chunk, micro-batch): seconds}; the chunk of an update is None. A B
    that is missing takes as long as I and W; others that are missing take no time. flights: {(sender, receiver, op of the
    send, chunk): (latency, occupied)}; a message that is missing takes no time.
    """

    table: dict
    flights: dict = field(default_factory=dict)

    def seconds(self, rank, instruction):
        found = self.table.get((rank, *instruction), self.table.get((rank, instruction.op, instruction.chunk)))
        if found is None and instruction.op == "B":
            return sum(self.seconds(rank, instruction._replace(op=half)) for half in "IW")
        return found or 0.0

    def message(self, sender, receiver, instruction):
        return self.flights.get((sender, receiver, instruction.op, instruction.chunk), (0.0, 0.0))
