"""The hypergraph of a network of layers in sequence, residual connections and branches (after Eserol 2019, chapter 3).

A vertex is a piece of work: in the *coarse grain* a filter of a convolution or a neuron; in the *fine grain* a convolution is
divided into one vertex for each channel of a filter, and one that adds the results of a filter's channels. A net is a channel
of an array that travels to the vertices that need it. So the volume of a partition is exactly what the plan "hypergraph" sends
forward for a sample; backward the same travels back:

- A layer with weights needs all channels of its input, or those for which it has weights that are not zero.
- All layers between are computed where a channel is, before it is sent: so pooled maps travel.
- The output of a residual connection is where the output of its branch is, and the channels of the shortcut travel there. The
  branches of a layer that read the same array get a channel of it once, however many of them need it.
- A filter of a fine grain whose channels are apart is added where the filter is: its partial sums travel before any pooling.
- The outputs of the network travel to where the loss is computed, a vertex without work.
- The traffic of a LocalResponseNorm is estimated: each owner of a channel is taken to need the neighbouring ones. That is exact
  if each rank has consecutive channels; else the plan first makes them so, and behind a Flatten sends the nearest features.
"""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from gridgrad.nn.network_summary import flops
from gridgrad.parallel.partitioning.hypergraph import Hypergraph
from gridgrad.parallel.placement.layer_kinds import kind_of
from gridgrad.parallel.plans.hypergraph import Owners

GRAINS = "coarse", "fine"
PICO = 10**12  # a given time becomes a weight in whole picoseconds
FREE = -1  # the owner of a channel that every rank has: of the minibatch


@dataclass(frozen=True, eq=False)
class NetworkHypergraph:
    """The Hypergraph of a network, and what its vertices are."""

    hypergraph: Hypergraph  # nets cost elements of a sample; weights are operations of a sample's forward pass, or picoseconds
    outputs: dict  # {layer name: the vertex of each output}
    pairs: dict  # of the fine grain, {layer name: (rows, columns, table)}: table[rows[c], columns[f]] multiplies c and filter f
    inputs: np.ndarray  # the vertices that own the minibatch, empty unless they were asked for
    loss: int | None  # the vertex of the loss
    unpooled: np.ndarray  # (E,): what a net would cost if its array were sent before pooling, as its layer made it

    def owners(self, parts, ranks):
        """The Owners for a part, from 0 to ranks - 1, of each vertex. ValueError if `parts` is not that."""
        parts = self.hypergraph.check_parts(parts, ranks)
        outputs = {name: parts[vertices] for name, vertices in self.outputs.items()}
        pairs = {name: parts[table][rows[:, None], columns] for name, (rows, columns, table) in self.pairs.items()}
        at_most_outputs = np.bincount(outputs[list(outputs)[-1]], minlength=ranks).argmax()
        return Owners(ranks, outputs, pairs, int(at_most_outputs if self.loss is None else parts[self.loss]))

    def parts(self, owners):
        """The part of each vertex, int64 (V,); the minibatch is where most of those who need it are. ValueError for Owners of
        another network, or that divide a block of filters, neurons or channels that is one vertex here."""
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
    """The NetworkHypergraph of a Sequential with an `input_shape`, which is not allocated. ValueError if it has none."""
    # grain: in the fine one convolutions are divided into channels of filters; Linear layers never are.
    # filter_blocks, neuron_blocks: the most vertices for the filters of a convolution and for the neurons of a Linear layer, or
    # {layer name: the most}, or None: consecutive ones are one vertex if there are more. In the fine grain, blocks of the
    # filters of the layer in front divide the channels. seconds: {layer name: time of its share of a step}, of any layers, for
    # the weights; None for operations. with_input: whether vertices own and send the minibatch: one, or in the fine grain one
    # for each channel. Else each rank reads what it needs. with_loss: whether the outputs travel to a vertex of the loss.
    if net.input_shape is None:
        raise ValueError("a network needs an input_shape so that its hypergraph can be made")
    walk = _Walk(grain == "fine", filter_blocks, neuron_blocks, seconds)
    shape, inputs = tuple(net.input_shape), np.zeros(0, np.int64)
    if with_input:
        inputs = walk.vertices(np.zeros(shape[-1] if grain == "fine" else 1, np.int64))
    owners = np.broadcast_to(inputs if with_input else FREE, shape[-1:])
    last = walk.through(net.layers, _Array("input", shape, owners, prod(shape[:-1])))
    if not walk.outputs:
        raise ValueError("the network has no layer with weights, so there is no work to divide")
    loss = None
    if with_loss:
        (loss,) = vertex = walk.vertices(np.zeros(1))
        walk.all_need_all(last, vertex)
    return walk.result(inputs, loss)


