"""The plan "hypergraph": any partition of the filters, or of single channels of filters, over the axis `model`.

An array of activations is at the owners of its channels. Before each layer with weights a rank receives the channels that its
part of the layer needs, each once and in one message from each rank that owns some of them; in backward the gradients return
the same way and are added. (Eserol 2019, chapter 3; the thesis did not execute the fine grain.)

| array                                          | coarse grain            | fine grain                            |
|------------------------------------------------|-------------------------|---------------------------------------|
| activations between layers                     | `Shard(C, owned)`       | `Shard(C, owned)`                     |
| input of the layer                             | `Copies(C, needed)`     | `Copies(C, needed)`                   |
| weight                                         | `Tile(needed, owned)`   | `Shard(-1, pairs)`: `PairedLayer`     |
| output of the layer                            | `Shard(C, owned)`       | `PartialShard(C, made)`               |
| behind it                                      | the same                | `Shard(C, owned)`: the sums are added |

Pooling, normalisation and activations run at the owner of a channel, before it is sent. All ranks have the input of the
network; of a normalisation that comes first each has an even part of the channels. So a parameter is at one rank, and no
gradient is summed over the axis: asynchronous pipelines need that. All outputs go to one rank, which computes the loss.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.layer import Block, Layer, Parameter
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.placement.layer_kinds import kind_of
from gridgrad.parallel.placement.moves import index_of
from gridgrad.parallel.placement.partition import EMPTY, Partition, Split, indices, positions, union
from gridgrad.parallel.placement.placements import AtRank, C, Copies, N, PartialShard, Replicate, Shard, Tile
from gridgrad.parallel.placement.plan import OUTPUTS, Plan
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.marques import AddBias, with_weight

HYPERGRAPH = "hypergraph"  # the word of the plan
MOST_PRODUCTS = 8  # into which the pairs of a layer at one rank are divided
DRAWN = 1 << 22  # the initial weights that are drawn at a time, at most, or those of one input


@dataclass(frozen=True, eq=False)
class Owners:
    """A partition of the network's work. ValueError for owners that are none."""

    ranks: int
    outputs: dict  # {layer: owner of each output}
    pairs: dict = field(default_factory=dict)  # of layers with a fine grain {layer: (inputs, outputs) owner of each channel}
    loss: int = 0  # the rank that gets all outputs

    def __post_init__(self):
        for kind, dims in (("outputs", 1), ("pairs", 2)):
            found = {name: np.asarray(owners) for name, owners in getattr(self, kind).items()}
            object.__setattr__(self, kind, found)
            for name, owners in found.items():
                if owners.ndim != dims or owners.dtype.kind not in "iu":
                    raise ValueError(f"owners: the {kind} of layer {name} must be an array of ranks, not {owners.dtype} "
                                     f"{owners.shape}")  # fmt: skip
                if owners.size and not 0 <= owners.min() <= owners.max() < self.ranks:
                    raise ValueError(f"owners: those of layer {name} must be ranks from 0 to {self.ranks - 1}")
        for name, owners in self.pairs.items():
            if name not in self.outputs or owners.shape[1] != len(self.outputs[name]):
                raise ValueError(f"owners: the pairs of layer {name} must be one row an input, with one rank for each output")
        if not 0 <= self.loss < self.ranks:
            raise ValueError(f"owners: the loss is at rank {self.loss}, of {self.ranks}")

    def check(self, layers):
        """Raise ValueError unless these are the owners of `layers`, all layers with weights of a network."""
        names = {layer.name for layer in layers}
        for name in sorted(names ^ self.outputs.keys()):
            raise ValueError(f"owners: {'there are none for' if name in names else 'there is no'} layer {name} with weights")
        for layer in layers:
            name, pairs = layer.name, self.pairs.get(layer.name)
            if len(self.outputs[name]) != layer.outputs:
                raise ValueError(f"owners: layer {name} {layer!r} has {layer.outputs} outputs, not {len(self.outputs[name])}")
            if pairs is not None and len(pairs) != layer.inputs:
                raise ValueError(f"owners: layer {name} {layer!r} has {layer.inputs} inputs, not {len(pairs)}")

    @cached_property
    def partitions(self):
        """{layer: Partition of its outputs}."""
        return {name: Partition.owned(owners, self.ranks) for name, owners in self.outputs.items()}


