"""What a training step costs: the work of one rank (`parallel/performance/workload.py`), priced by a machine
(`parallel/performance/machine.py`)."""

from collections import defaultdict
from functools import cached_property

from parallel.grid.grid_description import GridDescription
from parallel.performance.workload import Walk
from parallel.placement.place_network import place
from parallel.placement.plans import weighted


class Cost:
    """The price of a training step on one rank.

    net: a serial Sequential, with its `input_shape` where it takes images. outline: the grid as seen by one of its ranks, the
    one with the most work. plan, shares, owners: see `parallelize`. batch_size: of the global minibatch. machine: a Machine.

    works: a list of all that the rank does, see `Work`. memory: bytes that it needs, see `Walk`.
    """

    def __init__(self, net, outline, plan, batch_size, machine, shares=None, owners=None):
        self.net, self.outline, self.batch_size, self.machine = net, outline, batch_size, machine
        self.placed = place(net, outline, plan, shares, owners)
        self.itemsize = net.dtype.itemsize
        walk = Walk(local_shape(self.placed.input, batch_size, outline), batch_size, self.itemsize)
        walk.step(self.placed.layers, outline)
        self.works, self.memory = walk.works, walk.memory

    @cached_property
    def seconds(self):
        """Seconds of a step whose sums of gradients begin after backward (reduction "plain")."""
        return sum(self.seconds_of(work) for work in self.works)

    def seconds_of(self, work):
        return work.seconds(self.machine, self.outline.size, self.itemsize)

    @cached_property
    def overlapped_seconds(self):
        """Seconds of a step whose sums of gradients run during backward: the least that the reduction "overlap" can take."""
        sums = sum(self.seconds_of(work) for work in self.works if work.layer == "gradients")
        computed = [work for work in self.works if work.group is None and work.phase in ("backward", "gradients")]
        backward = sum(self.seconds_of(work) for work in computed)
        return self.seconds - min(sums, backward)

    @cached_property
    def parts(self):
        """Seconds by what they are spent on: {"compute", "update", "gradients", "activations"}."""
        parts = dict.fromkeys(("compute", "update", "gradients", "activations"), 0.0)
        for work in self.works:
            if work.group is None:
                part = "update" if work.phase == "update" else "compute"
            else:
                part = "gradients" if work.layer == "gradients" else "activations"
            parts[part] += self.seconds_of(work)
        return parts

    @property
    def collectives(self):
        """The number of collectives that this rank takes part in, in a step."""
        return sum(work.group is not None for work in self.works)

    @property
    def bytes_sent(self):
        """Bytes that this rank sends in a step."""
        return sum(work.nbytes for work in self.works if work.group is not None)

    def rows(self):
        """A dict for each layer of the serial network that costs something, in the order in which they run: its
        `placement`, `flops`, `bytes` sent and `seconds` on this rank, forward and backward."""
        choice = dict(zip((layer.name for layer in weighted(self.net)), self.placed.plan))
        kinds = {layer.name: type(layer).__name__ for layer in self.net.leaves()}
        found = defaultdict(lambda: [0.0, 0.0, 0.0])
        for work in self.works:
            row = found[work.layer]
            row[0] += work.flops
            row[1] += work.nbytes if work.group is not None else 0.0
            row[2] += self.seconds_of(work)
        return [
            {"layer": name, "kind": kinds.get(name, ""), "placement": choice.get(name, ""),
             "flops": flops, "bytes": sent, "seconds": seconds}
            for name, (flops, sent, seconds) in found.items()
        ]  # fmt: skip


def local_shape(layout, batch_size, outline):
    """The shape of what a rank holds of a minibatch: samples first."""
    return layout.of(batch_size).local_shape(outline.coordinates)


def busiest(sizes, ranks_per_node=None, shares=None):
    """The GridDescription of the rank with the most work: that with the largest share; where images are cut into even height shards, a
    rank with neighbours on both sides."""
    place = {"height": 1 if sizes.get("height", 1) > 2 else 0}
    place |= {axis: weights.index(max(weights)) for axis, weights in (shares or {}).items()}
    return GridDescription(sizes, place, ranks_per_node)
