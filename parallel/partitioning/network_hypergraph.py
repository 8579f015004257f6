"""The hypergraph of a network of layers in sequence, residual connections and branches (after Eserol 2019, chapter 3).

A vertex is a piece of work: in the *coarse grain* a filter of a convolution or a neuron; in the *fine grain* a convolution is
divided into one vertex for each channel of a filter, and one that adds the results of a filter's channels. A net is a channel
of an array that travels to the vertices that need it, so that the volume of a partition of the vertices is exactly what the
plan "hypergraph" (`parallel/plans/hypergraph.py`) sends forward for a sample; backward the same travels back:

- A layer with weights needs all channels of its input, or those for which it has weights that are not zero.
- All layers between are computed where a channel is, before it is sent: so pooled maps travel.
- The output of a residual connection is where the output of its branch is, and the channels of the shortcut travel there. The
  branches of a layer that read the same array get a channel of it once, however many of them need it.
- A filter of a fine grain whose channels are apart is added where the filter is: its partial sums travel before any pooling.
- The outputs of the network travel to where the loss is computed, a vertex without work.

The traffic of a LocalResponseNorm is only estimated: each owner of a channel is taken to need the neighbouring channels. That
is exact if each rank has consecutive channels. If not, the plan first moves channels so that they are consecutive; and behind a
Flatten it sends only the nearest features.
"""

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from gridgrad.nn import BatchNorm, Concat, Conv2d, Dropout, Flatten, Linear, LocalResponseNorm, Residual, SparseLinear
from gridgrad.nn.layers.activations import Activation
from gridgrad.nn.layers.pool import Pool2d
from gridgrad.nn.network_summary import flops
from gridgrad.parallel.partitioning.hypergraph import Hypergraph, from_pairs
from gridgrad.parallel.placement.partition import indices
from gridgrad.parallel.plans.hypergraph import Owners

GRAINS = "coarse", "fine"
PICO = 10**12  # a given time becomes a weight in whole picoseconds
FREE = -1  # the owner of a channel that every rank has: of the minibatch


@dataclass(frozen=True, eq=False)
class NetworkHypergraph:
    """The Hypergraph of a network, and what its vertices are.

    hypergraph: nets cost elements of a sample, and the weights are operations of a forward pass of a sample, or picoseconds.
    outputs: {layer name: the vertex of each output}. pairs: {layer name: (rows, columns, table)} for the layers of a fine
    grain: input channel c and filter f are multiplied by the vertex table[rows[c], columns[f]]. inputs: the vertices that own
    the minibatch, an empty array unless they were asked for. loss: the vertex of the loss, None unless there is one. unpooled:
    the elements that a net would cost if its array were sent as the layer with weights made it, before pooling (E,).
    """

    hypergraph: Hypergraph
    outputs: dict
    pairs: dict
    inputs: np.ndarray
    loss: int | None
    unpooled: np.ndarray

    def owners(self, parts, ranks):
        """The Owners for a part, from 0 to ranks - 1, of each vertex. ValueError if `parts` is not that."""
        parts = self.hypergraph.check_parts(parts, ranks)
        outputs = {name: parts[vertices] for name, vertices in self.outputs.items()}
        pairs = {name: parts[table][rows[:, None], columns] for name, (rows, columns, table) in self.pairs.items()}
        if self.loss is not None:
            loss = int(parts[self.loss])
        else:  # where most outputs are
            loss = int(np.bincount(outputs[list(outputs)[-1]], minlength=ranks).argmax())
        return Owners(ranks, outputs, pairs, loss)

    def parts(self, owners):
        """The part of each vertex for Owners of this network: an int64 array (V,).

        A minibatch that is owned by vertices is put where most of those who need it are. ValueError for Owners of another
        network, or that divide a block of filters, neurons or channels that is one vertex here.
        """
        if set(owners.outputs) != set(self.outputs):
            raise ValueError(f"owners: they are of the layers {', '.join(owners.outputs)}, but the network has the layers "
                             f"{', '.join(self.outputs)}")  # fmt: skip
        parts = np.zeros(self.hypergraph.vertices, np.int64)
        for name, vertices in self.outputs.items():
            _assign(parts, vertices, owners.outputs[name], name)
        for name, (rows, columns, table) in self.pairs.items():
            found = owners.pairs.get(name)
            found = np.broadcast_to(owners.outputs[name], (len(rows), len(columns))) if found is None else found
            _assign(parts, table[rows[:, None], columns], found, name)
        for name in set(owners.pairs) - set(self.pairs):
            if (owners.pairs[name] != owners.outputs[name]).any():
                raise ValueError(f"owners: those of layer {name} are of the fine grain: ask for the hypergraph of that grain")
        if self.loss is not None:
            parts[self.loss] = owners.loss
        graph = self.hypergraph
        for vertex in self.inputs:
            pins = graph.pins[graph.net_of_pin == np.flatnonzero(graph.roots == vertex)[0]]
            parts[vertex] = np.bincount(parts[pins[pins != vertex]]).argmax()
        return parts


