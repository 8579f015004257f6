"""Readers: how the samples of a global minibatch reach the ranks.

`load(indices)` of a reader is collective. indices: the samples of a global minibatch, the same array on all ranks. It returns
(x, y) of this rank, host arrays: its block of the inputs (`net.input_block`), and the targets of the samples whose outputs its
`forward` returns (`net.output_rows`).
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gridgrad.nn.observer import observed
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.training.network import ParallelSequential


class Reader(Protocol):
    """What brings the ranks their parts of a global minibatch, as described above."""

    net: ParallelSequential

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class EachRankReads:
    """Every rank reads what it needs of a `gridgrad.datasets.Part`. ValueError for samples of another shape than the net's."""

    def __init__(self, net: ParallelSequential, part: Any) -> None:
        self.net, self.part = net, fitting(part, net)

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of this rank for a global minibatch; this reader does not communicate."""
        rows, *block = self.net.input_block(len(indices))
        targets = indices[self.net.output_rows(len(indices))]
        return self.part.inputs(indices[rows], tuple(block)), self.part.targets(targets)


class MicroBatchReader:
    """Loads global minibatches by a reader, in micro-batches. seconds: of loading since `clear`, without communication."""

    name = "reader"  # the name that observers see

    def __init__(self, reader):
        self.reader, self.tally = reader, reader.net.grid.tally
        self.clear()

    def clear(self):
        self.seconds = 0.0

    def parts(self, indices, number):
        """Yields (x, y, global size) of each of `number` micro-batches that is not empty, loaded one at a time. Collective."""
        for part in Partition.even(len(indices), number).parts:
            if size(part):
                yield *observed(self.reader.net.observer, self, "load", indices[part]), size(part)

    def load(self, indices):
        """What the reader's `load` returns; the time is added to `seconds`. Collective."""
        start, sent = self.tally.clock.now(), self.tally.seconds
        block = self.reader.load(indices)
        self.seconds += self.tally.clock.now() - start - (self.tally.seconds - sent)
        return block


def fitting(part, net):
    """The same part; ValueError if the network takes other samples: of larger ones every rank would take the first numbers."""
    if part.sample_shape != net.input.sample_shape:
        raise ValueError(f"the samples have the shape {part.sample_shape} but the network takes {net.input.sample_shape}")
    return part


READERS: dict[str, Callable[[ParallelSequential, Any], Reader]] = {"each": EachRankReads}
