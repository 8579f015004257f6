"""The master/slave algorithm of Marques 2016 (Algorithms 4.1 and 4.2): the plan "marques".

The first rank along the axis, the master, holds all activations and all parameters; the others, its slaves, hold nothing
between two convolutions. For each convolution the master hands out the whole input, and to each rank its share of the kernels;
every rank computes the output maps of its kernels, and the slaves hand them in. All other layers run on the master alone.

| array                    | at the master         | while the ranks convolve                 |
|--------------------------|-----------------------|------------------------------------------|
| input                    | `AtMaster(N)`         | `Copies(N)`: whole, where needed         |
| kernels (a parameter)    | `AtMaster(-1)`        | `Shard(-1, shares)`                      |
| output                   | `AtMaster(N)`         | `Shard(C, shares)`                       |

Each change of placement is a Redistribute, and backward is its adjoint. Biases are not sent (equation 5.1 of the paper has
none): the master adds them. A rank without kernels, which may be the master, sends and receives nothing.
"""

from dataclasses import dataclass
from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.patches import add_bias
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Block, Layer
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.placement.moves import MOVES, Move, index_of
from gridgrad.parallel.placement.partition import EMPTY, Partition, Split, resized, size
from gridgrad.parallel.placement.placements import MASTER, AtMaster, C, Copies, N, PartialShard, Shard
from gridgrad.parallel.placement.plan import OUTPUTS, Plan, output_columns
from gridgrad.parallel.placement.redistribute import Redistribute


class MasterMove(Move):
    """The master sends or receives all that is sent, each part in a message of its own; a rank without a part gets none."""

    def __init__(self, group, source, target, here, samples):
        super().__init__(group, source, target, here, samples)
        hands_out, is_master = isinstance(source, AtMaster), group.rank == MASTER
        self.partition, self.dim = (self.incoming, target.dim) if hands_out else (self.outgoing, source.dim)  # of what is sent
        whole = resized(resized(here, source.dim, self.outgoing.length), target.dim, self.incoming.length)
        self.shapes = [resized(whole, self.dim, length) for length in self.partition.sizes]
        counts = [0, *map(prod, self.shapes[1:])]  # of the message between each rank and the master
        self.most, self.messages = sum(counts), [0] * group.size
        if hands_out and is_master:
            self.messages = counts
        elif not hands_out:
            self.messages[MASTER] = counts[group.rank]

    @property
    def buffer(self):
        return sum(self.messages), 0

    def exchange(self, outgoing, incoming, x, layer):
        """Send and receive {rank: array}, arrays of the kind of x."""
        nothing = x.reshape(-1)[:0]
        lists = [[some.get(rank, nothing) for rank in range(self.group.size)] for some in (outgoing, incoming)]
        self.group.start_point_to_point(*lists, layer, self.kind).wait()


class HandOut(MasterMove):
    """The master, which has the whole array, sends each rank its part of the target: the array itself, or a copy of a part."""

    kind = "hand out"

    def run(self, x, space, layer):
        if self.group.rank != MASTER:
            out = space("out", self.there, x.dtype)
            self.exchange({}, {MASTER: out}, x, layer)
            return out
        sent = {}
        for rank, part in enumerate(self.partition.parts):
            sent[rank] = x
            if size(part) < self.partition.length:
                sent[rank] = space(f"to {rank}", self.shapes[rank], x.dtype)
                sent[rank][...] = x[index_of(self.dim, part)]
        self.exchange(sent, {}, x, layer)
        return sent[MASTER]

    @property
    def held(self):
        if self.group.rank != MASTER:
            return prod(self.there)
        return sum(prod(shape) for shape in self.shapes if shape[self.dim] < self.partition.length)


class HandIn(MasterMove):
    """Each rank sends its part of the source to the master, which joins them, or adds them where they overlap."""

    kind = "hand in"

    def run(self, x, space, layer):
        out = space("out", self.there, x.dtype)
        if self.group.rank != MASTER:
            self.exchange({MASTER: x}, {}, x, layer)
            return out
        blocks = {rank: space(f"of {rank}", self.shapes[rank], x.dtype) for rank in range(1, self.group.size)}
        self.exchange({}, blocks, x, layer)
        if self.adds:
            out.fill(0)
        for rank, block in {MASTER: x, **blocks}.items():
            part = self.partition.part(rank)
            if not size(part):  # a rank without kernels has no samples either, so that its block does not fit
                continue
            index = index_of(self.dim, part)
            if self.adds:
                out[index] += block
            else:
                out[index] = block
        return out

    @property
    def held(self):
        return prod(self.there) + (self.most if self.group.rank == MASTER else 0)


MOVES.update({
    (AtMaster, Shard): HandOut, (AtMaster, Copies): HandOut, (Shard, AtMaster): HandIn, (PartialShard, AtMaster): HandIn,
})  # fmt: skip