OBJECTIVES = {"volume": "volume", "messages": "messages", "largest": "most_moved"}  # what to minimise: the measure that says it


@dataclass(frozen=True)
class Measures:
    """What a partition costs. Volumes are elements of one sample in a forward pass; backward as many travel back. Messages are
    those of a minibatch."""

    work: np.ndarray  # (ranks,), in shares of the mean, or of the rank's share by speed: the largest one is max/avg
    volume: int  # what travels to all ranks together
    largest_array: int  # the most of one array
    messages: int  # pairs of ranks with something to send, summed over the arrays
    most_moved: int  # the most that a rank sends and receives: what it sends in a training step, forward and backward together
    star: int | None  # what `star` returns; None for a fine grain


def measure(model, parts, ranks, speeds=None):
    """The Measures of a partition of a NetworkHypergraph. speeds: see `limits_of`."""
    graph = model.hypergraph
    traffic = graph.traffic(parts, ranks)
    speeds = np.ones(ranks) if speeds is None else np.asarray(speeds, float)
    work = graph.part_weights(parts, ranks) / (max(1, graph.weights.sum()) * speeds / speeds.sum())
    moved = traffic.sum(axis=(0, 2)) + traffic.sum(axis=(0, 1))
    return Measures(
        work, int(traffic.sum()), int(traffic.sum(axis=(1, 2)).max()), int(np.count_nonzero(traffic)), int(moved.max()),
        None if model.pairs else star(model, parts, ranks),
    )  # fmt: skip


def star(model, parts, ranks):
    """The elements that travel if each divided array is gathered, as its layer makes it, at the best rank for that, and then
    sent whole, after pooling, to each rank that needs any of it. Of a coarse grain."""
    graph, total = model.hypergraph, 0
    needed = graph.pins != graph.roots[graph.net_of_pin]
    for group in range(len(graph.group_names)):
        nets = np.flatnonzero(graph.groups == group)
        users = np.unique(parts[graph.pins[needed & (graph.groups[graph.net_of_pin] == group)]])
        gathered = np.bincount(parts[graph.roots[nets]], model.unpooled[nets], ranks)
        others = np.full(ranks, len(users))  # for each possible root: the ranks that it sends the array to
        others[users] -= 1
        total += (gathered.sum() - gathered + graph.costs[nets].sum() * others).min()
    return int(total)


# ----- the walk through a network


