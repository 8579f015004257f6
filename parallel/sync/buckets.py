"""Buckets: slices of the flat buffers whose gradients a group of ranks sums in one collective.

| bucket            | gradients      | the optimizer updates | parameters afterwards |
|-------------------|----------------|-----------------------|-----------------------|
| `AllReduceBucket` | all-reduce     | the whole bucket      | -                     |
| `ShardedBucket`   | reduce-scatter | this rank's shard     | all-gather            |

`ShardedBucket` is the first stage of ZeRO (Rajbhandari et al. 2020, section 5.1): on P ranks the optimizer's state takes 1/P of
the memory and the update 1/P of the time. Both buckets send the same number of bytes. `Float16Bucket` and
`Float16ShardedBucket` send gradients in float16 (`parallel/sync/float16_sums.py`); parameters are always sent in their own
type.
"""

from gridgrad.nn.device import empty
from gridgrad.parallel.grid.transfer import CompletedTransfer
from gridgrad.parallel.placement.partition import Partition, size, within
from gridgrad.parallel.sync.float16_sums import start_float16_all_reduce, start_float16_reduce_scatter

LAYER = "gradients"  # the name under which the tally counts the sums; it counts the all-gathers under "parameters"


class AllReduceBucket:
    """A bucket whose gradients are summed by an all-reduce, and all of whose parameters every rank updates.

    group: the Group of ranks that hold these parameters. where: the bucket as a slice of the flat buffers.
    params, grads: the flat buffers. owned: the slice of the flat buffers that the optimizer updates on this rank.
    All methods are collective over the group.
    """

    def __init__(self, group, where, params, grads):
        self.group, self.where, self.owned = group, where, where
        self.params, self.grads = params[where], grads[where]

    def reduce(self):
        """Sum the gradients over the group; afterwards those of the owned slice are final."""
        self.group.all_reduce(self.grads, LAYER)

    def start_reduce(self):
        """Begin `reduce`; return a Transfer."""
        return self.group.start_all_reduce(self.grads, LAYER)

    def gather(self):
        """Send the updated parameters to the ranks that did not update them: here every rank updated all."""

    def start_gather(self):
        """Begin `gather`; return a Transfer."""
        return CompletedTransfer()


class ShardedBucket(AllReduceBucket):
    """A bucket whose gradients are summed by a reduce-scatter, and of whose parameters each rank updates an even shard."""

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
    """An AllReduceBucket that sends its gradients in float16."""

    def reduce(self):
        self.start_reduce().wait()

    def start_reduce(self):
        return start_float16_all_reduce(self.group, self.grads, LAYER)


class Float16ShardedBucket(ShardedBucket):
    """A ShardedBucket that sends its gradients in float16."""

    def reduce(self):
        self.start_reduce().wait()

    def start_reduce(self):
        return start_float16_reduce_scatter(self.group, self.grads, LAYER)


BUCKETS = {  # (sharded, gradients sent in float16): class
    (False, False): AllReduceBucket,
    (True, False): ShardedBucket,
    (False, True): Float16Bucket,
    (True, True): Float16ShardedBucket,
}
