"""Buckets: slices of the flat buffers whose gradients a group of ranks sums by one collective.

| bucket      | gradients        | an optimizer updates | parameters afterwards |
|-------------|------------------|----------------------|-----------------------|
| `AllReduceBucket`     | all-reduce       | all of it            | -                     |
| `ShardedBucket`   | reduce-scatter   | this rank's part     | all-gather            |

`ShardedBucket` is the first stage of ZeRO (Rajbhandari et al. 2020, section 5.1): the state of the optimizer takes 1/P of the
memory, and the update 1/P of the time. Each moves the same bytes. With float16 gradients they travel as `parallel/sync/float16_sums.py`
says; parameters always travel as they are.
"""

from nn.device import empty
from parallel.grid.transfer import CompletedTransfer
from parallel.placement.partition import Partition, size, within
from parallel.sync.float16_sums import start_float16_all_reduce, start_float16_reduce_scatter

LAYER = "gradients"  # the entry of the tally; that of parameters is "parameters"


class AllReduceBucket:
    """group: the ranks. where: the slice. params, grads: the flat buffers.

    owned: the slice that an optimizer updates on this rank.
    """

    def __init__(self, group, where, params, grads):
        self.group, self.where, self.owned = group, where, where
        self.params, self.grads = params[where], grads[where]

    def reduce(self):
        """Sum the gradients: the owned ones are final then."""
        self.group.all_reduce(self.grads, LAYER)

    def start_reduce(self):
        """Begin it: a Transfer."""
        return self.group.start_all_reduce(self.grads, LAYER)

    def gather(self):
        """Bring the updated parameters to all ranks."""

    def start_gather(self):
        """Begin it: a Transfer."""
        return CompletedTransfer()


class ShardedBucket(AllReduceBucket):
    def __init__(self, group, where, params, grads):
        super().__init__(group, where, params, grads)
        parts = Partition.even(size(where), group.size)
        self.counts, self.part = parts.sizes, parts.part(group.rank)
        self.owned = within(where, self.part)
        self.sum = empty(size(self.part), grads.dtype)

    def reduce(self):
        self.group.reduce_scatter(self.grads, self.sum, self.counts, LAYER)
        self.grads[self.part] = self.sum

    def start_reduce(self):
        return self.group.start_reduce_scatter(self.grads, self.counts, self.sum, LAYER)

    def gather(self):
        self.group.all_gather_in_place(self.params, self.counts, "parameters")

    def start_gather(self):
        return self.group.start_all_gather_in_place(self.params, self.counts, "parameters")


class Float16Bucket(AllReduceBucket):
    def reduce(self):
        self.start_reduce().wait()

    def start_reduce(self):
        return start_float16_all_reduce(self.group, self.grads, LAYER)


class Float16ShardedBucket(ShardedBucket):
    def reduce(self):
        self.start_reduce().wait()

    def start_reduce(self):
        return start_float16_reduce_scatter(self.group, self.grads, LAYER)


BUCKETS = {(False, False): AllReduceBucket, (True, False): ShardedBucket, (False, True): Float16Bucket, (True, True): Float16ShardedBucket}
