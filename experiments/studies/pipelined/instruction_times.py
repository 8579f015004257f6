"""How long each instruction of a pipeline takes on each rank."""

from collections import defaultdict
from statistics import fmean

from gridgrad.nn import device
from gridgrad.nn.observer import Observer


class InstructionTimes(Observer):
    """Records the seconds of every instruction of this rank, while it observes a ParallelSequential.

        with net.observed_by(InstructionTimes(net)) as times:
            ...

    seconds: {(op, chunk): a list}. A receive takes as long as the rank waits in it.
    """

    def __init__(self, net):
        self.net, self.seconds, self._start = net, defaultdict(list), None

    def begin_instruction(self, instruction):
        self._start = self.net.grid.tally.clock.now()

    def end_instruction(self, instruction):
        device.synchronise()
        self.seconds[instruction.op, instruction.chunk].append(self.net.grid.tally.clock.now() - self._start)

    def table(self, comm):
        """{(rank, op, chunk): mean seconds} of all ranks, on all ranks, without receives. Collective over `comm`."""
        mine = {key: fmean(seconds) for key, seconds in self.seconds.items() if not key[0].startswith("RECV")}
        return {(rank, *key): value for rank, found in enumerate(comm.allgather(mine)) for key, value in found.items()}

    @property
    def waited(self):
        """Seconds that this rank has waited for messages."""
        return sum(sum(seconds) for (op, _), seconds in self.seconds.items() if op.startswith("RECV"))
