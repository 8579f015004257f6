"""Checks of a network while it is trained: that replicas are equal, and where the first NaN or infinity comes from."""

import zlib
from collections import Counter, defaultdict

import numpy as np

from gridgrad.nn.device import to_host
from gridgrad.nn.divergence import DATA, RATE, all_finite
from gridgrad.nn.observer import Observer
from gridgrad.parallel.faults.watchdog import in_words
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.job.run import Fault
from gridgrad.parallel.training.steps import Diverged

REPLICAS = "replicas"  # the name under which the tally counts the comparisons


class ReplicaCheck:
    """Compares the replicas of parameters, buffers and the optimizer's state, unless that is sharded, every `every` steps.
    Ranks compute the same update from the same sum of gradients, bit by bit: their checksums are equal, or something is broken.
    Making one is collective. ValueError if some ranks compute on GPUs and others on CPUs."""

    def __init__(self, net, optimizer, every):
        self.net, self.optimizer, self.every, self._steps = net, optimizer, every, 0
        if 0 < len(ranks_on_cpus(net.grid.comm)) < net.grid.size:
            raise ValueError("replicas on GPUs and on CPUs round differently, so they can not be compared: use one device")

    def after_step(self, step):
        """Called after training step number `step`. Collective. Raises Fault, on all ranks, if replicas differ."""
        self._steps += 1  # which is not `step`: an asynchronous worker skips some
        if self._steps % self.every:
            return
        grid, arrays = self.net.grid, list(self._arrays())
        # CRC-32 differs whenever two arrays differ in one bit, or in any 32 bits in a row.
        own = np.array([zlib.crc32(np.ascontiguousarray(to_host(array))) for _, _, array in arrays], np.uint32)
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
            raise Fault(f"{found}; {advice}")

    def _arrays(self):
        """(name, Layout, this rank's block) of all arrays that have replicas."""
        net = self.net
        is_whole = self.optimizer.net is net and not net.reduction.sharded
        states = self.optimizer.state_arrays() if is_whole else {}
        for layer, p, where in net.reduction.places:
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


NOTHING = np.iinfo(np.int64).max  # the position of what was found while nothing was
STEP = 1 << 40  # positions in one step
PASS = 1 << 36  # positions in one of its parts: the forward pass, the backward pass, the update


class FiniteCheck(Observer):
    """Looks at what each layer takes and returns and at all gradients and parameters of a ParallelSequential.
    What was found first has the lowest position: the step, the part of the step, and the place in the network."""

    # A search after the step (`nn/divergence.py`) comes too late to find the first one: by then a gradient that was not finite
    # has become a parameter, and in a pipeline the activations are gone.

    def __init__(self, net):
        self.net, self.step = net, 0
        self._position, self._words = NOTHING, ""
        net.observe(self)

    def computed(self, layer, phase, taken, result, context):
        self.step = context.step
        of = f"of layer {layer.name} ({layer.description})"
        if phase == "forward":
            if not all_finite(taken):
                place = self._place(layer)
                self._found(2 * place, f"the input {of}", place and RATE)
            elif not all_finite(result):
                self._found(2 * self._place(layer) + 1, f"the output {of}")
        elif result is not None and not all_finite(result):
            self._found(PASS - 2 * self._place(layer), f"the gradient of the input {of}")

    def written(self, layer):
        for p in layer.parameters:
            if not all_finite(p.grad):
                self._found(PASS - 2 * self._place(layer) - 1, f"the gradient of parameter {layer.name}.{p.name}")

    def after_step(self, step):
        """Called after training step number `step`. Collective. Raises Diverged, on all ranks, if something was not finite."""
        self.step = step
        for place, (layer, p) in enumerate(self.net.parameters if self._position == NOTHING else ()):
            if not all_finite(p.value):
                self._found(2 * PASS + place, f"parameter {layer.name}.{p.name}", when=" after the update")
        grid = self.net.grid
        first = int(grid.min(np.array([self._position]))[0])
        if first < NOTHING:
            raise Diverged(next(filter(None, grid.comm.allgather(self._words if self._position == first else None))))

    def _place(self, layer):
        leaves = list(self.net.leaves())
        return next((at for at, leaf in enumerate(leaves) if leaf is layer or leaf.name == layer.name), len(leaves))

    def _found(self, position, what, advice=RATE, when=""):
        """Note that something is not finite, unless something before it was not. position: within the step."""
        position += self.step * STEP
        if position < self._position:
            self._position, self._words = position, f"step {self.step}: {what} is not finite{when}; {advice or DATA}"
