"""How the gradients of parameters that several ranks hold are summed, and the parameters kept alike.

| reduction | when                                                                                               |
|-----------|----------------------------------------------------------------------------------------------------|
| `BlockingReduction`   | after backward: one blocking collective for each run of parameters that the same ranks hold         |
| `OverlappedReduction` | bucket by bucket while backward goes on                                                            |
| `SharedMemoryReduction`  | after backward, in memory that the ranks of a node share: `parallel/sync/shared_memory.py`                     |

Each comes with every rank updating all its parameters or, sharded, only its part of them: `parallel/sync/buckets.py`.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import groupby

from nn.device import empty, is_cpu, xp
from nn.observer import Observer
from parallel.grid.group import MAX_ELEMENTS
from parallel.placement.partition import Partition, common, size, within
from parallel.sync.buckets import BUCKETS

TEST_INTERVAL = 0.0005  # seconds between two tests of what is under way


class Reduction:
    """What all have in common. The network calls, in each step, in this order:

    `start` before the backward pass of the last micro-batch, `finish` after it; then for each chunk of the flat buffers
    that an optimizer updates `complete` before and `changed` after; `updated` at the end.

    net: a ParallelSequential. sharded: each rank updates only its part. float16_gradients: gradients travel in float16.
    sharers: how many ranks hold one copy of the parameters together.
    """

    sharers = 1

    def __init__(self, net, sharded=False, float16_gradients=False):
        self.net, self.sharded, self.float16_gradients = net, sharded, float16_gradients
        self.accumulated = None  # the gradients of earlier micro-batches
        if float16_gradients and not is_cpu():
            raise ValueError("gradients in float16 need arrays in the host's memory: leave it out with --device gpu")

    def allocate(self, size):
        """The flat buffers of parameters and gradients."""
        return empty(size, self.net.dtype), empty(size, self.net.dtype)

    @cached_property
    def runs(self):
        """(group, slice) of the runs of parameters that are replicated along the same axes."""
        runs, start = [], 0
        for axes, run in groupby(self.net.parameters, key=lambda pair: pair[1].layout.replicated):
            stop = start + sum(p.size for _, p in run)
            runs.append((self.net.grid.group(*axes), slice(start, stop)))
            start = stop
        return runs

    @cached_property
    def buckets(self):
        """The runs, cut where a message would be too long."""
        return [
            self.bucket(group, part)
            for group, where in self.runs
            for part in pieces(where, max(1, -(-size(where) // MAX_ELEMENTS)))
        ]

    def bucket(self, group, where):
        sharded = self.sharded and group.size > 1
        float16_gradients = self.float16_gradients and group.size > 1
        return BUCKETS[sharded, float16_gradients](group, where, self.net.params, self.net.grads)

    @property
    def owned(self):
        return [bucket.owned for bucket in self.buckets]

    def accumulate(self):
        """Keep the gradients of a micro-batch that is not the last one."""
        if self.accumulated is None:
            self.accumulated = xp.zeros_like(self.net.grads)
        xp.add(self.accumulated, self.net.grads, out=self.accumulated)

    def take_accumulated(self, where):
        """Add to the gradients of a slice what was kept of it."""
        if self.accumulated is not None:
            kept = self.accumulated[where]
            xp.add(self.net.grads[where], kept, out=self.net.grads[where])
            kept.fill(0)

    def start(self):
        """Backward of the last micro-batch comes next."""

    def finish(self):
        """It is over."""

    def interrupt(self):
        """It failed: the other ranks may never come, and nothing that is under way is waited for or tested."""

    def complete(self, where):
        """The gradients of a slice are needed."""

    def changed(self, where):
        """The parameters of a slice were updated."""

    def updated(self):
        """All were."""

    def drain(self):
        """Leave nothing under way and nothing kept: the step ends without an update."""
        if self.accumulated is not None:
            self.accumulated.fill(0)

    def clear(self):
        """Forget what was measured."""

    def seconds_of_step(self):
        """(seconds a step that some sum was under way, those of them spent waiting for it), or None if none overlaps."""
        return None


class BlockingReduction(Reduction):
    """Blocking collectives after backward."""

    def __str__(self):
        return "plain"

    def finish(self):
        for bucket in self.buckets:
            self.take_accumulated(bucket.where)
            bucket.reduce()

    def updated(self):
        for bucket in self.buckets:
            bucket.gather()


class OverlappedReduction(Reduction, Observer):
    """The last layers' gradients are under way while backward computes those of the first ones.

    Runs are cut into buckets of about `kib` KiB. A bucket starts when backward has written all of it. Those under way make
    progress behind every layer, and within one between the pieces of its work. An optimizer waits for each only when it
    comes to it, from the last one to the first; sharded, the parameters of a bucket that was updated set out while the
    next one is.
    """

    def __init__(self, net, sharded, float16_gradients, kib):
        super().__init__(net, sharded, float16_gradients)
        self.kib = kib
        self._missing = []  # of each bucket, the layers that have yet to write into it
        self._reducing, self._gathering = {}, {}  # bucket number: Transfer, in the order in which they were begun
        self._flying, self._tested = [], 0.0  # those of the first that may not be done; when they were tested last
        self._is_backward = False
        self.clear()
        net.observe(self)

    def __str__(self):
        return f"overlap:{self.kib}"

    @cached_property
    def buckets(self):
        """In the order of the flat buffers: cut from behind between parameters, and within one that is larger."""
        most = min(max(1, self.kib * 1024 // self.net.dtype.itemsize), MAX_ELEMENTS)
        buckets = []
        for group, run in self.runs:
            cuts, stop = [], run.stop
            for _, where in reversed(self._places):
                if run.start <= where.start < stop and (stop - where.start >= most or where.start == run.start):
                    cuts = pieces(slice(where.start, stop), max(1, (stop - where.start) // most)) + cuts
                    stop = where.start
            buckets += [self.bucket(group, cut) for cut in cuts]
        return buckets

    @property
    def clock(self):
        return self.net.grid.tally.clock

    @cached_property
    def _starts(self):
        return [bucket.owned.start for bucket in self.buckets]

    def _number(self, where):
        """Which bucket owns a slice that an optimizer updates."""
        return bisect_right(self._starts, where.start) - 1

    @cached_property
    def _places(self):
        """(layer, slice of the flat buffers) of each parameter."""
        places, start = [], 0
        for leaf, p in self.net.parameters:
            places.append((leaf, slice(start, start + p.size)))
            start += p.size
        return places

    @cached_property
    def _writers(self):
        """The layers that write into each bucket, and the buckets into which each layer writes, the last one first."""
        layers, numbers = [set() for _ in self.buckets], defaultdict(list)
        for number in reversed(range(len(self.buckets))):
            for leaf, where in self._places:
                if overlap(where, self.buckets[number].where) and leaf not in layers[number]:
                    layers[number].add(leaf)
                    numbers[leaf].append(number)
        return layers, numbers

    def start(self):
        self._land()  # what nobody synchronised
        self._missing = [set(leaves) for leaves in self._writers[0]]
        self._reducing, self._gathering = {}, {}
        self._is_backward = True

    def interrupt(self):
        self._is_backward = False

    @property
    def progress(self):
        """Within a backward pass, what is under way makes progress between the pieces of a layer's work."""
        return self._progress if self._is_backward else None

    def written(self, layer):
        """Backward has written the gradients of a layer; those of earlier micro-batches stay where they are."""
        if self._is_backward:
            for number in self._writers[1][layer]:
                self._missing[number].discard(layer)
                if not self._missing[number]:
                    self._start(number)
            self._progress()

    def _progress(self):
        """Let those under way make progress, if the last time is long enough ago."""
        if self.clock.now() - self._tested > TEST_INTERVAL:
            self._flying = [transfer for transfer in self._flying if not transfer.test()]
            self._tested = self.clock.now()

    def finish(self):
        self._is_backward = False
        for number in reversed(range(len(self.buckets))):
            if number not in self._reducing:
                self._start(number)

    def _start(self, number):
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
        """ShardedBucket parameters set out from the last bucket on: in one order on all ranks, also those that own none of it."""
        if self.sharded and where.start == self._starts[self._number(where)]:
            self._start_gathering(self._number(where))

    def updated(self):
        self._start_gathering(0)
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            transfer.wait()
        self._in_flight += seconds_of_union((transfer.started, transfer.stopped) for transfer in self._reducing.values())
        self._steps += 1

    def _start_gathering(self, first):
        """Of all buckets from number `first` on."""
        for number in range(len(self.buckets) - 1 - len(self._gathering), first - 1, -1):
            self._gathering[number] = self.buckets[number].start_gather()

    def drain(self):
        super().drain()
        self._land()

    def _land(self):
        self._is_backward, self._flying = False, []
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            transfer.wait()

    def clear(self):
        self._in_flight, self._exposed, self._steps = 0.0, 0.0, 0

    def seconds_of_step(self):
        steps = max(self._steps, 1)
        return self._in_flight / steps, self._exposed / steps


def pieces(where, number):
    """A slice in so many of about the same size, none of them empty."""
    return [within(where, part) for part in Partition.even(size(where), number).parts if size(part)]


def seconds_of_union(intervals):
    """How long at least one of the intervals (start, stop) lasted."""
    total, end = 0.0, -math.inf
    for start, stop in sorted(intervals):
        total += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return total


def overlap(a, b):
    """Whether two slices have an element in common."""
    return size(common(a, b)) > 0
