"""What a plan is: how layers with weights are placed along one axis of the grid. `parallel/plans/` has the plans themselves."""

from collections.abc import Mapping
from typing import Any

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import LAYER_AXES, MODEL
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import Invariant, N, Shard
from gridgrad.parallel.placement.redistribute import Redistribute

OUTPUTS, INPUTS = -1, -2  # dimensions of a weight


class Plan:
    """How a layer with weights is placed along an axis, and what that means for the layers around it."""

    # A subclass has a word and says how a layer is divided: its `input` and `output`, and `divide`. All else is as here for
    # most plans; layers of other kinds follow from the placement of their input. `docs/extending/` has an example.

    word = use = ""  # its name in the text of a plan; what the ranks of the axis do with a layer: "they .."
    kinds: tuple[str, ...] = ("linear", "conv")  # the kinds of layers that can have it, see `Layer.kind`
    refusal = ""  # why other layers can not, as the end of a sentence; by default it names the plans that they can have
    # The placements that the layer needs and leaves; a number stands for a Shard of that dimension.
    input: Any = N
    output: Any = N
    weight: int | None = None  # the dimension of the weight that is sharded: -1 for its outputs, -2 for its inputs, or none
    move = Redistribute  # the layer that brings the input to its placement, or a subclass with another algorithm
    is_candidate = False  # whether "fewest-bytes" may choose it for a layer
    axes: tuple[str, ...] = LAYER_AXES  # that divide the arrays of layers and may have several ranks
    mixes = True  # whether other layers may have other plans along the axis
    sums_gradients = True  # of parameters that several ranks of the axis hold; otherwise each has one owner
    shares_work = True  # whether the ranks of the axis share the work of a layer
    bounding_rank: int | None = None  # whose work bounds a step, whatever its share; None: the one with the largest share
    divides_apart = False  # whether branches of a Concat may end with channels at other ranks, not all on each rank
    needs_owners = False  # whether it is an Owners of the whole network, which the ranks may run as a pipeline

    # ----- what it can not do

    def takes(self, kind):
        """Whether layers of a kind can have it."""
        return kind in self.kinds

    def is_tried(self, kinds, sizes, shape):
        """Whether the planner tries it for layers of these kinds. sizes: {axis: ranks}. shape: of a sample."""
        return self.is_candidate and kinds <= set(self.kinds)

    def fits(self, sizes):
        """Whether it has a rule for every axis with several ranks. sizes: {axis: ranks}."""
        return all(axis in self.axes or sizes.get(axis, 1) == 1 for axis in LAYER_AXES)

    def check(self, text, grid):
        """Raise ValueError for a grid, or a device, on which it is not possible. text: the whole plan, for the message."""
        for axis in LAYER_AXES:
            if axis not in self.axes and grid.sizes[axis] > 1:
                raise ValueError(f"plan '{text}' has no rule for the axis {axis}: use the axes {' and '.join(self.axes)}")

    def checked_owners(self, owners, layers, grid):
        """{name of a layer: Partition of its outputs}, for a Placer; ValueError if one does not fit its layer or the grid.
        owners: the same or lists with the owner of each output, or None. layers: those with weights."""
        if owners is not None and not isinstance(owners, Mapping):
            raise ValueError(f"owners: with '{self.word}' they are a dict {{name of a layer: Partition}}; an Owners is for the "
                             "plan hypergraph")  # fmt: skip
        outputs, ranks, found = {layer.name: layer.weight.shape[OUTPUTS] for layer in layers}, grid.sizes[MODEL], {}
        for name, given in (owners or {}).items():
            try:
                partition = found[name] = given if isinstance(given, Partition) else Partition.owned(given, ranks)
            except ValueError:
                words = "must be a Partition, or a list with one rank for each output"
                raise ValueError(f"owners: those of layer {name} {words}") from None
            if name not in outputs:
                raise ValueError(f"owners: there is no layer {name} with weights")
            if (partition.length, partition.ranks) != (outputs[name], ranks):
                raise ValueError(f"owners: layer {name} has {outputs[name]} outputs and the axis {MODEL} {ranks} ranks, but "
                                 f"the partition is of {partition.length} over {partition.ranks}")  # fmt: skip
            if not partition.is_exact_cover:
                raise ValueError(f"owners: each output of layer {name} must belong to exactly one rank")
        return found if ranks > 1 else {}

    # ----- placing a layer with weights, for a Placer

    def start(self, placer, axis):
        """The placement of the minibatch along an axis, if the first layer with weights has this plan."""
        return self.wanted(placer, axis)  # so that nothing has to be moved

    def wanted(self, placer, axis):
        """The placement of the input along an axis. A Shard of the right dimension is kept, whatever its partition."""
        if not isinstance(self.input, int):
            return self.input
        at = placer.at.get(axis)
        return at if at and at.dim == self.input else placer.shard(axis, self.input)

    def place(self, placer, axis, layer):
        """Place a layer in a way of its own, along all axes. Returns whether it did; otherwise `divide` is asked on each."""
        return False

    def divide(self, placer, axis, layer):
        """({name of an array of the layer: its placement}, placement of the output) along an axis, once the input is as wanted.
        An array that is not named is Replicate. The placement of the output is of the kind that `output` says."""
        return {}, placer.at[axis]

    def behind(self, placer, axis, layer):
        """Append what follows the layer."""

    # ----- what it means for other layers

    def samples(self, split):
        """The placement of samples that an axis divides. split: by which it does."""
        return Shard(N, split)

    def starts_of_branches(self, placer, axis, branches, name, added):
        """Bring what branches need of the array that they all take; returns the placement in which each begins. name: of the
        layer with the branches. added: whether their outputs are added, and not concatenated."""
        return [placer.at[axis]] * len(branches)

    def join(self, placer, axis, branches, name):
        """Say how the concatenated channels are placed. branches: a Placer for each, at its end."""

    def finish(self, placer, axis):
        """Move the outputs to where the loss is computed. The placement is its own adjoint, see `placements.py`."""
        if placer.at[axis].dim != N and placer.at[axis] != Invariant():
            placer.move(axis, placer.shard(axis, N), "output")

    def __str__(self):
        return self.word

    def __repr__(self):
        return f"<plan {self.word}>"


def output_columns(placer, axis, layer):
    """The Partition of the outputs of a layer, or of its hidden units, along an axis that shards them."""
    units = layer.weight.shape[OUTPUTS]
    return placer.owners.get(layer.name) or placer.splits[axis].of_length(units)


def weighted(net):
    """The layers of a network that have a plan, those with a `kind`, in the order in which they run."""
    return weighted_in(net.layers)


def weighted_in(layers):
    return [leaf for leaf in leaves(layers) if leaf.kind]
