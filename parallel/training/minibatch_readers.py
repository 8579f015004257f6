"""Readers: three ways in which the samples of a global minibatch reach the ranks. They send buffers, never pickles.

- `EachRankReads`: every rank reads its own rows (and columns) of the data set, and nothing is sent.
- `ScatterReader`: rank 0 reads the minibatch and sends each rank what it needs, in one scatter. Model ranks that need the same
  rows get a copy each. This is method 1 of Laugier et al. 2018, section 7.
- `ScatterBroadcastReader`: rank 0 scatters the blocks of the axis `batch`, one to the first rank of each block, which
  broadcasts it to the others of that block. This is method 2: two latencies, but fewer bytes from rank 0.

With a latency of alpha seconds, beta seconds a byte, a grid of n_b x n_m ranks and `data` bytes in one block, method 1 takes
alpha + n_b n_m data beta and method 2 takes 2 alpha + max(n_b, n_m) data beta. So method 1 is faster for small blocks, while
data < alpha / (beta (n_b n_m - max(n_b, n_m))). The paper has ">" in the place of "<", which is a mistake.

Every reader has a method `load(indices)`, which is collective. indices: the samples of a global minibatch, an array of the same
values on all ranks. It returns (x, y) of this rank, host arrays: its block of the inputs (`net.input_block`), and the targets
of the samples whose outputs its `forward` returns (`net.output_rows`).
"""

from collections.abc import Callable
from math import prod
from typing import Any, Protocol

import numpy as np

from gridgrad.nn.observer import observed
from gridgrad.parallel.grid.process_grid import AXES, BATCH
from gridgrad.parallel.placement.partition import Partition, positions, size
from gridgrad.parallel.training.network import ParallelSequential


class Reader(Protocol):
    """What brings the ranks their parts of a global minibatch, as described above."""

    net: ParallelSequential

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class EachRankReads:
    """Every rank reads what it needs.

    net: a ParallelSequential. part: the samples, a `gridgrad.datasets.Part`. ValueError if they have another shape than the
    samples for which the network was placed.
    """

    def __init__(self, net: ParallelSequential, part: Any) -> None:
        self.net, self.part = net, _fitting(part, net)

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of this rank for a global minibatch, as described above; this reader does not communicate."""
        rows, *block = self.net.input_block(len(indices))
        targets = indices[self.net.output_rows(len(indices))]
        return self.part.inputs(indices[rows], tuple(block)), self.part.targets(targets)


class ScatterReader:
    """Rank 0 reads for all and scatters over the whole grid. net, part: as in EachRankReads."""

    def __init__(self, net: ParallelSequential, part: Any) -> None:
        self.net, self.part, self.world = net, _fitting(part, net), net.grid.world
        self.places = [net.grid.coordinates_of(rank) for rank in range(net.grid.size)]

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        batch_size, net = len(indices), self.net
        wanted = [net.input.of(batch_size).block(place) for place in self.places]
        targets = [net.output.rows(batch_size, place) for place in self.places]
        blocks = labels = None
        if self.world.rank == 0:
            x, y = self.part.inputs(indices, _whole(net.input.sample_shape)), self.part.targets(indices)
            blocks = np.concatenate([x[index].ravel() for index in wanted])
            labels = np.concatenate([y[rows].ravel() for rows in targets])
        me = self.world.rank
        x = self._scatter(blocks, [prod(map(size, index)) for index in wanted], self.part.input_type)
        y = self._scatter(labels, [size(rows) * self.part.target_width for rows in targets], self.part.target_type)
        return x.reshape([size(part) for part in wanted[me]]), y.reshape(size(targets[me]), *self.part.target_shape)

    def _scatter(self, blocks, counts, dtype):
        out = np.empty(counts[self.world.rank], dtype)
        self.world.scatter(blocks, counts, out, "minibatch")
        return out


class ScatterBroadcastReader:
    """Rank 0 reads for all, scatters along the axis `batch` and broadcasts along the others. net, part: as in EachRankReads."""

    def __init__(self, net: ParallelSequential, part: Any) -> None:
        self.net, self.part = net, _fitting(part, net)
        self.batch, self.others = net.grid.group(BATCH), net.grid.group(*(axis for axis in AXES if axis != BATCH))

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        net, blocks = self.net, self.net.splits[BATCH].of_length(len(indices))
        reads, mine = self.batch.rank == 0 and self.others.rank == 0, blocks.part(self.batch.rank)
        x = self._spread(self.part.inputs(indices, _whole(net.input.sample_shape)) if reads else None, blocks,
                         net.input.sample_shape, self.part.input_type)  # fmt: skip
        y = self._spread(self.part.targets(indices) if reads else None, blocks,
                         self.part.target_shape, self.part.target_type)  # fmt: skip
        rows, *block = net.input_block(len(indices))
        targets = net.output_rows(len(indices))
        return x[(positions(rows, mine), *block)], y[positions(targets, mine)]

    def _spread(self, whole, blocks, shape, dtype):
        width = prod(shape)
        out = np.empty((blocks.size(self.batch.rank), *shape), dtype)
        if self.others.rank == 0 and self.batch.size > 1:
            self.batch.scatter(whole, [samples * width for samples in blocks.sizes], out, "minibatch")
        elif whole is not None:
            out[...] = whole
        self.others.broadcast(out, "minibatch")
        return out


class MicroBatchReader:
    """Loads global minibatches in micro-batches, and measures how long that takes.

    reader: one of those above. seconds: the time spent in loading since `clear`, without the communication.
    """

    name = "reader"  # the name that observers see

    def __init__(self, reader):
        self.reader, self.tally = reader, reader.net.grid.tally
        self.clear()

    def clear(self):
        """Set `seconds` to zero."""
        self.seconds = 0.0

    def parts(self, indices, number):
        """Split a global minibatch into `number` micro-batches and load them, one at a time: a generator. Collective.

        It yields (x, y, samples) for each micro-batch that is not empty: what `load` returns, and its global size.
        """
        for part in Partition.even(len(indices), number).parts:
            if size(part):
                yield *observed(self.reader.net.observer, self, "load", indices[part]), size(part)

    def load(self, indices):
        """What the reader's `load` returns for the global minibatch `indices`; the time is added to `seconds`. Collective."""
        start, sent = self.tally.clock.now(), self.tally.seconds
        block = self.reader.load(indices)
        self.seconds += self.tally.clock.now() - start - (self.tally.seconds - sent)
        return block


def _fitting(part, net):
    """The same part; ValueError if the network takes other samples: of larger ones every rank would take the first numbers."""
    if part.sample_shape != net.input.sample_shape:
        raise ValueError(f"the samples have the shape {part.sample_shape} but the network takes {net.input.sample_shape}")
    return part


def _whole(shape):
    return tuple(slice(0, length) for length in shape)


READERS: dict[str, Callable[[ParallelSequential, Any], Reader]] = {
    "each": EachRankReads,
    "scatter": ScatterReader,
    "scatter-broadcast": ScatterBroadcastReader,
}