@dataclass(eq=False)
class _Array:
    """The activations between two layers, or partial sums. A Flatten turns each channel into consecutive features; its owner
    stays."""

    name: str  # of the layer that owns them
    shape: tuple  # of a sample
    owners: np.ndarray  # the vertex of each channel, or FREE
    unpooled: int  # the elements of a channel where a layer with weights made it
    are_sums: bool = False
    users: list = field(default_factory=list)  # [(positions in `sources`, as many vertices that need their channels)]

    def __post_init__(self):
        # The vertices that own channels, in ascending order, and the position of each channel's owner among them.
        self.sources, self.source_of_channel = np.unique(self.owners, return_inverse=True)

    @property
    def owners_of_features(self):
        """The vertex of each index of the last dimension of `shape`."""
        return np.repeat(self.owners, self.shape[-1] // len(self.owners))

    @property
    def is_free(self):
        """Whether every rank has it."""
        return bool((self.owners == FREE).all())

    def owned(self, layer):
        """The vertex of each feature, for a layer with branches. ValueError if this is the minibatch, which has no owner."""
        if (self.owners == FREE).any():
            raise ValueError(f"layer {layer.name} {layer.description}: a branch without weights passes the minibatch on, which "
                             "has no owner, and another branch does not: put a layer with weights in front")  # fmt: skip
        return self.owners_of_features

    def after(self, shape):
        """What a layer makes of it that keeps each channel where it is. shape: of a sample of its output."""
        return _Array(self.name, shape, self.owners, self.unpooled)


class _Walk:
    """Goes through the layers, makes the vertices, and keeps for each array which vertices need it. fine: the grain."""

    def __init__(self, fine, filter_blocks, neuron_blocks, seconds):
        self.fine, self.filter_blocks, self.neuron_blocks, self.seconds = fine, filter_blocks, neuron_blocks, seconds
        self.outputs, self.pairs = {}, {}
        self.weights, self.count = [], 0  # the weights of the vertices so far, a list of arrays; their number
        self.sent = []  # the arrays that somebody needs

    def vertices(self, weights):
        """New vertices with these weights; returns their numbers."""
        self.weights.append(np.asarray(weights, np.float64))
        self.count += len(weights)
        return np.arange(self.count - len(weights), self.count)

    def needs(self, array, positions, vertices):
        """Note that each of these vertices needs the channels of the source at a position in `array.sources`."""
        if array.is_free:
            return
        if not array.users:
            self.sent.append(array)
        array.users.append((positions, vertices))

    def all_need_all(self, array, vertices):
        """Note that each of these vertices needs all channels."""
        sources = np.arange(len(array.sources))
        self.needs(array, np.repeat(sources, len(vertices)), np.tile(vertices, len(sources)))

    def through(self, layers, array):
        """The output of layers, an _Array, for their input."""
        for layer in layers:
            array = kind_of(layer).channels(self, layer, array, layer.output_shape(array.shape))
        return array

    def with_weights(self, layer, array, shape, most):
        """The output of a layer whose outputs each need all inputs: blocks of them are vertices, at most `most`."""
        column = _blocks(layer, most)
        vertices = self.vertices(self.work(layer, shape) * np.bincount(column) / layer.outputs)
        self.all_need_all(array, vertices)
        return self.outputs_at(layer, shape, vertices[column])

    def with_pairs(self, layer, array, shape):
        """The output of a convolution of the fine grain: vertices for its filters, and for the channels of its filters."""
        column, work = _blocks(layer, self.filter_blocks), self.work(layer, shape)
        sizes = np.bincount(column)
        vertices = self.vertices(np.zeros(len(sizes)))
        row = np.arange(layer.inputs) if array.is_free else array.source_of_channel
        share = np.outer(np.bincount(row), sizes) / (layer.inputs * layer.outputs)
        table = self.vertices((work * share).ravel()).reshape(share.shape)
        self.pairs[layer.name] = row, column, table
        self.needs(array, np.repeat(np.arange(len(table)), table.shape[1]), table.ravel())
        sums = _Array(f"{layer.name} sums", shape, vertices[column], prod(shape[:-1]), are_sums=True)
        self.needs(sums, np.tile(np.arange(len(vertices)), len(table)), table.ravel())
        return self.outputs_at(layer, shape, vertices[column])

    def outputs_at(self, layer, shape, vertices):
        """The output of a layer with weights, which these vertices compute."""
        self.outputs[layer.name] = vertices
        return self.made_by(layer, shape, vertices)

    def made_by(self, layer, shape, owners):
        """What a layer makes at these owners of its channels."""
        return _Array(layer.name, shape, owners, prod(shape[:-1]))

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

    def result(self, inputs, loss):
        """The NetworkHypergraph of what has been noted: a net for each vertex that owns channels of an array."""
        joined = lambda arrays: np.concatenate([np.zeros(0, np.int64), *arrays])  # noqa: E731
        counts = np.array([len(array.sources) for array in self.sent], int)
        nets, pins = [], []  # net nets[i] has the vertex pins[i]; some are given several times
        for array, first in zip(self.sent, np.cumsum(counts) - counts):
            for positions, vertices in ((np.arange(len(array.sources)), array.sources), *array.users):
                nets.append(first + positions)
                pins.append(vertices)
        keys = np.sort(joined(nets) * self.count + joined(pins))
        nets, pins = np.divmod(keys[np.diff(keys, prepend=-1) > 0], self.count)
        channels = [np.bincount(array.source_of_channel) for array in self.sent]
        elements = [prod(array.shape) // len(array.owners) for array in self.sent]
        graph = Hypergraph(
            np.rint(np.concatenate(self.weights)).astype(np.int64), joined(map(np.multiply, channels, elements)),
            np.concatenate(([0], np.cumsum(np.bincount(nets, minlength=counts.sum())))), pins,
            joined(array.sources for array in self.sent), np.repeat(np.array([a.are_sums for a in self.sent], bool), counts),
            np.repeat(np.arange(len(counts)), counts), tuple(array.name for array in self.sent) or ("",),
        )  # fmt: skip
        unpooled = joined(number * array.unpooled for number, array in zip(channels, self.sent))
        return NetworkHypergraph(graph, self.outputs, self.pairs, inputs, loss, unpooled)


def _blocks(layer, most):
    """The block of each output: consecutive blocks whose sizes differ by at most one. most: see `of_network`."""
    most = most[layer.name] if isinstance(most, dict) else most
    return np.arange(layer.outputs) * min(layer.outputs, most or layer.outputs) // layer.outputs


def _assign(parts, vertices, owners, name):
    """Write the owners of the pieces of a layer to the parts of their vertices. ValueError if the pieces of one differ."""
    if vertices.shape != owners.shape:
        raise ValueError(f"owners: those of layer {name} are an array {owners.shape}, but the layer needs {vertices.shape}")
    parts[vertices] = owners
    if (parts[vertices] != owners).any():
        raise ValueError(f"owners: they divide a block of layer {name} that is one vertex: ask for more blocks")
