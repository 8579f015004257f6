"""Training steps with parameter servers, and with an all-reduce, on the same ranks."""

import time
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.studies.servers.made_up_server import momentum
from gridgrad.nn import LOSSES
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.server import OWNERSHIPS
from gridgrad.parallel.protocols.workers import divide, one_worker

WAYS = protocol_names.SYNC, *(f"server:{policy}:{owners}" for policy in ("bsp", "asp") for owners in OWNERSHIPS)


class ProtocolSteps:
    """A network that all ranks of `comm` train with one protocol. Making one is collective, and so are its methods.

    way: the name of the protocol. serial: the network, serially. x, y: the global minibatch of all steps.
    """

    def __init__(self, way, serial, comm, x, y, reduction):
        self.grid, self.x, self.y = ProcessGrid(comm, batch=comm.size), x, y
        own_grid, self.workers = (one_worker if way == protocol_names.SYNC else divide)(self.grid)
        self.net = parallelize(serial, own_grid, reduction=reduction)
        self.protocol = protocol_names.parse(way)(self.net, self.workers, momentum)
        self.trainer = self.net.trainer(LOSSES["cross-entropy"](), self.protocol)
        shares = self.protocol.shares(len(x), len(x), seed=0)
        self.turns = self.protocol.turns(shares, steps=2**40)  # far more than are taken
        self.taken, self.rounds = 0, []

    def steps(self, count):
        """Seconds of a step, that is of as many turns as there are workers, in so many steps that begin together.

        A worker that has taken its turns serves the others until they have taken theirs.
        """
        comm = self.grid.comm
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(count):
            turn = next(self.turns)
            self.trainer.step([self.net.blocks(self.x[turn.indices], self.y[turn.indices])], turn.samples)
        seconds = time.perf_counter() - start
        self.workers.wait_until(comm.Ibarrier().Test)
        self.taken += count
        return comm.allreduce(seconds, MPI.MAX) / count

    def row(self):
        """What the results have of this side: a dict. messages: None where the MPI library's collectives send them."""
        records = self.grid.tally.records.values()
        sent = np.array([[sum(record.bytes for record in records), sum(record.messages for record in records)]])
        sent = np.concatenate(self.grid.comm.allgather(sent / self.taken))
        return {
            "seconds": median(self.rounds), "fastest": min(self.rounds), "slowest": max(self.rounds), "rounds": self.rounds,
            "bytes": sent[:, 0].sum(), "most_bytes": sent[:, 0].max(),
            "messages": sent[:, 1].sum() if self.workers.size > 1 else None,
        }  # fmt: skip

    def end(self):
        """End the training: RuntimeError if a gradient was lost."""
        self.protocol.finish()
        self.grid.free()


def measure(comm, serial, outputs, batch_size, reduction, rounds, steps):
    """Rows of the ways: a list of dicts, the first one for the all-reduce. Collective.

    serial: the network. batch_size: of the global minibatch, at least one sample for each rank. reduction: of the all-reduce.
    In each of the rounds every way takes some steps.
    """
    x, y = minibatch(serial.input_shape, outputs, batch_size)
    sides = {way: ProtocolSteps(way, serial, comm, x, y, reduction) for way in WAYS}
    for side in sides.values():
        side.steps(2)  # the first steps allocate memory
        side.taken = 0
        side.grid.tally.clear()
    for _ in progress(range(rounds), "rounds", comm.rank == 0):
        for side in sides.values():
            side.rounds.append(side.steps(steps))
    rows = []
    for way, side in sides.items():
        ratios = [own / other for own, other in zip(side.rounds, sides[protocol_names.SYNC].rounds)]
        rows.append({"way": way, **side.row(), "ratio": median(ratios), "ratio_range": [min(ratios), max(ratios)]})
        side.end()
    return rows
