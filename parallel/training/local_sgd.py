"""Local SGD: replicas of a network train independently, each on its stripe of the samples, and are averaged periodically.

Each coordinate along the axis `batch` of a grid has a replica, which is distributed over the other axes. A replica takes steps
of its own on minibatches of its own. After every `period` steps all replicas are replaced by their mean, weighted by the
number of samples that each has seen since the last average (McMahan et al. 2017, Algorithm 1; Stich 2019 for equal weights),
so stripes may be uneven or empty. With a period of 1 and plain SGD this equals `train_step` on the minibatch of all ranks
together, except for BatchNorm, whose statistics are of each replica alone. With a longer period it is another algorithm, which
sends 1/period of the bytes.

Grabaskas 2018 intends to do this in `StochasticGradient:train()`, sample by sample. Every n samples it calls TorchMPI's
`synchronizeGradients`, which sums the gradients `gradWeight` over the nodes in place. But Torch's `accUpdateGradParameters` has
already added each sample's gradient directly to the weights and does not fill `gradWeight`, so the sums are never used and
weights are never exchanged. Each node therefore trains alone on its stripe. That explains why the accuracy in its Appendix C
does not depend on n: it is that of training on a part of the samples. Here the weights are averaged.
"""

from math import ceil

import numpy as np

from parallel.grid.process_grid import ProcessGrid
from parallel.placement.partition import Partition
from parallel.training.distribute import distribute
from parallel.training.steps import train_step


class Replicas:
    """The replicas of a network on a grid. Making them is collective.

    serial: a Sequential. grid: a ProcessGrid. options: those of `distribute`.
    net: the ParallelSequential of this rank's replica; `net.grid` is the grid of this replica's ranks.
    group: the ranks along the axis `batch`, one of each replica.
    All replicas start from the same parameters; their dropout masks differ.
    """

    def __init__(self, serial, grid, **options):
        others = [axis for axis in grid.sizes if axis != "batch"]
        sizes = {axis: grid.sizes[axis] for axis in others}
        self.net = distribute(serial, ProcessGrid(grid.group(*others).comm, **sizes), **options)
        self.group = grid.group("batch")
        self.net.allocate()  # draws the initial values before the seed changes, so that all replicas start equal
        self.net.seed += self.group.rank

    def average(self, samples):
        """Replace the parameters and buffers of all replicas by their means, weighted by `samples`. Collective.

        samples: the number of samples that this replica has seen since the last average. Optimizer states are not averaged.
        """
        if self.group.size == 1:
            return
        total = np.array([samples], np.float64)
        self.group.all_reduce(total, "replicas")
        weight = samples / total[0] if total[0] else 1 / self.group.size
        arrays = [self.net.params, *(buffer.value for _, buffer in self.net.buffers)]
        means = [array * array.dtype.type(weight) for array in arrays]
        for mean in means:
            self.group.all_reduce(mean, "replicas")
        with self.net.exclusive():  # ranks of a replica may share memory, and all must have read before one writes
            for array, mean in zip(arrays, means):
                array[...] = mean

    def train(self, loss, optimizer, load, samples, batch_size, period):
        """Train once on each of `samples`, this replica on its stripe of them and in their order. Collective.

        loss, optimizer: those of `net`. load: the method of a reader of `net`, which returns this rank's (x, y) for an array of
        indices. samples: the indices of all samples, an array of the same values on all ranks. batch_size: the samples in a
        minibatch of one replica; the last minibatch may be smaller. period: the number of steps between two averages; there is
        also one at the end.
        Returns the mean loss over this replica's stripe, each sample's taken before the update; nan if the stripe is empty.
        """
        stripes = Partition.even(len(samples), self.group.size)
        mine, total = samples[stripes.part(self.group.rank)], 0.0
        round_size = batch_size * period
        for start in range(0, max(stripes.sizes), round_size):
            seen = mine[start : start + round_size]
            for i in range(ceil(len(seen) / batch_size)):
                indices = seen[i * batch_size : (i + 1) * batch_size]
                total += train_step(self.net, loss, optimizer, *load(indices), len(indices)) * len(indices)
            self.average(len(seen))
        return total / len(mine) if len(mine) else float("nan")
