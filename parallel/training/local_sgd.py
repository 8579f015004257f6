"""Local SGD: replicas of a network that train apart, each on its stripe of the samples, and are averaged now and then.

Each place along the axis `batch` of a grid holds a replica (itself spread over the other axes), which takes steps of its own
on minibatches of its own. After every `period` of them the replicas are replaced by their mean, weighted by the samples that
each has seen since the last time (McMahan et al. 2017, Algorithm 1; Stich 2019 for equal weights): stripes may be uneven or
empty. With a period of 1 and plain SGD that is a step on the minibatch of all ranks together, `train_step` on a grid, but for
BatchNorm, whose statistics are a replica's own. With a longer one it is another algorithm with 1/period of the bytes.

Grabaskas 2018 does this in `StochasticGradient:train()`, sample by sample, or means to. It calls TorchMPI's
`synchronizeGradients` every n samples, which sums the gradients `gradWeight` over the nodes in place. But Torch's
`accUpdateGradParameters` has added each sample's gradient to the weights directly, with the weights standing in for
`gradWeight`; nobody writes or reads the sums, and no weights are ever exchanged. So its nodes train alone, on a stripe each:
whatever n is, Appendix C has the same accuracy, that of a part of the samples. Here the weights are averaged.
"""

from math import ceil

import numpy as np

from parallel.grid.process_grid import ProcessGrid
from parallel.placement.partition import Partition
from parallel.training.network import distribute
from parallel.training.steps import train_step


class Replicas:
    """The replicas of a network, of which this rank runs `net`, or a part of it.

    serial: a Sequential. grid: a ProcessGrid. options: those of `distribute`. All replicas start from the same parameters; their
    dropout masks differ. `net.grid` is the replica's own.
    """

    def __init__(self, serial, grid, **options):
        others = [axis for axis in grid.sizes if axis != "batch"]
        sizes = {axis: grid.sizes[axis] for axis in others}
        self.net = distribute(serial, ProcessGrid(grid.group(*others).comm, **sizes), **options)
        self.group = grid.group("batch")
        self.net.allocate()  # all draw the same values, before the seed changes
        self.net.seed += self.group.rank

    def average(self, samples):
        """Replace each replica by the mean of all, weighted by the samples that each has seen. Collective.

        samples: what this one has seen since the last time. The optimizer's state stays with each.
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
        with self.net.exclusive():  # ranks of a replica may share the memory: none writes before all have read
            for array, mean in zip(arrays, means):
                array[...] = mean

    def train(self, loss, optimizer, load, samples, batch_size, period):
        """Train on each of the global `samples` once: this replica on its stripe of them, in their order. Collective.

        loss, optimizer: of `net`. load: a reader's, from an array of indices to this rank's (x, y). samples: an array of
        indices. batch_size: of a replica's minibatches, of which the last may be smaller. period: steps between averages;
        there is one at the end too.
        Returns the mean loss over this replica's stripe, before each update; nan if it is empty.
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
