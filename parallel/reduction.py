"""How the gradients of parameters that several ranks hold are summed, and the parameters kept alike.

| reduction | when                                                                                               |
|-----------|----------------------------------------------------------------------------------------------------|
| `Plain`   | after backward: one blocking collective for each run of parameters that the same ranks hold         |
| `Overlap` | bucket by bucket while backward goes on                                                            |
| `Shared`  | after backward, in memory that the ranks of a node share: `parallel/shared.py`                     |

Each comes with every rank updating all its parameters or, sharded, only its part of them: `parallel/buckets.py`.
"""

import time
from functools import cached_property, partial
from itertools import groupby

from nn.device import empty, is_cpu, xp
from nn.pauses import pause
from parallel.buckets import BUCKETS

EVERY = 0.0005  # seconds between two tests of what is under way


class Reduction:
    """What all have in common. The network calls, in each step, in this order:

    `begin` before the backward pass of the last micro-batch, `finish` after it; then for each chunk of the flat buffers
    that an optimizer updates `complete` before and `changed` after; `updated` at the end.

    net: a ParallelSequential. sharded: each rank updates only its part. half: gradients travel in float16.
    """

    def __init__(self, net, sharded=False, half=False):
        self.net, self.sharded, self.half = net, sharded, half
        self.accumulated = None  # the gradients of earlier micro-batches
        if half and not is_cpu():
            raise ValueError("gradients in float16 need arrays in the host's memory: leave it out with --device gpu")

    def allocate(self, size):
        """The flat buffers of parameters and gradients."""
        return empty(size, self.net.dtype), empty(size, self.net.dtype)

    @cached_property
    def runs(self):
        """(group, slice) of the runs of parameters that are replicated along the same axes."""
        runs, start = [], 0
        for axes, run in groupby(self.net.parameters, key=lambda pair: replicated(pair[1])):
            stop = start + sum(p.size for _, p in run)
            runs.append((self.net.grid.group(*axes), slice(start, stop)))
            start = stop
        return runs

    @cached_property
    def buckets(self):
        return [self.bucket(group, where) for group, where in self.runs]

    def bucket(self, group, where):
        sharded = self.sharded and group.size > 1
        half = self.half and group.size > 1
        return BUCKETS[sharded, half](group, where, self.net.params, self.net.grads)

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

    def begin(self):
        """Backward of the last micro-batch comes next."""

    def finish(self):
        """It is over."""

    def complete(self, where):
        """The gradients of a slice are needed."""

    def changed(self, where):
        """The parameters of a slice were updated."""

    def updated(self):
        """All were."""

    def drain(self):
        """Leave nothing under way: the step ends without an update."""

    sharers = 1  # ranks that hold one copy of the parameters together

    def clear(self):
        """Forget what was measured."""

    def seconds_of_step(self):
        """(seconds a step that some sum was under way, those of them spent waiting for it), or None if none overlaps."""
        return None


class Plain(Reduction):
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


class Overlap(Reduction):
    """The last layers' gradients are under way while backward computes those of the first ones.

    Runs are cut into buckets of about `kib` KiB. A bucket starts when backward has written all of it, and between the
    pieces of its work every layer lets those under way make progress. An optimizer waits for each only when it comes to
    it, from the last one to the first; sharded, the parameters of a bucket that was updated set out while the next one is.
    """

    def __init__(self, net, sharded, half, kib):
        super().__init__(net, sharded, half)
        self.kib, self._missing = kib, []
        self.clear()
        if not is_cpu():
            raise ValueError("--reduction overlap needs arrays in the host's memory: use plain with --device gpu")
        for leaf in net.leaves():
            leaf.written = partial(self._written, leaf)

    def __str__(self):
        return f"overlap:{self.kib}"

    @cached_property
    def buckets(self):
        """In the order of the flat buffers: cut from behind between parameters, and within one that is larger."""
        most = max(1, self.kib * 1024 // self.net.dtype.itemsize)
        buckets = []
        for group, run in self.runs:
            cuts, stop = [], run.stop
            for _, where in reversed(self._places):
                if run.start <= where.start < stop and (stop - where.start >= most or where.start == run.start):
                    pieces = max(1, (stop - where.start) // most)
                    borders = [where.start + (stop - where.start) * i // pieces for i in range(pieces + 1)]
                    cuts = [slice(a, b) for a, b in zip(borders, borders[1:])] + cuts
                    stop = where.start
            buckets += [self.bucket(group, cut) for cut in cuts]
        return buckets

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
        """The layers that write into each bucket."""
        return [{leaf for leaf, where in self._places if overlap(where, bucket.where)} for bucket in self.buckets]

    def begin(self):
        self._missing = [set(leaves) for leaves in self._writers]
        self._reducing, self._gathering = {}, {}  # bucket number: Transfer, in the order in which they were begun
        self._tested, pause.action = 0.0, self._progress

    def _written(self, leaf):
        """Backward has written the gradients of a layer; those of earlier micro-batches stay where they are."""
        for number in reversed(range(len(self._missing))):
            if leaf in self._missing[number]:
                self._missing[number].remove(leaf)
                if not self._missing[number]:
                    self._start(number)

    def _progress(self):
        """Let those under way make progress, if the last time is long enough ago."""
        if time.perf_counter() - self._tested > EVERY:
            for transfer in self._reducing.values():
                transfer.test()
            self._tested = time.perf_counter()

    def finish(self):
        pause.action = None
        for number in reversed(range(len(self.buckets))):
            if number not in self._reducing:
                self._start(number)
        self._missing = []

    def _start(self, number):
        self.take_accumulated(self.buckets[number].where)
        self._reducing[number] = self.buckets[number].start_reduce()

    def complete(self, where):
        self._progress()
        for number, transfer in self._reducing.items():
            if overlap(self.buckets[number].owned, where):
                self._wait(transfer)

    def changed(self, where):
        """Sharded parameters set out from the last bucket on: in one order on all ranks, also those that own none of it."""
        if self.sharded:
            updated = next(n for n, bucket in enumerate(self.buckets) if overlap(bucket.owned, where))
            if self.buckets[updated].owned.start == where.start:
                self._start_gathering(updated)

    def updated(self):
        self._start_gathering(0)
        for transfer in (*self._reducing.values(), *self._gathering.values()):
            self._wait(transfer)
        begun = min((transfer.started for transfer in self._reducing.values()), default=0.0)
        ended = max((transfer.stopped for transfer in self._reducing.values()), default=0.0)
        self._in_flight += max(ended - begun, 0.0)
        self._steps += 1

    def _wait(self, transfer):
        start = time.perf_counter()
        transfer.wait()
        self._exposed += time.perf_counter() - start

    def clear(self):
        self._in_flight, self._exposed, self._steps = 0.0, 0.0, 0

    def seconds_of_step(self):
        steps = max(self._steps, 1)
        return self._in_flight / steps, self._exposed / steps

    def _start_gathering(self, first):
        """Of all buckets from number `first` on."""
        for number in range(len(self.buckets) - 1 - len(self._gathering), first - 1, -1):
            self._gathering[number] = self.buckets[number].start_gather()

    def drain(self):
        for transfer in self._reducing.values():
            transfer.wait()


def overlap(a, b):
    """Whether two slices have an element in common."""
    return max(a.start, b.start) < min(a.stop, b.stop)


def replicated(parameter):
    """The axes along which a parameter is `Replicate`, so that its gradient there is `Partial`."""
    return {"batch", "height"} if parameter.indices else {"batch", "height", "model"}
