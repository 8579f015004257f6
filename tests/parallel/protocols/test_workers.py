"""Messages between workers, as they come in."""

import numpy as np

from gridgrad.parallel.grid.group import Tally
from gridgrad.parallel.protocols.workers import NUMBERS, Workers
from tests.mpi import mpi


class Late:
    """The request of a message that is complete at the look behind so many others."""

    def __init__(self, looks):
        self.looks = looks

    def Test(self):
        self.looks -= 1
        return self.looks < 0


@mpi(1)
def test_messages_of_a_worker_are_handled_in_their_order_whenever_they_are_complete(comm):
    workers, handled = Workers(comm, comm, Tally()), []
    workers.handle("number", lambda source, numbers, array: handled.append((source, numbers[0])))
    for source, looks, number in [(1, 2, 10), (2, 0, 20), (1, 0, 11), (1, 1, 12)]:
        message = np.array([0, number, *[0] * (NUMBERS - 2)]).view(np.uint8)
        workers._arriving.append((source, Late(looks), message))
    while workers._arriving:
        workers.serve()
    assert handled == [(2, 20), (1, 10), (1, 11), (1, 12)]