class Pairs(Parameter):
    """A weight (.., inputs, outputs) as an array (.., inputs x outputs), of which a rank may hold any pairs."""

    def __init__(self, weight):
        *kernel, inputs, outputs = weight.shape
        super().__init__(weight.name, (*kernel, inputs * outputs), weight.bound, weight.torch_axes)
        self.weight = weight

    @property
    def stored_shape(self):
        return self.weight.shape

    def initialise(self, seed, stream):
        """As the serial weight, of all outputs of the inputs that it has, because random numbers are drawn in whole rows."""
        *kernel, _, outputs = self.weight.shape
        rows, columns = np.divmod(indices(self.index[-1]), outputs)
        inputs, rows = np.unique(rows, return_inverse=True)
        many = max(1, DRAWN // (prod(kernel) * outputs))
        for first in range(0, len(inputs), many):  # a rank may have pairs of all inputs, and no room for the whole weight
            drawn = self.weight.placed(Block((*self.index[:-1], inputs[first : first + many], slice(0, outputs))))
            drawn.value = xp.empty(drawn.block_shape, self.value.dtype)
            drawn.initialise(seed, stream)
            some = slice(*np.searchsorted(rows, (first, first + many)).tolist())
            self.value[..., some] = drawn.value[..., to_device(rows[some] - first), to_device(columns[some])]


class Product:
    """A rectangle of inputs and outputs that a rank multiplies at once, with zeros for pairs of other ranks. needed, made: the
    inputs and outputs of all its rectangles. held: its pairs, as increasing flat indices."""

    def __init__(self, layer, inputs, outputs, needed, made, held):
        kernel = [slice(0, n) for n in layer.weight.shape[:-2]]
        self.block = layer.placed(weight=Block((*kernel, inputs, outputs)), bias=Block((EMPTY,)))
        self.rows, self.columns = (index_of(C, positions(part, whole)) for part, whole in ((inputs, needed), (outputs, made)))
        rows, columns = np.divmod(held, layer.outputs)
        inside = np.flatnonzero(np.isin(rows, inputs) & np.isin(columns, outputs))
        self.held = to_device(inside)
        self.at = ..., to_device(np.searchsorted(inputs, rows[inside])), to_device(np.searchsorted(outputs, columns[inside]))

    def forward(self, x, pairs, context):
        kept = context[self.block]
        kept.kernel = kept.workspace("kernel", self.block.weight.block_shape, pairs.dtype)
        kept.kernel.fill(0)
        kept.kernel[self.at] = pairs[..., self.held]
        return self.attached(context).forward(xp.ascontiguousarray(x[self.rows]), context)

    def gradients(self, dy, gradient, context):
        block = self.attached(context)
        block.gradients(xp.ascontiguousarray(dy[self.columns]), context)
        gradient[..., self.held] = block.weight.grad[self.at]

    def input_gradient(self, dy, context):
        return self.attached(context).input_gradient(xp.ascontiguousarray(dy[self.columns]), context)

    def attached(self, context):
        """The block with the weight that a context keeps."""
        kept = context[self.block]
        self.block.bias.value = self.block.bias.grad = kept.kernel.reshape(-1)[:0]
        return with_weight(self.block, kept.kernel, kept)


class PairedLayer(Layer):
    """The pairs of a layer that one rank multiplies, (n, .., needed) -> partial sums (n, .., made). after: of a sample."""

    output_may_be_overwritten = True
    overwrites_gradient = False

    def __init__(self, pairs, products, needed, made, after):
        self.pairs, self.products, self.needed, self.made, self.after = pairs, products, needed, made, after
        self.parameters, self.is_one = (pairs,), len(products) == 1  # which then has all that is needed and made

    def give_name(self, name):
        self.name = name
        for product in self.products:
            product.block.name = name

    def forward(self, x, context):
        context[self].shape = x.shape
        if self.is_one:
            return self.products[0].forward(x, self.pairs.value, context)
        y = context[self].workspace("y", (len(x), *self.after[:-1], self.made), x.dtype)
        for product in self.products:
            y[product.columns] = product.forward(x, self.pairs.value, context)
        return y

    def gradients(self, dy, context):
        for product in self.products:
            product.gradients(dy, self.pairs.grad, context)

    def input_gradient(self, dy, context):
        if self.is_one:
            return self.products[0].input_gradient(dy, context)
        dx = context[self].workspace("dx", context[self].shape, dy.dtype)
        dx.fill(0)
        with context.holding(dy):
            for product in self.products:
                dx[product.rows] += product.input_gradient(dy, context)
        return dx

    def work(self, workload):
        """The products of its rectangles, zeros included, and copies of their kernels and of parts of arrays."""
        before = workload.shape
        for product in self.products:
            block = product.block
            workload.shape = *before[:-1], block.weight.block_shape[-2]
            taken = prod(workload.shape)
            workload.add(block)
            copied = block.weight.size + (0 if self.is_one else taken + prod(workload.shape))
            workload.pack("forward", copied, workload.shape[-1])
            workload.pack("gradients", copied, workload.shape[-1])
            workload.keep(block.weight.size + copied)  # the kernel and its gradient, and parts of arrays
        workload.keep(0 if self.is_one or workload.first else prod(before))  # the gradient of the input
        workload.shape = before[0], *self.after[:-1], self.made

    def __repr__(self):
        return f"PairedLayer({self.pairs.size} of {self.pairs.weight.size} weights in {len(self.products)} products)"


def rectangles(owned):
    """At most MOST_PRODUCTS rectangles [(rows, columns), ..] that cover `owned`, booleans (inputs, outputs): outputs with the
    same inputs, and then again and again those two joined that multiply the fewest zeros."""
    columns = np.flatnonzero(owned.any(0))
    patterns, group = np.unique(owned[:, columns].T, axis=0, return_inverse=True)
    if len(patterns) > MOST_PRODUCTS**2:  # there is no structure
        patterns, group = patterns.any(0, keepdims=True), np.zeros(len(columns), int)
    counts = np.bincount(group.ravel(), minlength=len(patterns)).astype(float)
    members = [columns[group.ravel() == number] for number in range(len(patterns))]
    while len(members) > MOST_PRODUCTS:
        inputs = patterns.sum(1, dtype=float)
        joint = inputs[:, None] + inputs - patterns.astype(float) @ patterns.T
        zeros = joint * (counts[:, None] + counts) - (inputs * counts)[:, None] - inputs * counts
        np.fill_diagonal(zeros, np.inf)
        a, b = sorted(map(int, np.unravel_index(zeros.argmin(), zeros.shape)))
        patterns[a] |= patterns[b]
        counts[a] += counts[b]
        members[a] = np.sort(np.concatenate([members[a], members.pop(b)]))
        patterns, counts = np.delete(patterns, b, 0), np.delete(counts, b)
    return [(np.flatnonzero(pattern), found) for pattern, found in zip(patterns, members, strict=True)]


class PartitionOfNetwork(Plan):
    """All layers have it. The owners that a Placer takes are an Owners."""

    word, use = HYPERGRAPH, "hold the filters that a partition gives them"
    input, output, weight = C, C, OUTPUTS
    mixes = sums_gradients = False
    divides_apart = needs_owners = True
    axes = BATCH, MODEL

    def check(self, text, grid):
        if grid.sizes[MODEL] > 1:  # otherwise there is nothing to own
            super().check(text, grid)

    def checked_owners(self, owners, layers, grid):
        ranks = grid.sizes[MODEL]
        if ranks == 1:
            return {}
        if not isinstance(owners, Owners):
            raise ValueError(
                f"plan '{self.word}' needs owners: those of a file, or of parallel.partitioning.good_partition.partition"
            )
        if owners.ranks != ranks:
            raise ValueError(
                f"owners: the partition is for {owners.ranks} ranks, the axis {MODEL} has {ranks}: make one for {ranks}"
            )
        owners.check(layers)
        for layer in layers:
            if layer.name in owners.pairs and not kind_of(layer).has_pairs:
                raise ValueError(f"owners: layer {layer.name} {layer!r} is sparse and has no fine grain: leave its pairs out")
        return owners

    def start(self, placer, axis):
        return Replicate()

    def place(self, placer, axis, layer):
        """The input of a layer comes to the ranks that need it, and each holds its part of the weight."""
        at, (needed, made) = placer.at[axis], needed_and_made(placer.owners, layer)
        placer.move(axis, Copies(C, needed) if at.dim is None else at.needing(needed), layer.name)
        if layer.name in placer.owners.pairs:
            place_pairs(placer, axis, layer, needed, made)
        else:
            weight = placer.layout_of(layer.weight, {axis: Tile(needed, made)})
            bias = placer.layout_of(layer.bias, {axis: Shard(0, made)})
            placer.append(layer.placed(weight=weight, bias=bias), layer.name)
        placer.at[axis] = Shard(C, placer.owners.partitions[layer.name])
        return True

    def starts_of_branches(self, placer, axis, branches, name, added):
        """A channel is sent to a rank once for all branches. One that begins with weights needs the inputs of that layer; an
        empty one, added to the first, what the first ends with; any other begins with what is owned."""
        owned = placer.at[axis]
        if owned == Replicate():
            return [owned] * len(branches)
        starts = []
        for branch in branches:
            start = owned
            if branch and branch[0].kind:
                start = owned.needing(needed_and_made(placer.owners, branch[0])[0])
            elif starts and not branch and added:
                first = placer.fork()
                first.place(branches[0])
                start = first.at[axis]
            starts.append(start)
        parts = zip(*(start.partition.parts for start in (owned, *starts)))
        placer.move(axis, owned.needing(Partition.of(owned.partition.length, tuple(map(union, parts)))), name)
        return starts

    def join(self, placer, axis, branches, name):
        """The concatenated channels are where those of the branches are."""
        apart = [branch for branch in branches if branch.at[axis] == Replicate()]
        if len(apart) == len(branches):
            return
        for branch in apart:  # of what every rank has, each takes a part
            branch.move(axis, branch.shard(axis, C), name)
        partitions = [branch.at[axis].partition for branch in branches]
        offsets = np.cumsum([0, *(partition.length for partition in partitions)])
        parts = zip(*(partition.parts for partition in partitions))
        joined = [np.concatenate([indices(part) + offset for part, offset in zip(of_rank, offsets)]) for of_rank in parts]
        placer.at[axis] = Shard(C, Partition.of(int(offsets[-1]), joined))

    def finish(self, placer, axis):
        """Bring all outputs of the network to the rank that computes the loss."""
        ranks, rank = placer.grid.sizes[axis], placer.owners.loss
        placer.move(axis, Shard(C, Partition.at_rank(placer.shape[-1], ranks, rank)), "output")
        placer.move(axis, AtRank(N, Split.at_rank(ranks, rank)), "output")


def place_pairs(placer, axis, layer, needed, made):
    """Append a layer with a fine grain: the products, the sums of what they make, and the bias."""
    owners, owned = placer.owners.pairs[layer.name], placer.owners.partitions[layer.name]
    rank = placer.grid.coordinates[axis]
    held = Shard(-1, Partition.owned(owners.ravel(), placer.owners.ranks))
    pairs = Pairs(layer.weight)
    pairs = pairs.placed(placer.layout_of(pairs, {axis: held}))
    mine = [indices(partition.part(rank)) for partition in (needed, made, held.partition)]
    products = [Product(layer, rows, columns, *mine) for rows, columns in rectangles(owners == rank)]
    after = layer.output_shape(placer.shape)
    placer.append(PairedLayer(pairs, products, needed.size(rank), made.size(rank), after), layer.name)
    if made != owned:
        sums = PartialShard(C, made), Shard(C, owned)
        placer.append(Redistribute(placer.grid.group(axis), *sums, after, placer.rows_along(axis)), layer.name)
    if layer.bias in layer.parameters:
        bias = layer.bias.placed(placer.layout_of(layer.bias, {axis: Shard(0, owned)}))
        placer.append(AddBias(bias), layer.name)


def needed_and_made(owners, layer):
    """(Partition of the inputs that the ranks need, Partition of the outputs to which they contribute) of a layer."""
    if layer.name not in owners.pairs:
        owned = owners.partitions[layer.name]
        return Partition.of(layer.inputs, tuple(layer.inputs_of(part) for part in owned.parts)), owned
    pairs = owners.pairs[layer.name]
    mine = [pairs == rank for rank in range(owners.ranks)]
    return [Partition.of(pairs.shape[dim], tuple(np.flatnonzero(held.any(1 - dim)) for held in mine)) for dim in (0, 1)]


# ----- cutting a placed network for a pipeline


def between_exchanges(layers):
    """(chunks, exchanges) of placed layers, with the same cuts on all ranks. ValueError for exchanges within branches."""
    chunks, exchanges = [[]], []
    for layer in layers:
        if type(layer) is Redistribute and layer.is_exchange and layer.moves("forward"):
            exchanges.append(layer)
            chunks.append([])
            continue
        if layer.children and any(isinstance(leaf, Redistribute) for leaf in leaves([layer])):
            raise ValueError(
                f"layer {layer.name}: a partition has no pipeline where branches of the network exchange channels: "
                f"use a grid with the axis stage"
            )
        chunks[-1].append(layer)
    return chunks, exchanges
