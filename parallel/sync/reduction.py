"""How the gradients of parameters that several ranks hold are summed, and how these ranks keep the parameters equal.

A *run* is a range of consecutive parameters in the flat buffers whose gradients the same group of ranks sums, and of which the
same ranks hold copies. These are more where ranks compute a layer redundantly: each of several groups then sums the gradients
of it. All ranks that hold a copy have runs of the same lengths, so that all of these groups cut, send and add alike, and the
copies stay equal bit by bit.

A *bucket* is a slice of the flat buffers whose gradients a group of ranks sums by one move of the table, in place.

| update    | gradients, after backward             | this rank updates | parameters, after the update       |
|-----------|---------------------------------------|-------------------|------------------------------------|
| `whole`   | `Partial -> Replicate`: all-reduce    | the whole bucket  | every rank has them all            |
| `sharded` | `Partial -> Shard`: reduce-scatter    | its part          | `Shard -> Replicate`: all-gather   |

Sharded updates are the first stage of ZeRO (Rajbhandari et al. 2020, section 5.1): on P ranks the optimizer's state takes 1/P
of the memory and the update 1/P of the time. Both updates send the same number of bytes.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.workspace import Workspace
from gridgrad.nn.layer import FlatParameters
from gridgrad.parallel.grid.group import COMPLETE, MAX_ELEMENTS, Group
from gridgrad.parallel.placement.moves import move_between, move_of
from gridgrad.parallel.placement.partition import Partition, common, size, within
from gridgrad.parallel.placement.placements import Partial, Replicate, Shard
from gridgrad.parallel.sync.float16_sums import Float16Sum

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

UPDATES = WHOLE, SHARDED = "whole", "sharded"  # what of its parameters a rank updates
REDUCE_DTYPES = "same", "float16"  # the types in which gradients are sent; parameters are sent in their own
GRADIENTS = "gradients"  # the name under which the tally counts their sums
PARAMETERS = "parameters"  # and the all-gathers of updated parameters
NORM = "norm"  # and the sum of squares of a gradient that is clipped


class Bucket:
    """A slice `where` of the flat buffers that a Group holds; the optimizer updates `owned` of it on this rank.
    held: the placement of the sum, Replicate or a Shard. row: the kind of Move to it from Partial."""

    def __init__(self, group, where, flat, held, row):
        self.where, self.params, self.grads = where, flat.params[where], flat.grads[where]
        self.sum = row(group, Partial(), held, self.grads.shape, None)
        part = slice(0, size(where)) if held.dim is None else held.partition.part(group.rank)
        self.owned = within(where, part)
        self.gathering = None if held.dim is None else move_between(group, held, Replicate(), (size(part),))
        self._space = Workspace()

    def reduce(self):
        """Sum the gradients over the group; afterwards those of the owned slice are final."""
        self.sum.in_place(self.grads, self._space, GRADIENTS)

    def start_reduce(self):
        """Begin `reduce`; return a Transfer."""
        return self.sum.start(self.grads, self._space, GRADIENTS)

    def gather(self):
        """Send the updated parameters to the ranks that did not update them."""
        if self.gathering:
            self.gathering.in_place(self.params, self._space, PARAMETERS)

    def start_gather(self):
        """Begin `gather`; return a Transfer."""
        return self.gathering.start(self.params, self._space, PARAMETERS) if self.gathering else COMPLETE


class Reduction(FlatParameters):
    """The parameters of one rank and their gradients, and how these are summed: what all reductions have in common.

    In each step these methods are called, in this order: `accumulate` after the backward pass of each micro-batch but the last
    one, `start` before the backward pass of that, and `finish` after it. Then the optimizer calls, for each
    slice of the flat buffers that it updates, `ready` before it reads the gradients and `updated` after it wrote the
    parameters; at the end `end_update`. All are collective over the grid.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.
    update : str
        "whole": each rank updates all its parameters; "sharded": only its shard of them, as in ZeRO-1.
    reduce_dtype : str
        The type in which gradients are sent: "same" as they have, or "float16".

    Raises
    ------
    ValueError
        For another update or type.

    Attributes
    ----------
    sharers
        The number of ranks that use one copy of the parameters together, in shared memory.
    further_buffers
        How many arrays as large as `grads` it keeps, without the one for earlier micro-batches.
    accumulated
        The sum of the gradients of earlier micro-batches of this step, shaped as `grads`; None before the first.

    Examples
    --------
    A reduction that also counts the sums that it makes:

    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> from gridgrad.parallel import BlockingReduction, ProcessGrid, distribute
    >>> class Counting(BlockingReduction):
    ...     sums = 0
    ...     def finish(self):
    ...         super().finish()
    ...         self.sums += len(self.buckets)
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     net = distribute(Sequential([Linear(3, 2)]), grid, reduction=Counting)
    ...     net.allocate()
    ...     value = net.learn(np.ones((4, 3)), np.zeros((4, 2)), MSE(), SGD(net, lr=0.1))
    ...     print(net.reduction.sums)
    1
    """

    sharers = 1
    further_buffers = 0

    def __init__(self, net: "ParallelSequential", update: str = "whole", reduce_dtype: str = "same") -> None:
        if update not in UPDATES:
            raise ValueError(f"there is no update '{update}': use {' or '.join(UPDATES)}")
        if reduce_dtype not in REDUCE_DTYPES:
            raise ValueError(f"gradients are not sent as '{reduce_dtype}': use {' or '.join(REDUCE_DTYPES)}")
        super().__init__()
        self.net, self.update, self.reduce_dtype = net, update, reduce_dtype
        self.sharded, self.float16_gradients = update == "sharded", reduce_dtype == "float16"
        self.accumulated: np.ndarray | None = None

    def again(self) -> "Reduction":
        """A new reduction of the same kind, for a network whose layers have been replaced."""
        return type(self)(self.net, self.update, self.reduce_dtype)

    @cached_property
    def _alike(self):
        """(Layout, slice of the flat buffers) of each run; see above. The Layout is that of its first parameter."""
        runs = [list(run) for _, run in groupby(self.places, key=lambda place: place[1].layout.sharing)]
        return [(run[0][1].layout, slice(run[0][2].start, run[-1][2].stop)) for run in runs]

    @cached_property
    def runs(self) -> list[tuple[Group, slice]]:
        """(the group that sums its gradients, slice of the flat buffers) of each run. There are as many on all ranks, in the
        same order. Where a rank holds nothing of a run, as of the layers of other stages, none of its group does."""
        return [(self.net.grid.group(*layout.summed), where) for layout, where in self._alike]

    @cached_property
    def copies(self) -> list[tuple[Group, slice]]:
        """(the group that holds copies of it, slice of the flat buffers) of each run: more ranks where layers are redundant."""
        return [(self.net.grid.group(*layout.replicated), where) for layout, where in self._alike]

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The buckets, in the order of the flat buffers: one for each run, or several where a message would be too long."""
        cuts = ((group, pieces(where, -(-size(where) // MAX_ELEMENTS))) for group, where in self.runs)
        return [self.bucket(group, part) for group, parts in cuts for part in parts]

    def bucket(self, group: Group, where: slice) -> Bucket:
        """The bucket for a slice of the flat buffers that `group` holds."""
        shard = self.sharded and group.size > 1
        held = Shard(0, Partition.even(size(where), group.size)) if shard else Replicate()
        in_float16 = self.float16_gradients and group.size > 1
        return Bucket(group, where, self, held, Float16Sum if in_float16 else move_of(Partial(), held))

    @cached_property
    def _shared_by(self):
        """[(slice of a run, how many ranks update each element of it)]. Collective."""
        found = []
        for group, where in self.copies:
            own = sum(size(common(where, owned)) for owned in self.owned)
            found.append((where, group.comm.allreduce(own) / max(1, size(where)) if group.size > 1 else 1.0))
        return found

    def total(self, squares: Sequence[tuple[slice, float]]) -> float:
        """The sum of numbers of slices of the `owned` ones, over all ranks; what several own counts once. Collective."""
        found, shared_by = np.zeros(1), self._shared_by  # also by ranks that own nothing, since it is collective
        for part, value in squares:
            found += value / next(times for where, times in shared_by if size(common(where, part)))
        self.net.grid.world.all_reduce(found, NORM)
        return float(found[0])

    @property
    def owned(self) -> list[slice]:
        """The slices of the flat buffers that the optimizer updates on this rank, in their order."""
        return [bucket.owned for bucket in self.buckets]

    def accumulate(self, where: slice = slice(None)) -> None:
        """Add the gradients of a micro-batch that is not the last one to those of earlier ones. It does not communicate.
        where: the slice of the flat buffers that has been computed."""
        if self.accumulated is None:
            self.accumulated = xp.zeros_like(self.grads)
        xp.add(self.accumulated[where], self.grads[where], out=self.accumulated[where])

    def take_accumulated(self, where: slice) -> None:
        """Add the accumulated gradients of a slice of the flat buffers to the gradients, and reset them to zero."""
        if self.accumulated is not None:
            kept = self.accumulated[where]
            xp.add(self.grads[where], kept, out=self.grads[where])
            kept.fill(0)

    def start(self) -> None:
        """Called before the backward pass of the last micro-batch."""

    def finish(self) -> None:
        """Called after the backward pass of the last micro-batch: sums gradients, or begins to."""

    def interrupt(self) -> None:
        """Called when the backward pass raises. It neither tests nor waits for transfers, which other ranks may have left."""

    def updated(self, where: slice) -> None:
        """Called when the optimizer has written the parameters of the slice `where`."""

    def end_update(self) -> None:
        """Called when the optimizer has written all its slices: afterwards all ranks have the new parameters."""

    def drain(self) -> None:
        """End the step without an update: complete every transfer and discard accumulated gradients."""
        if self.accumulated is not None:
            self.accumulated.fill(0)

    def clear(self) -> None:
        """Reset the measurements of `seconds_of_step`."""

    def seconds_of_step(self) -> tuple[float, float] | None:
        """(under way, waited), means over the steps since `clear`; None if sums do not overlap with computation.
        under way: seconds a step during which at least one sum was under way. waited: seconds a step spent waiting for sums."""
        return None


class BlockingReduction(Reduction):
    """Sums gradients after backward, with blocking collectives: the reduction "plain".

    Parameters
    ----------
    net, update, reduce_dtype
        As in Reduction.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import BlockingReduction, parallelize
    >>> net = parallelize(Sequential([Linear(3, 2)]), {"batch": MPI.COMM_WORLD.size}, reduction="plain")
    >>> isinstance(net.reduction, BlockingReduction), str(net.reduction)
    (True, 'plain')
    >>> net.grid.free()
    """

    def __str__(self) -> str:
        return "plain"

    def finish(self) -> None:
        for bucket in self.buckets:
            self.take_accumulated(bucket.where)
            bucket.reduce()

    def end_update(self) -> None:
        if self.sharded:
            for bucket in self.buckets:
                bucket.gather()


def pieces(where, number):
    """A slice cut into `number` slices, at least one, of about the same size, without those that would be empty."""
    return [within(where, part) for part in Partition.even(size(where), max(1, number)).parts if size(part)]


def slices_overlap(a, b):
    return size(common(a, b)) > 0
