"""How the workers of an update protocol reach each other, through MPI. Besides collectives they send each other messages that
nobody waits for: the receiver calls a function for each kind of message when it looks for messages, at the progress points of
its layers and while it waits. So a rank serves its parameters without a thread or a core for that."""

import time
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from gridgrad.nn.device import to_host
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.group import Call, Group
from gridgrad.parallel.grid.process_grid import BATCH, LAYER_AXES, STAGE, ProcessGrid
from gridgrad.parallel.job.run import dead, is_death
from gridgrad.parallel.job.waiting import sleep_until
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS

INTERVAL = 0.0005  # seconds between two looks for messages while layers compute
LONGEST = 0.001  # seconds that a waiting rank sleeps, at most, when no message has come
NUMBERS = 6  # whole numbers in front of each message: its kind, and up to five more
TAG = 1


class Workers(Observer):
    """The ranks of all workers that hold the same blocks. Making one is collective. comm: theirs; a Cartesian one would not
    survive deaths. inside: the communicator of this worker."""

    def __init__(self, comm, inside, tally):
        self.group, self.inside, self.tally = Group(comm, tally), inside, tally
        self.moves = self.group  # with whose methods samples move between workers
        self.size, self.rank, self.comm = comm.size, comm.rank, comm
        self.kinds, self.handlers = [], {}
        self.dead, self._mourned = [], 0  # workers that have died; of how many `on_death` knows
        self.on_death = None  # function(worker); without it the exception is raised
        self._arriving, self._leaving, self._looked = [], [], 0.0  # messages, as (worker, request, content)

    def now(self):
        """The time in seconds."""
        return self.tally.clock.now()

    def all_reduce(self, array, layer=BETWEEN_WORKERS):
        """Sum an array over the workers, in place. Collective."""
        self.group.all_reduce(array, layer)

    def start_all_reduce(self, array, layer=BETWEEN_WORKERS):
        """Begin `all_reduce`; return a Transfer. Collective."""
        return self.group.start_all_reduce(array, layer)

    def handle(self, kind, function):
        """Call function(source, numbers, array) for each message of a kind: five whole numbers, and raw bytes of what `send`
        got. All workers name all kinds in one order."""
        self.kinds.append(kind)
        self.handlers[kind] = function

    def send(self, to, kind, numbers=(), array=None):
        """Send a message to a worker without waiting; the array is copied. Messages to one worker arrive in their order."""
        content = np.empty(0, np.uint8) if array is None else to_host(array).view(np.uint8)
        if to == self.rank:
            self.handlers[kind](self.rank, filled(numbers), content.copy())
            return
        message = np.empty(8 * NUMBERS + content.size, np.uint8)
        message[: 8 * NUMBERS].view(np.int64)[:] = [self.kinds.index(kind), *filled(numbers)]
        message[8 * NUMBERS :] = content
        with Call(self.group, kind, BETWEEN_WORKERS, message.nbytes, messages=1), self._surviving():
            if to not in self.dead:
                self._leaving.append((to, self.comm.Isend(message, to, TAG), message))

    @property
    def all_sent(self):
        """Whether everything that was sent has left."""
        return not self._leaving

    def serve(self):
        """Handle the messages that have arrived; returns whether there were any."""
        self._leaving = [sent for sent in self._leaving if not self._is_over(*sent[:2])]
        status = MPI.Status()
        with self._surviving():  # begin to receive all messages that other workers have begun to send
            while (found := self.comm.Improbe(MPI.ANY_SOURCE, TAG, status)) is not None:
                message = np.empty(status.Get_count(MPI.BYTE), np.uint8)
                self._arriving.append((status.Get_source(), found.Irecv(message), message))
        late, rest, complete = set(), [], []
        for source, request, message in self._arriving:  # a message waits for earlier ones of its source
            if source in late or not self._is_over(source, request):
                late.add(source)
                rest.append((source, request, message))
            elif source not in self.dead:
                complete.append((source, message))
        self._arriving = rest
        while self._mourned < len(self.dead):
            self._mourned += 1
            self.on_death(self.dead[self._mourned - 1])
        for source, message in complete:
            kind, *numbers = message[: 8 * NUMBERS].view(np.int64).tolist()
            self.handlers[self.kinds[kind]](source, numbers, message[8 * NUMBERS :])
        return bool(complete)

    def _is_over(self, worker, request):
        """Whether a message is complete, or never will be because the worker at its other end has died."""
        if worker not in self.dead:
            with self._surviving():
                return request.Test()
        return worker in self.dead

    @contextmanager
    def _surviving(self):
        """A `with` block that ends early, and notes it, if MPI says that another worker has died."""
        try:
            yield
        except MPI.Exception as error:
            if self.on_death is None or not is_death(error):
                raise
            self.dead += sorted(dead(self.comm) - set(self.dead))

    @property
    def progress(self):
        """The function to be called at the progress points of layers, if there may be messages."""
        return self._serve_now_and_then if self.kinds and self.size > 1 else None

    def _serve_now_and_then(self):
        now = time.perf_counter()
        if now - self._looked > INTERVAL:
            self.serve()
            self._looked = time.perf_counter()

    def wait_until(self, condition):
        """Handle messages until condition() is true; those that are here already in any case."""
        with Call(self.group, "wait", BETWEEN_WORKERS, 0):
            self.serve()
            sleep_until(condition, self.serve, LONGEST)

    def meet_inside(self):
        """Return when all ranks of this worker are here, and handle messages meanwhile. Collective over the worker."""
        if self.inside.size > 1:
            request = self.inside.Ibarrier()
            self.wait_until(request.Test)


def filled(numbers):
    """Exactly five numbers: the rest are zeros."""
    return [*numbers, *[0] * (NUMBERS - 1 - len(numbers))]


INSIDE = (STAGE, *(axis for axis in LAYER_AXES if axis != BATCH))  # the axes over which a worker is spread


def divide(grid: ProcessGrid) -> tuple[ProcessGrid, Workers]:
    """The workers of an update protocol: each coordinate along the axis `batch` of a grid is one. Collective.

    Parameters
    ----------
    grid : ProcessGrid
        The grid of all ranks. Its tally counts what they send, within a worker and between workers.

    Returns
    -------
    The grid of this rank's worker, which has the other axes, and its Workers: how it reaches the ranks of other workers.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import ProcessGrid, divide
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     own, workers = divide(grid)
    ...     print(own.size, workers.size == grid.size, workers.rank == grid.rank)
    ...     workers.comm.Free()
    ...     own.free()
    1 True True
    """
    own = ProcessGrid(grid.group(*INSIDE).comm, **{axis: grid.sizes[axis] for axis in INSIDE})
    own.count_in(grid.tally)
    return own, Workers(grid.comm.Split(own.rank, grid.coordinates[BATCH]), own.comm, grid.tally)


def one_worker(grid):
    """(the grid, Workers without others): all ranks of the grid are one worker."""
    return grid, Workers(MPI.COMM_SELF, grid.comm, grid.tally)
