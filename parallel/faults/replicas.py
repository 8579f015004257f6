"""Replicas that should be equal: ranks that hold the same block of an array compare checksums of it. They compute the same
update from the same sum of gradients, bit by bit. If they differ, memory or a message was corrupted or the program is wrong."""

import zlib
from collections import Counter, defaultdict

import numpy as np

from gridgrad.nn.device import to_host
from gridgrad.parallel.faults.watchdog import in_words
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.job.run import Fault, raise_together

REPLICAS = "replicas"  # the name under which the tally counts the comparisons


class ReplicaCheck:
    """Compares the replicas of parameters, buffers and the optimizer's state, unless that is sharded, every `every` steps.
    Making one is collective. ValueError if some ranks compute on GPUs and others on CPUs."""

    def __init__(self, net, optimizer, every):
        self.net, self.optimizer, self.every, self._steps = net, optimizer, every, 0
        if 0 < len(ranks_on_cpus(net.grid.comm)) < net.grid.size:
            raise ValueError("replicas on GPUs and on CPUs round differently, so they can not be compared: use one device")

    def after_step(self, step):
        """Called after training step number `step`. Collective. Raises Fault, on all ranks, if replicas differ."""
        self._steps += 1
        if self._steps % self.every:
            return
        grid, arrays = self.net.grid, list(self._arrays())
        own = np.array([checksum(array) for _, _, array in arrays], np.uint32)
        sums = np.empty((grid.size, len(arrays)), np.uint32)
        grid.world.all_gather(own, sums.reshape(-1), [len(arrays)] * grid.size, REPLICAS)
        different = []
        for column, (name, layout, _) in enumerate(arrays):
            apart = [axis for axis in grid.sizes if axis not in layout.replicated]  # along these, ranks hold different blocks
            blocks = [tuple(grid.coordinates_of(rank)[axis] for axis in apart) for rank in range(grid.size)]
            different += [(name, odd) for odd in odd_ones(blocks, sums[:, column])]
        if different:
            name, (others, most) = different[0]
            others, most = (in_words([grid.world.ranks[rank] for rank in ranks]) for ranks in (others, most))
            more = len({name for name, _ in different}) - 1
            too = f", and {more} more arrays differ" * bool(more)
            found = f"step {step}: the replicas of {name} differ: values on {others} are not those on {most}{too}"
            advice = "memory or the network is faulty, or the program: go back to a checkpoint"
            raise_together(grid.rank, Fault(f"{found}; {advice}"))

    def _arrays(self):
        """(name, Layout, this rank's block) of all arrays that have replicas."""
        net, start = self.net, 0
        is_whole = self.optimizer.net is net and not net.reduction.sharded
        states = self.optimizer.state_arrays() if is_whole else {}
        for layer, p in net.parameters:
            where = slice(start, start + p.size)
            start = where.stop
            yield f"parameter {layer.name}.{p.name}", p.layout, p.value
            for name, array in states.items():
                yield f"the optimizer's {name} of {layer.name}.{p.name}", p.layout, array[where]
        for layer, buffer in net.buffers:
            yield f"buffer {layer.name}.{buffer.name}", buffer.layout, buffer.value


def odd_ones(blocks, sums):
    """(ranks that differ, those from which they differ) for each block whose replicas are not all equal.
    blocks, sums: of each rank, something hashable and a checksum. Right is what most have, or of no majority the first."""
    holders = defaultdict(list)
    for rank, block in enumerate(blocks):
        holders[block].append(rank)
    for ranks in holders.values():
        most, _ = Counter(int(sums[rank]) for rank in ranks).most_common(1)[0]
        odd = [rank for rank in ranks if sums[rank] != most]
        if odd:
            yield odd, [rank for rank in ranks if sums[rank] == most]


def checksum(array):
    """CRC-32 of the bytes of an array: it differs whenever arrays differ in one bit, or in any 32 bits in a row."""
    return zlib.crc32(np.ascontiguousarray(to_host(array)).reshape(-1).view(np.uint8))
