"""What each rank of a grid holds, for the pictures: from the Layouts of the network as it is placed, without any job."""

from dataclasses import dataclass

from gridgrad.parallel.grid.process_grid import AXES, GridDescription, places
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.plans.place_network import Placed, place


@dataclass(frozen=True)
class Held:
    """An array and the block of it that a rank holds. name: for people. layout: of the whole array."""

    name: str
    layout: Layout
    block: tuple

    @property
    def shape(self):
        return self.layout.shape


@dataclass(frozen=True)
class Rank:
    """One rank of a grid. placed: the network as this rank runs it."""

    coordinates: dict
    placed: Placed

    def input(self, samples):
        """The Held of a minibatch of so many samples."""
        return self._held("X", self.placed.input.of(samples))

    def output(self, samples):
        """The Held of the network's outputs for so many samples."""
        return self._held("Y", self.placed.output.of(samples))

    @property
    def weights(self):
        """The Held of each layer's weight."""
        found = weighted_in(self.layers_with_weights)
        return [self._held(f"W{number}", layer.weight.layout) for number, layer in enumerate(found, 1)]

    @property
    def layers_with_weights(self):
        """The Linear and Conv2d layers; a HaloConv2d or a GatheredLinear contains one."""
        inner = [getattr(layer, "conv", getattr(layer, "layer", layer)) for layer in self.placed.layers]
        return [layer for layer in inner if layer.kind]

    def _held(self, name, layout):
        return Held(name, layout, layout.block(self.coordinates))


def on_every_rank(net, sizes, plan="fewest-bytes", **options):
    """The Rank for each rank of a grid, in rank order. sizes: {axis: number of ranks}. plan, options: as for `place`."""
    every = places({axis: sizes.get(axis, 1) for axis in AXES})
    return [Rank(where, place(net, GridDescription(sizes, where), plan, **options)) for where in every]
