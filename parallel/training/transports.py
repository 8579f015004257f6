"""How the messages of a pipeline travel.

A message is known by its way ("forward" or "backward"), the number of the chunk behind the boundary that it crosses, and its
micro-batch. Sends do not block, and a rank may announce the messages that it will receive before they are sent.
"""

from collections import defaultdict, deque

from gridgrad.nn.device import empty
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.devices import Staging
from gridgrad.parallel.grid.group import TAGS, Transfer

WAYS = "forward", "backward"
TEST_INTERVAL = 0.0005  # seconds between two tests of the messages under way
LEAST_TAGS = 32768  # how many message tags every MPI library has


class BufferPool:
    """Flat arrays that are used again and again. dtype: of their elements."""

    def __init__(self, dtype):
        self.dtype, self._free = dtype, defaultdict(list)

    def take(self, size):
        """A flat array of `size` elements, which belongs to the caller until it is given back."""
        free = self._free[size]
        return free.pop() if free else empty(size, self.dtype)

    def give_back(self, array):
        """Return an array that `take` has returned."""
        self._free[array.size].append(array)


class MpiTransport(Observer):
    """Messages between the ranks of a Group, through MPI.

    group: the Group. chunks: how many chunks the pipeline has. pool: a BufferPool.

    It is an observer of the network: within long layers the MPI library is called now and then, because most libraries move a
    long message only while they are called.
    """

    def __init__(self, group, chunks, pool):
        self.group, self.chunks, self.pool = group, chunks, pool
        self.numbers = (LEAST_TAGS - TAGS) // (2 * chunks)  # micro-batches whose messages have different tags
        self.sending = deque()  # (the Transfers of a send, the arrays to give back after them)
        self.expected, self._tested = {}, 0.0  # {message: Transfers}

    def send(self, way, chunk, micro_batch, messages, given=()):
        """Begin to send {rank: array}. given: arrays of the pool, in which the messages are; they return to it afterwards."""
        self._collect()
        tag = self._tag(way, chunk, micro_batch)
        transfers = []
        for rank, array in messages.items():
            steps = self._sending(array, rank, tag)
            transfers.append(Transfer(self.group, f"chunk {chunk}", "send", array.nbytes, steps, messages=1))
        self.sending.append((transfers, given))

    def expect(self, way, chunk, micro_batch, buffers):
        """Announce that messages will come, and write each to its array. buffers: {rank: array}."""
        tag = self._tag(way, chunk, micro_batch)
        self.expected[way, chunk, micro_batch] = transfers = []
        for rank, array in buffers.items():
            transfers.append(Transfer(self.group, f"chunk {chunk}", "receive", 0, self._receiving(array, rank, tag)))

    def arrived(self, way, chunk, micro_batch):
        """Wait for the announced messages; returns whether they have arrived, which here is always so."""
        for transfer in self.expected.pop((way, chunk, micro_batch)):
            transfer.wait()
        return True

    def abandon(self):
        """Announced messages will not come any more. It does not communicate."""
        for transfer in sum(self.expected.values(), []):
            if not transfer.done:
                transfer.request.Cancel()
                transfer.request.Wait()
        self.expected.clear()

    def complete_sends(self):
        """Return when everything that was sent has left, and its arrays may change."""
        for transfers, _ in self.sending:
            for transfer in transfers:
                transfer.wait()
        self._collect()

    @property
    def progress(self):
        """The function to be called at the progress points of layers, if a message is under way."""
        return self._progress if self.sending or self.expected else None

    def _progress(self):
        now = self.group.tally.clock.now()
        if now - self._tested > TEST_INTERVAL:
            for transfers in (*(found for found, _ in self.sending), *self.expected.values()):
                for transfer in transfers:
                    transfer.test()
            self._collect()
            self._tested = self.group.tally.clock.now()

    def _collect(self):
        """Forget the oldest sends, as far as they are complete, and give their arrays back."""
        while self.sending and all([transfer.test() for transfer in self.sending[0][0]]):
            _, given = self.sending.popleft()
            for array in given:
                self.pool.give_back(array)

    def _sending(self, array, rank, tag):
        stage = Staging()
        yield self.group.comm.Isend(stage.outgoing(array), rank, tag)

    def _receiving(self, array, rank, tag):
        stage = Staging()
        received = stage.incoming(array)
        yield self.group.comm.Irecv(received, rank, tag)
        stage.arrived(received, array)

    def _tag(self, way, chunk, micro_batch):
        """A tag that the group itself does not use. MPI keeps the order of messages with one tag, so it may be used again."""
        return TAGS + (micro_batch % self.numbers * self.chunks + chunk) * 2 + WAYS.index(way)
