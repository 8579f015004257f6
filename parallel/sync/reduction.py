"""How the gradients of parameters that several ranks hold are summed, and how these ranks keep the parameters equal.

| class                   | when and how gradients are summed                                                              |
|-------------------------|------------------------------------------------------------------------------------------------|
| `BlockingReduction`     | after backward, with one blocking collective for each run of parameters (see below)            |
| `OverlappedReduction`   | bucket by bucket, with non-blocking collectives, while backward computes                       |
| `SharedMemoryReduction` | after backward, in memory that the ranks of a node share: `parallel/sync/shared_memory.py`     |
| `PowerSGDReduction`     | after backward, as products of two thin matrices: `parallel/sync/power_sgd.py`                 |

A *run* is a range of consecutive parameters in the flat buffers whose gradients the same group of ranks sums. With each class
either every rank updates all its parameters or, sharded, each rank of the group updates only its shard:
`parallel/sync/buckets.py`.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from gridgrad.nn.device import empty, xp
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.group import MAX_ELEMENTS, Group
from gridgrad.parallel.placement.partition import Partition, common, size, within
from gridgrad.parallel.sync.buckets import BUCKETS, AllReduceBucket

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

UPDATES = WHOLE, SHARDED = "whole", "sharded"  # what of its parameters a rank updates
REDUCE_DTYPES = "same", "float16"  # the types in which gradients are sent
TEST_INTERVAL = 0.0005  # seconds between two tests of the transfers under way


class Reduction:
    """The interface of all reductions, and what they have in common.

    In each step the network calls these methods, in this order: `start` before the backward pass of the last micro-batch and
    `finish` after it; then, for each slice of the flat buffers that the optimizer updates, `complete` before it reads the
    gradients and `changed` after it wrote the parameters; at the end `updated`. All are collective over the grid.

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
        How many arrays as large as `net.grads` it keeps, without the one for earlier micro-batches.
    accumulated
        The sum of the gradients of earlier micro-batches of this step, shaped as `net.grads`; None before the first.

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
        self.net, self.update, self.reduce_dtype = net, update, reduce_dtype
        self.sharded, self.float16_gradients = update == "sharded", reduce_dtype == "float16"
        self.accumulated: np.ndarray | None = None

    def again(self) -> "Reduction":
        """A new reduction of the same kind, for a network whose layers have been replaced."""
        return type(self)(self.net, self.update, self.reduce_dtype)

    def allocate(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """(parameters, gradients): the flat buffers, of `size` elements each. Collective where ranks share them."""
        return empty(size, self.net.dtype), empty(size, self.net.dtype)

    @property
    def runs(self) -> list[tuple[Group, slice]]:
        """(group, slice of the flat buffers) of each run: consecutive parameters whose gradients the same group sums.

        Where a rank holds nothing, as of the layers of other stages, none of its group does, and the run is left out.
        """
        return [(group, where) for group, where in self.all_runs if size(where)]

    @cached_property
    def all_runs(self) -> list[tuple[Group, slice]]:
        """All runs, also those of which this rank holds nothing: there are as many on all ranks, in the same order."""
        return self._runs_of(lambda layout: layout.summed)

    @cached_property
    def copies(self) -> list[tuple[Group, slice]]:
        """(group, slice of the flat buffers) of consecutive parameters that the same group of ranks holds, also of none.

        These are the runs, unless ranks compute a layer redundantly: then they hold copies, and sum nothing.
        """
        return self._runs_of(lambda layout: layout.replicated)

    def _runs_of(self, axes_of):
        """(group, slice) of consecutive parameters with the same axes. axes_of: a function of a Layout."""
        runs = []
        for axes, run in groupby(self.places, key=lambda place: axes_of(place[1].layout)):
            slices = [where for *_, where in run]
            runs.append((self.net.grid.group(*axes), slice(slices[0].start, slices[-1].stop)))
        return runs

    @cached_property
    def places(self) -> list[tuple[Any, Any, slice]]:
        """(layer, Parameter, slice of the flat buffers) of each parameter."""
        places: list[tuple[Any, Any, slice]] = []
        start = 0
        for leaf, p in self.net.parameters:
            places.append((leaf, p, slice(start, start + p.size)))
            start += p.size
        return places

    @cached_property
    def buckets(self) -> list[AllReduceBucket]:
        """The buckets: one for each run, or several where a message would be too long."""
        return [
            self.bucket(group, part)
            for group, where in self.runs
            for part in pieces(where, max(1, -(-size(where) // MAX_ELEMENTS)))
        ]

    def bucket(self, group: Group, where: slice) -> AllReduceBucket:
        """The bucket for a slice of the flat buffers that `group` holds."""
        sharded = self.sharded and group.size > 1
        float16_gradients = self.float16_gradients and group.size > 1
        return BUCKETS[sharded, float16_gradients](group, where, self.net.params, self.net.grads)

    @property
    def owned(self) -> list[slice]:
        """The slices of the flat buffers that the optimizer updates on this rank, in their order."""
        return [bucket.owned for bucket in self.buckets]

    def prepare(self) -> list[AllReduceBucket]:
        """Do what is collective over the grid and done once. Ranks of a pipeline do their first steps at different times."""
        return self.buckets

    def accumulate(self, where: slice = slice(None)) -> None:
        """Add the gradients of a micro-batch that is not the last one to those of earlier ones. It does not communicate.

        where: the slice of the flat buffers that has been computed.
        """
        if self.accumulated is None:
            self.accumulated = xp.zeros_like(self.net.grads)
        xp.add(self.accumulated[where], self.net.grads[where], out=self.accumulated[where])

    def take_accumulated(self, where: slice) -> None:
        """Add the accumulated gradients of a slice of the flat buffers to the gradients, and reset them to zero."""
        if self.accumulated is not None:
            kept = self.accumulated[where]
            xp.add(self.net.grads[where], kept, out=self.net.grads[where])
            kept.fill(0)

    def start(self) -> None:
        """Called before the backward pass of the last micro-batch."""

    def finish(self) -> None:
        """Called after the backward pass of the last micro-batch: sums gradients, or begins to."""

    def interrupt(self) -> None:
        """Called when the backward pass raises. It neither tests nor waits for transfers, which other ranks may have left."""

    def complete(self, where: slice) -> None:
        """Return when the gradients of the slice `where`, which this rank owns, are final."""

    def changed(self, where: slice) -> None:
        """Called when the optimizer has updated the parameters of the slice `where`."""

    def updated(self) -> None:
        """Called when the optimizer has updated all its slices: afterwards all ranks have the new parameters."""

    def drain(self) -> None:
        """End the step without an update: complete every transfer and discard accumulated gradients."""
        if self.accumulated is not None:
            self.accumulated.fill(0)

    def clear(self) -> None:
        """Reset the measurements of `seconds_of_step`."""

    def seconds_of_step(self) -> tuple[float, float] | None:
        """(under way, waited), means over the steps since `clear`; None if sums do not overlap with computation.

        under way: seconds a step during which at least one sum was under way. waited: seconds a step spent waiting for sums.
        """
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

    def updated(self) -> None:
        for bucket in self.buckets:
            bucket.gather()


class OverlappedReduction(Reduction, Observer):
    """Sums the gradients of the last layers while backward computes those of the first ones.

    Runs are cut into buckets of about `kib` KiB. The sum of a bucket begins as soon as backward has written all its gradients.
    The sums under way are advanced after every layer and at the progress points within a layer. The optimizer goes through the
    buckets from the last one to the first and waits for each sum only when it needs it. If the reduction is sharded, the
    all-gather of an updated bucket proceeds while the optimizer updates the next one.
    """

    def __init__(self, net, update, reduce_dtype, kib):
        super().__init__(net, update, reduce_dtype)
        self.kib = kib
        self._missing = []  # for each bucket, the layers that have not written their gradients yet
        self._reducing, self._gathering = {}, {}  # bucket number: Transfer, in the order in which they began
        self._flying, self._tested = [], 0.0  # the sums that may not be complete yet; when they were last tested
        self._is_backward = False
        self.clear()
        net.observe(self)

    def __str__(self):
        return f"overlap:{self.kib}"

    def again(self):
        return type(self)(self.net, self.update, self.reduce_dtype, self.kib)

    @cached_property
    def buckets(self):
        """The buckets, in the order of the flat buffers.

        Each run is cut between parameters, beginning at its end; a parameter larger than a bucket is cut into several.
        """
        most = min(max(1, self.kib * 1024 // self.net.dtype.itemsize), MAX_ELEMENTS)
        buckets = []
        for group, run in self.runs:
            cuts, stop = [], run.stop
            for *_, where in reversed(self.places):
                if run.start <= where.start < stop and (stop - where.start >= most or where.start == run.start):
                    cuts = pieces(slice(where.start, stop), max(1, (stop - where.start) // most)) + cuts
                    stop = where.start
            buckets += [self.bucket(group, cut) for cut in cuts]
        return buckets

    @property
    def clock(self):
        """The clock of the grid's tally: real or, in a simulation, virtual time."""
        return self.net.grid.tally.clock

    @cached_property
    def _starts(self):
        """Where the owned slice of each bucket begins."""
        return [bucket.owned.start for bucket in self.buckets]

    def _number(self, where):
        """The number of the bucket to which a slice that the optimizer updates belongs."""
        return bisect_right(self._starts, where.start) - 1

    @cached_property
    def _writers(self):
        """(layers that write into each bucket: a list of sets; {layer: numbers of its buckets, the last one first})."""
        layers, numbers = [set() for _ in self.buckets], defaultdict(list)
        for number in reversed(range(len(self.buckets))):
            for leaf, _, where in self.places:
                if slices_overlap(where, self.buckets[number].where) and leaf not in layers[number]:
                    layers[number].add(leaf)
                    numbers[leaf].append(number)
        return layers, numbers

    def start(self):
        self._wait_for_all()  # of an earlier backward pass whose gradients were never used
        self._missing = [set(leaves) for leaves in self._writers[0]]
        self._reducing, self._gathering = {}, {}
        self._is_backward = True

    def interrupt(self):
        self._is_backward = False

    @property
    def progress(self):
        """The function to be called at the progress points of layers: only during the backward pass of the last micro-batch."""
        return self._progress if self._is_backward else None

    def written(self, layer):
        """Called when backward has written the gradients of a layer: begins the sum of each bucket that is complete thereby."""
        if self._is_backward:
            for number in self._writers[1][layer]:
                self._missing[number].discard(layer)
                if not self._missing[number]:
                    self._start(number)
            self._progress()

    def _progress(self):
        """Test the sums under way, so that the MPI library advances them, if the last test is TEST_INTERVAL ago."""
        if self.clock.now() - self._tested > TEST_INTERVAL:
            self._flying = [transfer for transfer in self._flying if not transfer.test()]
            self._tested = self.clock.now()

    def finish(self):
        self._is_backward = False
        for number in reversed(range(len(self.buckets))):
            if number not in self._reducing:
                self._start(number)

    def _start(self, number):
        """Begin the sum of a bucket."""
        self.take_accumulated(self.buckets[number].where)
        self._reducing[number] = self.buckets[number].start_reduce()
        self._flying.append(self._reducing[number])

    def complete(self, where):
        self._progress()
        transfer = self._reducing[self._number(where)]
        if not transfer.done:
            start = self.clock.now()
            transfer.wait()
            self._exposed += self.clock.now() - start

    def changed(self, where):
        """If sharded and the bucket is updated, begin its all-gather.

        All ranks begin the all-gathers in the same order, from the last bucket to the first, also of buckets in which their
        own shard is empty.
        """
        if self.sharded and where.start == self._starts[self._number(where)]:
            self._start_gathering(self._number(where))

    def updated(self):
        self._start_gathering(0)
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            transfer.wait()
        self._in_flight += seconds_of_union((transfer.started, transfer.stopped) for transfer in self._reducing.values())
        self._steps += 1

    def _start_gathering(self, first):
        """Begin the all-gathers, not begun yet, of all buckets from the last one down to number `first`."""
        for number in range(len(self.buckets) - 1 - len(self._gathering), first - 1, -1):
            self._gathering[number] = self.buckets[number].start_gather()

    def drain(self):
        super().drain()
        self._wait_for_all()

    def _wait_for_all(self):
        """Complete every transfer."""
        self._is_backward, self._flying = False, []
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            transfer.wait()

    def clear(self):
        self._in_flight, self._exposed, self._steps = 0.0, 0.0, 0

    def seconds_of_step(self):
        steps = max(self._steps, 1)
        return self._in_flight / steps, self._exposed / steps


def pieces(where, number):
    """A slice cut into `number` slices of about the same size, without those that would be empty."""
    return [within(where, part) for part in Partition.even(size(where), number).parts if size(part)]


def seconds_of_union(intervals):
    """The length of the union of intervals (start, stop)."""
    total, end = 0.0, -math.inf
    for start, stop in sorted(intervals):
        total += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return total


def slices_overlap(a, b):
    """Whether two slices have an element in common."""
    return size(common(a, b)) > 0