def of_network(net, grain="coarse", filter_blocks=None, neuron_blocks=64, seconds=None, with_input=False, with_loss=True):
    """The NetworkHypergraph of a Sequential whose `input_shape` is known. It is not allocated.

    grain: "coarse", or "fine", in which the convolutions are divided into channels of filters; Linear layers never are.
    filter_blocks, neuron_blocks: the most vertices for the filters of a convolution and for the neurons of a Linear layer:
    consecutive ones are one vertex if there are more of them. None for no limit, or {layer name: the most}. In the fine grain,
    blocks of the filters of the layer in front divide the channels. The contracted hypergraph is as exact as the full one, and
    has fewer partitions. Each neuron of a SparseLinear is a vertex: what it needs differs from what its neighbours need.
    seconds: {layer name: the time of its share of a step}, of any layers, for the weights of the vertices; None for operations.
    with_input: whether vertices own the minibatch and send it: one vertex, or in the fine grain one for each channel. Else it
    is free, as each rank reads what it needs. with_loss: whether the outputs travel to a vertex of the loss.
    Raises ValueError for a network that has no such hypergraph.
    """
    if grain not in GRAINS:
        raise ValueError(f"grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    if net.input_shape is None:
        raise ValueError("a network needs an input_shape so that its hypergraph can be made")
    walk = _Walk(grain == "fine", {Conv2d: filter_blocks, Linear: neuron_blocks, SparseLinear: None}, seconds)
    shape, inputs = tuple(net.input_shape), np.zeros(0, np.int64)
    if with_input:
        inputs = walk.vertices(np.zeros(shape[-1] if grain == "fine" else 1, np.int64))
    owners = np.broadcast_to(inputs if with_input else FREE, shape[-1:])
    last = walk.through(net.layers, _Array("input", shape, owners, prod(shape[:-1])))
    if not walk.outputs:
        raise ValueError("the network has no layer with weights, so there is no work to divide")
    loss = None
    if with_loss:
        (loss,) = walk.vertices(np.zeros(1, np.int64))
        walk.needs(last, lambda array: _all_by_all(len(array.sources), loss + np.zeros(1, np.int64)))
    return walk.result(inputs, loss)


@dataclass(eq=False)
class _Array:
    """The activations between two layers.

    name: of the layer that owns them. shape: of a sample. owners: the vertex of each channel, or FREE. unpooled: the elements
    of a channel where a layer with weights made it. A Flatten turns each channel into several features, which follow one
    another: the owners stay those of the channels. users: see `_Walk.needs`.
    sources: the vertices that own channels, in ascending order. source_of_channel: the position in it of each channel's owner.
    """

    name: str
    shape: tuple
    owners: np.ndarray
    unpooled: int
    users: list = field(default_factory=list)

    def __post_init__(self):
        self.sources, self.source_of_channel = np.unique(self.owners, return_inverse=True)

    @property
    def owners_of_features(self):
        """The vertex of each index of the last dimension of `shape`."""
        return np.repeat(self.owners, self.shape[-1] // len(self.owners))

    @property
    def is_free(self):
        """Whether every rank has it."""
        return bool((self.owners == FREE).all())

    def after(self, shape):
        """What a layer makes of it that keeps each channel where it is. shape: of a sample of its output."""
        return _Array(self.name, shape, self.owners, self.unpooled)


class _Walk:
    """Goes through the layers, makes the vertices, and keeps for each array which vertices need it.

    fine: whether convolutions are divided into channels of filters. blocks: {type of layer: filter_blocks or neuron_blocks}.
    seconds: as for `of_network`.
    """

    def __init__(self, fine, blocks, seconds):
        self.fine, self.blocks, self.seconds = fine, blocks, seconds
        self.outputs, self.pairs = {}, {}
        self.weights, self.count = [], 0  # the weights of the vertices so far, a list of arrays; their number
        self.sent = []  # the arrays that somebody needs, and the partial sums, each a function that returns its _Nets

    def vertices(self, weights):
        """New vertices with these weights; returns their numbers."""
        self.weights.append(np.asarray(weights, np.float64))
        self.count += len(weights)
        return np.arange(self.count - len(weights), self.count)

    def needs(self, array, users):
        """Note that vertices need the channels of an array. users: a function of the array that returns two arrays of equal
        length, positions in array.sources and the vertices that need the channels of these sources."""
        if not array.users and not array.is_free:
            self.sent.append(lambda: _nets_of_array(array))
        array.users.append(users)

    def through(self, layers, array):
        """The output of layers, an _Array, for their input."""
        for layer in layers:
            kind = next((kind for kind in type(layer).__mro__ if kind in _RULES), None)
            if kind is None:
                raise ValueError(f"layer {layer.name} {layer!r}: a hypergraph has no rule for a {type(layer).__name__}")
            array = _RULES[kind](self, layer, array, layer.output_shape(array.shape))
        return array

    def with_weights(self, layer, array, shape):
        """A Linear or Conv2d: vertices for its outputs, and in the fine grain for the channels of its filters."""
        work = self.work(layer, shape)
        most = next(self.blocks[kind] for kind in type(layer).__mro__ if kind in self.blocks)
        column = _blocks(layer.outputs, most[layer.name] if isinstance(most, dict) else most)
        sizes, pixels = np.bincount(column), prod(shape[:-1])
        if self.fine and isinstance(layer, Conv2d):
            vertices = self.vertices(np.zeros(len(sizes)))
            row = np.arange(layer.inputs) if array.is_free else array.source_of_channel
            share = np.outer(np.bincount(row), sizes) / (layer.inputs * layer.outputs)
            table = self.vertices((work * share).ravel()).reshape(share.shape)
            self.pairs[layer.name] = row, column, table
            self.needs(array, lambda _: (np.repeat(np.arange(len(table)), table.shape[1]), table.ravel()))
            self.sent.append(lambda: _nets_of_sums(layer.name, vertices, table, sizes * pixels))
        elif isinstance(layer, SparseLinear):
            filled = layer.pattern.sum(axis=0)
            work = 2 * filled.sum() if self.seconds is None else work  # a multiplication and an addition for each weight
            vertices = self.vertices(work * filled / max(1, filled.sum()))
            feature, output = np.nonzero(layer.pattern)
            channel = feature // (layer.inputs // len(array.owners))
            self.needs(array, lambda array: (array.source_of_channel[channel], vertices[output]))
        else:
            vertices = self.vertices(work * sizes / layer.outputs)
            self.needs(array, lambda array: _all_by_all(len(array.sources), vertices))
        self.outputs[layer.name] = vertices[column]
        return _Array(layer.name, shape, vertices[column], pixels)

    def work(self, layer, shape):
        """The weight of all vertices of a layer. shape: of a sample of its output."""
        return flops(layer, shape) if self.seconds is None else self.seconds.get(layer.name, 0) * PICO

    def by_channel(self, layer, array, shape):
        """A layer that computes each channel from the same channel, at its owner, whose weight grows by the layer's time."""
        work = self.work(layer, shape)
        if work and not array.is_free:
            weights = np.concatenate(self.weights)
            np.add.at(weights, array.owners, work / len(array.owners))
            self.weights = [weights]
        return array.after(shape)

    def response_norm(self, layer, array, shape):
        """A LocalResponseNorm: the owner of a channel needs its neighbours, too."""
        channels = shape[-1]  # or features: several of each channel behind a Flatten
        near = [indices(layer.neighbours(slice(c, c + 1), channels)) for c in range(channels)]
        channel, owner = np.concatenate(near), np.repeat(array.owners_of_features, [len(some) for some in near])
        channel //= channels // len(array.owners)
        if not array.is_free:
            self.needs(array, lambda array: (array.source_of_channel[channel], owner))
        return self.by_channel(layer, array, shape)

    def residual(self, layer, array, shape):
        """A Residual: the channels of the shortcut travel to where those of the branch are."""
        array = array.after(array.shape)  # what stands around it gets the channels that it needs by itself
        branch, shortcut = (self.through(branch, array) for branch in layer.children)
        if branch.is_free and shortcut.is_free:
            return branch.after(shape)
        owners = _owned(layer, branch)
        channel = np.arange(shape[-1]) // (shape[-1] // len(shortcut.owners))
        if not shortcut.is_free:
            self.needs(shortcut, lambda shortcut: (shortcut.source_of_channel[channel], owners))
        return _Array(layer.name, shape, owners, prod(shape[:-1]))

    def concat(self, layer, array, shape):
        """A Concat: each channel stays where its branch has made it."""
        array = array.after(array.shape)
        ends = [self.through(branch, array) for branch in layer.children]
        if all(end.is_free for end in ends):
            return _Array(layer.name, shape, np.full(shape[-1], FREE), prod(shape[:-1]))
        owners = [_owned(layer, end) for end in ends]
        return _Array(layer.name, shape, np.concatenate(owners), prod(shape[:-1]))

    def result(self, inputs, loss):
        """The NetworkHypergraph of what has been noted."""
        sent = [nets() for nets in self.sent]
        counts, pins = (np.array([len(getattr(nets, name)) for nets in sent], int) for name in ("roots", "pins"))
        first = np.repeat(np.cumsum(counts) - counts, pins)

        def all_of(name):
            return np.concatenate([np.zeros(0, np.int64), *(getattr(nets, name) for nets in sent)])

        graph = from_pairs(
            np.rint(np.concatenate(self.weights)).astype(np.int64), all_of("costs"), all_of("numbers") + first, all_of("pins"),
            roots=all_of("roots"), reduces=np.repeat(np.array([nets.are_sums for nets in sent], bool), counts),
            groups=np.repeat(np.arange(len(sent)), counts), group_names=tuple(nets.name for nets in sent) or ("",),
        )  # fmt: skip
        return NetworkHypergraph(graph, self.outputs, self.pairs, inputs, loss, all_of("unpooled"))


_RULES = {
    Linear: _Walk.with_weights,
    Conv2d: _Walk.with_weights,
    Activation: _Walk.by_channel,
    Dropout: _Walk.by_channel,
    BatchNorm: _Walk.by_channel,
    Pool2d: _Walk.by_channel,
    Flatten: _Walk.by_channel,
    LocalResponseNorm: _Walk.response_norm,
    Residual: _Walk.residual,
    Concat: _Walk.concat,
}


class _Nets(NamedTuple):
    """The nets of one array, or of the partial sums of one layer: a group of a Hypergraph.

    numbers, pins: pins[i] is a vertex of the net numbers[i] of this group. unpooled: as for NetworkHypergraph. costs, roots: as
    for Hypergraph. are_sums: whether they reduce.
    """

    name: str
    numbers: np.ndarray
    pins: np.ndarray
    costs: np.ndarray
    unpooled: np.ndarray
    roots: np.ndarray
    are_sums: bool


def _nets_of_array(array):
    """The _Nets of the channels of an array, one for each vertex that owns some."""
    sources = array.sources
    found = [(np.arange(len(sources)), sources)] + [users(array) for users in array.users]
    numbers, pins = (np.concatenate(some) for some in zip(*found))
    channels, elements = np.bincount(array.source_of_channel), prod(array.shape) // len(array.owners)
    return _Nets(array.name, numbers, pins, channels * elements, channels * array.unpooled, sources, False)


def _nets_of_sums(name, vertices, table, costs):
    """The _Nets of the partial sums of a layer of the fine grain, one for each block of filters."""
    columns = np.arange(len(vertices))
    numbers = np.concatenate((columns, np.tile(columns, len(table))))
    return _Nets(f"{name} sums", numbers, np.concatenate((vertices, table.ravel())), costs, costs, vertices, True)


def _all_by_all(sources, vertices):
    """Each of the vertices needs the channels of each source."""
    return np.repeat(np.arange(sources), len(vertices)), np.tile(vertices, sources)


def _blocks(length, most):
    """The block of each of `length` outputs: consecutive blocks whose sizes differ by at most one, at most `most` of them."""
    return np.arange(length) * min(length, most or length) // length


def _owned(layer, array):
    """The owners of the features of the output of a branch. ValueError if that is the minibatch, but not of other branches."""
    if (array.owners == FREE).any():
        raise ValueError(f"layer {layer.name} {layer.description}: a branch without weights passes the minibatch on, which has "
                         "no owner, and another branch does not: put a layer with weights in front")  # fmt: skip
    return array.owners_of_features


def _assign(parts, vertices, owners, name):
    """Write the owners of the pieces of a layer to the parts of their vertices. ValueError if the pieces of one differ."""
    if vertices.shape != owners.shape:
        raise ValueError(f"owners: those of layer {name} are an array {owners.shape}, but the layer needs {vertices.shape}")
    parts[vertices] = owners
    if (parts[vertices] != owners).any():
        raise ValueError(f"owners: they divide a block of layer {name} that is one vertex: ask for more blocks")
