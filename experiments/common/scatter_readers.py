"""Two ways in which rank 0 reads the samples of all ranks and sends them: both methods of Laugier et al. 2018, section 7.

Method 1 is one scatter, in which ranks that need the same rows get a copy each. Method 2 scatters the blocks of the axis
`batch` to one rank each, which broadcasts its block to the others: two latencies, but fewer bytes from rank 0. With a latency
of alpha seconds, beta seconds a byte, a grid of n_b x n_m ranks and `data` bytes in one block, method 1 takes alpha + n_b n_m
data beta and method 2 takes 2 alpha + max(n_b, n_m) data beta. So method 1 is faster for small blocks, while data < alpha /
(beta (n_b n_m - max(n_b, n_m))). The paper has ">" in the place of "<", which is a mistake.
"""

from math import prod

import numpy as np

from gridgrad.parallel.grid.process_grid import AXES, BATCH
from gridgrad.parallel.placement.partition import positions, size
from gridgrad.parallel.training import minibatch_readers
from gridgrad.parallel.training.minibatch_readers import fitting


class ScatterReader:
    """Rank 0 reads for all and scatters over the whole grid. net, part: as in EachRankReads."""

    def __init__(self, net, part):
        self.net, self.part, self.world = net, fitting(part, net), net.grid.world
        self.places = [net.grid.coordinates_of(rank) for rank in range(net.grid.size)]

    def load(self, indices):
        batch_size, net = len(indices), self.net
        wanted = [net.input.of(batch_size).block(place) for place in self.places]
        targets = [net.output.rows(batch_size, place) for place in self.places]
        blocks = labels = None
        if self.world.rank == 0:
            x, y = self.part.inputs(indices, (slice(None),) * len(net.input.sample_shape)), self.part.targets(indices)
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

    def __init__(self, net, part):
        self.net, self.part = net, fitting(part, net)
        self.batch, self.others = net.grid.group(BATCH), net.grid.group(*(axis for axis in AXES if axis != BATCH))

    def load(self, indices):
        net, blocks = self.net, self.net.splits[BATCH].of_length(len(indices))
        reads, mine = self.batch.rank == 0 and self.others.rank == 0, blocks.part(self.batch.rank)
        shape = net.input.sample_shape
        x = self.part.inputs(indices, (slice(None),) * len(shape)) if reads else None
        x = self._spread(x, blocks, shape, self.part.input_type)
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


READERS = minibatch_readers.READERS | {"scatter": ScatterReader, "scatter-broadcast": ScatterBroadcastReader}
