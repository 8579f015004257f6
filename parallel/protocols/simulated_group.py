"""The collectives of a Group among simulated workers, made of messages: see `simulated_workers.py`."""

from collections import defaultdict

import numpy as np

from gridgrad.parallel.grid.group import pieces
from gridgrad.parallel.grid.transfer import CompletedTransfer

PART = "part"  # the kind of their messages


class SimulatedGroup:
    """The methods of a Group that moves of samples call, for one simulated worker. All workers make theirs before time passes.

    workers: a SimulatedWorkers. What is sent is counted as messages between workers.
    """

    def __init__(self, workers):
        self.workers, self.size, self.rank = workers, workers.size, workers.rank
        self._begun, self._arrived = 0, defaultdict(dict)  # exchanges; {number of an exchange: {worker: what it sent}}
        workers.handle(PART, self._keep)

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        parts = np.split(blocks, np.cumsum(counts)[:-1])
        _fill(out, self._exchanged(dict(enumerate(parts)), range(self.size)))

    def start_exchange(self, blocks, counts, out, out_counts, layer):
        parts = {worker: part for worker, part in enumerate(pieces(blocks, counts)) if part.size}
        arrived = self._exchanged(parts, [worker for worker, count in enumerate(out_counts) if count])
        if arrived:
            _fill(out, arrived)
        return CompletedTransfer()

    def all_gather(self, block, out, counts, layer):
        _fill(out, self._exchanged(dict.fromkeys(range(self.size), block), range(self.size)))

    def gather(self, block, out, counts, layer):
        arrived = self._exchanged({0: block}, range(self.size) if self.rank == 0 else ())
        if self.rank == 0:
            _fill(out, arrived)

    def broadcast(self, array, layer):
        parts = dict.fromkeys(range(self.size), array) if self.rank == 0 else {}
        _fill(array, self._exchanged(parts, (0,)))

    def _exchanged(self, parts, sources):
        """Send parts, {worker: array}; return what the workers `sources` have sent in the same exchange, as raw bytes."""
        number, self._begun = self._begun, self._begun + 1
        for to, part in parts.items():
            self.workers.send(to, PART, (number,), part)
        arrived = self._arrived[number]
        self.workers.wait_until(lambda: len(arrived) == len(sources))
        del self._arrived[number]
        return [arrived[source] for source in sources]

    def _keep(self, source, numbers, content):
        self._arrived[numbers[0]][source] = content


def _fill(out, contents):
    """Write blocks of raw bytes to an array, one after another."""
    out[...] = np.concatenate(contents).view(out.dtype)