class AddBias(Layer):
    """Adds a bias to the output of a layer, where a rank has both; with an empty bias it does nothing. bias: a Parameter."""

    output_may_be_overwritten = True
    passes_buffer = False

    def __init__(self, bias):
        self.bias, self.parameters = bias, (bias,)

    def has_own_output(self, before):
        return False

    def forward(self, x, context):
        if self.bias.size:
            add_bias(x, self.bias.value)
        return x

    def gradients(self, dy, context):
        if self.bias.size:
            column_sums(dy.reshape(-1, self.bias.size), self.bias.grad)

    def input_gradient(self, dy, context):
        return dy

    def work(self, workload):
        workload.both("add", prod(workload.shape))


@dataclass(frozen=True)
class EachWhole:
    """Like a Split, but every rank for which `working` is true holds the whole dimension, and the others nothing of it."""

    working: tuple

    def of_length(self, length):
        return Partition.of(length, tuple(slice(0, length) if works else EMPTY for works in self.working))


def with_weight(layer, weight, kept):
    """The layer with a weight that came in a message or was put together, and room for its gradient. kept: of a context."""
    layer.weight.value = weight
    layer.weight.grad = kept.workspace("gradient", weight.shape, weight.dtype)
    return layer


class HandedConv2d(Layer):
    """A convolution (n, H, W, inputs) -> (n, P, Q, this rank's kernels) without bias, `conv`, whose weight the Redistribute
    `kernels` brings from the master. All passes except `input_gradient` are collective."""

    kind = "conv"
    output_may_be_overwritten = True
    overwrites_gradient = False

    def __init__(self, weight, conv, kernels):
        self.weight, self.conv, self.kernels, self.parameters = weight, conv, kernels, (weight,)

    def give_name(self, name):
        self.name = self.conv.name = self.kernels.name = name

    def forward(self, x, context):
        context[self].weight = self.kernels.forward(self.weight.value, context)
        return self._conv(context).forward(x, context)

    def gradients(self, dy, context):
        self._conv(context).gradients(dy, context)
        self._hand_in(context)

    def input_gradient(self, dy, context):
        return self._conv(context).input_gradient(dy, context)

    def backward(self, dy, context):
        dx = self._conv(context).backward(dy, context)
        self._hand_in(context)
        context.written(self)
        return dx

    def _conv(self, context):
        return with_weight(self.conv, context[self].weight, context[self])

    def _hand_in(self, context):
        """Send the gradients of this rank's kernels to the master, where they become the gradient of the parameter."""
        xp.copyto(self.weight.grad, self.kernels.input_gradient(self.conv.weight.grad, context))

    def work(self, workload):
        held = workload.moved("forward", self.kernels, self.weight.block_shape)
        workload.add(self.conv)
        workload.keep(prod(held))  # the gradient of this rank's kernels
        workload.moved("backward", self.kernels, held, "gradients")

    def __repr__(self):
        return f"HandedConv2d({self.conv!r}, {self.kernels.group.size} ranks)"


class MasterAndSlaves(Plan):
    """All layers have it; along the other axes each rank is a master with its own slaves."""

    word, use = "marques", "get samples and parts of the weights from the first rank"
    weight, mixes, bounding_rank, axes = OUTPUTS, False, MASTER, (BATCH, MODEL)

    def samples(self, split):
        return AtMaster(N, Split.at_rank(split.ranks, MASTER))

    def place(self, placer, axis, layer):
        weight, bias = (placer.layout_of(p, {axis: placer.at_master(axis, p)}) for p in (layer.weight, layer.bias))
        block = layer.placed(weight=weight, bias=bias)
        if layer.kind != "conv":
            placer.append_block(block, layer)
            return True
        columns, after = output_columns(placer, axis, layer), layer.output_shape(placer.shape)
        group, rows, window = placer.grid.group(axis), placer.rows_along(axis), layer.window
        held, copies = placer.at[axis], Copies(N, EachWhole(tuple(n > 0 for n in columns.sizes)))
        whole = placer.at_master(axis, layer.weight)
        shares = whole if columns == whole.partition else Shard(OUTPUTS, columns)  # the master may have all kernels
        serial = Conv2d(layer.inputs, layer.outputs, window.kernel, window.stride, window.padding, bias=False)
        conv = serial.placed(weight=Block((*serial.weight.index[:-1], columns.part(group.rank))))
        kernels = Redistribute(group, whole, shares, layer.weight.shape)
        placer.append(Redistribute(group, held, copies, placer.shape, rows), layer.name)
        placer.append(HandedConv2d(block.weight, conv, kernels), layer.name)
        placer.append(Redistribute(group, Shard(C, columns), held, after, rows), layer.name)
        if layer.has_bias:
            placer.append(AddBias(block.bias), layer.name)
        return True
