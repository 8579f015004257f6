"""Buckets: slices of the flat buffers whose gradients a group of ranks sums by one move of the table.

| update    | gradients, after backward             | this rank updates | parameters, after the update       |
|-----------|---------------------------------------|-------------------|------------------------------------|
| `whole`   | `Partial -> Replicate`: all-reduce    | the whole bucket  | every rank has them all            |
| `sharded` | `Partial -> Shard`: reduce-scatter    | its part          | `Shard -> Replicate`: all-gather   |

The moves are those of activations (`parallel/placement/moves.py`), along the ranks that hold the parameters. They are made
in place, in the flat buffers. Sharded updates are the first stage of ZeRO (Rajbhandari et al. 2020, section 5.1): on P ranks
the optimizer's state takes 1/P of the memory and the update 1/P of the time. Both updates send the same number of bytes.
Gradients may be summed by rows that send them in float16 (`parallel/sync/float16_sums.py`); parameters are always sent in their
own type.
"""

from gridgrad.nn.kernels.workspace import Workspace
from gridgrad.parallel.grid.transfer import CompletedTransfer
from gridgrad.parallel.placement.moves import move_between
from gridgrad.parallel.placement.partition import size, within
from gridgrad.parallel.placement.placements import Partial, Replicate

LAYER = "gradients"  # the name under which the tally counts the sums; it counts the all-gathers under "parameters"


class Bucket:
    """A slice of the flat buffers that a group of ranks holds, and the moves that sum its gradients and share its parameters.

    group: the Group. where: the slice. flat: the FlatParameters. held: the placement of the sum along the group, Replicate or a
    Shard; the rank updates what it holds of it. row: the kind of Move to it from Partial.
    owned: the slice of the flat buffers that the optimizer updates on this rank. All methods are collective over the group.
    """

    def __init__(self, group, where, flat, held, row):
        self.where, self.params, self.grads = where, flat.params[where], flat.grads[where]
        self.sum = row(group, Partial(), held, self.grads.shape, None)
        part = slice(0, size(where)) if held.dim is None else held.partition.part(group.rank)
        self.owned = within(where, part)
        self.gathering = None if held.dim is None else move_between(group, held, Replicate(), (size(part),))
        self._space = Workspace()

    def reduce(self):
        """Sum the gradients over the group; afterwards those of the owned slice are final."""
        self.sum.in_place(self.grads, self._space, LAYER)

    def start_reduce(self):
        """Begin `reduce`; return a Transfer."""
        return self.sum.start(self.grads, self._space, LAYER)

    def gather(self):
        """Send the updated parameters to the ranks that did not update them."""
        if self.gathering:
            self.gathering.in_place(self.params, self._space, "parameters")

    def start_gather(self):
        """Begin `gather`; return a Transfer."""
        if not self.gathering:
            return CompletedTransfer()
        return self.gathering.start(self.params, self._space, "parameters")
