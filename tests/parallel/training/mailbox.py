"""Messages of a pipeline all of whose ranks run in one process, in place of those of `parallel/training/messages.py`."""


class Mailbox:
    """Messages between the ranks of a pipeline that all run in one process, one instruction after another."""

    def __init__(self):
        self.messages = {}

    def transport(self, rank, pool):
        """The transport of one rank."""
        return LocalTransport(self, rank, pool)


class LocalTransport:
    """Messages through a Mailbox. Its methods are those of MpiTransport."""

    def __init__(self, mailbox, rank, pool):
        self.mailbox, self.rank, self.pool = mailbox, rank, pool
        self.expected = {}

    def send(self, way, chunk, micro_batch, messages, given=()):
        for rank, array in messages.items():
            self.mailbox.messages[way, chunk, micro_batch, self.rank, rank] = array.copy()
        for array in given:
            self.pool.give_back(array)

    def expect(self, way, chunk, micro_batch, buffers):
        self.expected[way, chunk, micro_batch] = buffers

    def arrived(self, way, chunk, micro_batch):
        """Whether the announced messages have arrived; only then they are taken out of the mailbox."""
        message = way, chunk, micro_batch
        keys = {rank: (*message, rank, self.rank) for rank in self.expected[message]}
        if not all(key in self.mailbox.messages for key in keys.values()):
            return False
        for rank, array in self.expected.pop(message).items():
            array[...] = self.mailbox.messages.pop(keys[rank])
        return True

    def abandon(self):
        """Announced messages will not come any more."""
        self.expected.clear()

    def complete_sends(self):
        """Nothing is under way in a mailbox."""
