"""The reduction "overlap": the gradients of the last layers are summed while backward computes those of the first ones.

The sums under way are advanced after every layer and at the progress points within a layer. The optimizer goes through the
buckets from the last one to the first and waits for each sum only when it needs it. If the reduction is sharded, the all-gather
of an updated bucket proceeds while the optimizer updates the next one.
"""

import math
from bisect import bisect_right
from functools import cached_property

from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.group import MAX_ELEMENTS
from gridgrad.parallel.sync.reduction import Reduction, pieces, slices_overlap

TEST_INTERVAL = 0.0005  # seconds between two tests of the transfers under way


class OverlappedReduction(Reduction, Observer):
    """Cuts the runs into buckets of about `kib` KiB, and begins the sum of each as soon as backward has written all of it."""

    def __init__(self, net, update, reduce_dtype, kib):
        super().__init__(net, update, reduce_dtype)
        self.kib = kib
        self._missing = []  # for each bucket, the layers that have not written their gradients yet
        self._reducing, self._gathering = {}, {}  # bucket number: Transfer, in the order in which they began
        self._flying, self._tested = [], 0.0  # the sums that may not be complete yet; when they were last tested
        self._is_backward, self.now = False, net.grid.tally.clock.now
        self.clear()
        net.observe(self)

    def __str__(self):
        return f"overlap:{self.kib}"

    def again(self):
        return type(self)(self.net, self.update, self.reduce_dtype, self.kib)

    @cached_property
    def buckets(self):
        """In the order of the flat buffers. Runs are cut between parameters, from their ends; a large parameter is cut too."""
        most = min(max(1, self.kib * 1024 // self.params.itemsize), MAX_ELEMENTS)
        buckets = []
        for group, run in self.runs:
            cuts, stop = [], run.stop
            for *_, where in reversed(self.places):
                if run.start <= where.start < stop and (stop - where.start >= most or where.start == run.start):
                    cuts = pieces(slice(where.start, stop), (stop - where.start) // most) + cuts
                    stop = where.start
            buckets += [self.bucket(group, cut) for cut in cuts]
        return buckets

    @cached_property
    def _starts(self):
        """Where the owned slice of each bucket begins."""
        return [bucket.owned.start for bucket in self.buckets]

    def _number(self, where):
        """Of the bucket to which a slice that the optimizer updates belongs."""
        return bisect_right(self._starts, where.start) - 1

    @cached_property
    def _writers(self):
        """For each bucket, the layers that write into it: a list of sets."""
        return [{leaf for leaf, _, where in self.places if slices_overlap(where, bucket.where)} for bucket in self.buckets]

    def start(self):
        self._wait_for_all()  # of an earlier backward pass whose gradients were never used
        self._missing = [set(leaves) for leaves in self._writers]
        self._reducing, self._gathering = {}, {}
        self._is_backward, self.now = True, self.net.grid.tally.clock.now  # of the clock that the tally has in this step

    def interrupt(self):
        self._is_backward = False

    @property
    def progress(self):
        """The function to be called at the progress points of layers: only during the backward pass of the last micro-batch."""
        return self._progress if self._is_backward else None

    def written(self, layer):
        """Called when backward has written the gradients of a layer: begins the sum of each bucket that is complete thereby."""
        if self._is_backward:
            for number in reversed(range(len(self._missing))):
                if layer in self._missing[number]:
                    self._missing[number].remove(layer)
                    if not self._missing[number]:
                        self._start(number)
            self._progress()

    def _progress(self):
        """Test the sums under way, so that the MPI library advances them, if the last test is TEST_INTERVAL ago."""
        if self.now() - self._tested > TEST_INTERVAL:
            self._flying = [transfer for transfer in self._flying if not transfer.test()]
            self._tested = self.now()

    def finish(self):
        self._is_backward = False
        for number in reversed(range(len(self.buckets))):
            if number not in self._reducing:
                self._start(number)

    def _start(self, number):
        self.take_accumulated(self.buckets[number].where)
        self._reducing[number] = self.buckets[number].start_reduce()
        self._flying.append(self._reducing[number])

    def ready(self, where):
        self._progress()
        transfer = self._reducing[self._number(where)]
        if not transfer.done:
            start = self.now()
            transfer.wait()
            self._exposed += self.now() - start

    def updated(self, where):
        # all ranks begin the all-gathers in the same order, from the last bucket to the first, also where their shard is empty
        if self.sharded and where.start == self._starts[number := self._number(where)]:
            self._start_gathering(number)

    def end_update(self):
        self._start_gathering(0)
        self._wait_for_all()
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
        self._is_backward, self._flying = False, []
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            transfer.wait()

    def clear(self):
        self._in_flight, self._exposed, self._steps = 0.0, 0.0, 0

    def seconds_of_step(self):
        steps = max(self._steps, 1)
        return self._in_flight / steps, self._exposed / steps


def seconds_of_union(intervals):
    """The length of the union of intervals (start, stop)."""
    total, end = 0.0, -math.inf
    for start, stop in sorted(intervals):
        total += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return total
