"""The layer of the fine grain: the channels of filters that one rank multiplies, whose sums make partial feature maps."""

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.layer import Block, Layer, Parameter
from gridgrad.parallel.placement.moves import place_of
from gridgrad.parallel.placement.partition import EMPTY, indices, positions
from gridgrad.parallel.placement.placements import C

MOST_PRODUCTS = 8  # into which the pairs of a layer at one rank are divided


class Pairs(Parameter):
    """A weight (.., inputs, outputs) as an array (.., pairs of an input and an output), of which ranks may hold any pairs.

    weight: the Parameter of the serial layer.
    """

    def __init__(self, weight):
        *kernel, inputs, outputs = weight.shape
        super().__init__(weight.name, (*kernel, inputs * outputs), weight.bound, weight.torch_axes)
        self.weight = weight

    @property
    def stored_shape(self):
        return self.weight.shape

    def initialise(self, seed, stream):
        """As the serial weight. It is drawn for one input at a time, because random numbers are drawn in whole rows."""
        outputs = self.weight.shape[-1]
        rows, columns = np.divmod(indices(self.index[-1]), outputs)
        for where in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows)) + 1) if len(rows) else ():
            row = slice(int(rows[where[0]]), int(rows[where[0]]) + 1)
            drawn = self.weight.placed(Block((*self.index[:-1], row, slice(0, outputs))))
            drawn.value = xp.empty(drawn.block_shape, self.value.dtype)
            drawn.initialise(seed, stream)
            self.value[..., where[0] : where[-1] + 1] = drawn.value[..., 0, to_device(columns[where])]


class Product:
    """A rectangle of inputs and outputs that a rank multiplies at once; pairs in it that belong to other ranks are zeros.

    layer: the serial layer. inputs, outputs: of the rectangle, as index arrays of the whole layer. needed, made: the inputs
    that the rank receives and the outputs to which it contributes. held: the pairs of the rank, increasing flat indices.
    """

    def __init__(self, layer, inputs, outputs, needed, made, held):
        kernel = [slice(0, n) for n in layer.weight.shape[:-2]]
        self.block = layer.placed(weight=Block((*kernel, inputs, outputs)), bias=Block((EMPTY,)))
        self.rows, self.columns = (place_of(C, positions(part, whole)) for part, whole in ((inputs, needed), (outputs, made)))
        self.is_whole = (len(inputs), len(outputs)) == (len(needed), len(made))
        rows, columns = np.divmod(held, layer.outputs)
        inside = np.flatnonzero(np.isin(rows, inputs) & np.isin(columns, outputs))
        self.held = to_device(inside)
        self.at = ..., to_device(np.searchsorted(inputs, rows[inside])), to_device(np.searchsorted(outputs, columns[inside]))

    def forward(self, x, pairs, context):
        """The outputs of the rectangle for all inputs of the rank. pairs: the values of its pairs."""
        kept = context[self.block]
        kept.kernel = kept.workspace("kernel", self.block.weight.block_shape, pairs.dtype)
        kept.kernel.fill(0)
        kept.kernel[self.at] = pairs[..., self.held]
        return self.attached(context).forward(self._part(x, self.rows, "x", context), context)

    def gradients(self, dy, gradient, context):
        """Write the gradients of the pairs of the rectangle to `gradient`. dy: of all outputs of the rank."""
        block = self.attached(context)
        block.gradients(self._part(dy, self.columns, "dy", context), context)
        gradient[..., self.held] = block.weight.grad[self.at]

    def input_gradient(self, dy, context):
        """The gradient of the inputs of the rectangle. dy: of all outputs of the rank."""
        return self.attached(context).input_gradient(self._part(dy, self.columns, "dy", context), context)

    def attached(self, context):
        """The block with the weight that a context keeps."""
        kept, (weight, bias) = context[self.block], (self.block.weight, self.block.bias)
        weight.value = kept.kernel
        weight.grad = kept.workspace("gradient", weight.block_shape, weight.value.dtype)
        bias.value = bias.grad = weight.value.reshape(-1)[:0]
        return self.block

    def _part(self, array, where, name, context):
        """The channels of an array that the rectangle has, as a contiguous array."""
        part = array[where]
        if self.is_whole or part.flags.c_contiguous:
            return part
        packed = context[self.block].workspace(f"part of {name}", part.shape, part.dtype)
        xp.copyto(packed, part)
        return packed


class PairedLayer(Layer):
    """The pairs of input channels and filters of a Linear or Conv2d that one rank multiplies: its output are partial sums.

    pairs: the Pairs. products: the Products, which share out the outputs that the rank makes. needed, made: how many channels
    the input and the output have. after: the shape of an output sample of the serial layer.
    Input (n, .., needed), output (n, .., made).
    """

    output_may_be_overwritten = True
    overwrites_gradient = False

    def __init__(self, pairs, products, needed, made, after):
        self.pairs, self.products, self.needed, self.made, self.after = pairs, products, needed, made, after
        self.parameters = (pairs,)

    def give_name(self, name):
        self.name = name
        for product in self.products:
            product.block.name = name

    def forward(self, x, context):
        context[self].shape = x.shape
        results = ((product, product.forward(x, self.pairs.value, context)) for product in self.products)
        if self.is_one:
            return next(results)[1]
        y = context[self].workspace("y", (len(x), *self.after[:-1], self.made), x.dtype)
        for product, result in results:
            y[product.columns] = result
        return y

    @property
    def is_one(self):
        """Whether there is one product, of all that the rank has."""
        return len(self.products) == 1 and self.products[0].is_whole

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

    def __repr__(self):
        return f"PairedLayer({self.pairs.size} of {self.pairs.weight.size} weights in {len(self.products)} products)"


def rectangles(owned):
    """Divide the pairs that a rank owns into few products: a list of (rows, columns), increasing index arrays.

    owned: booleans (inputs, outputs). Outputs with the same inputs are one product. If that makes more than MOST_PRODUCTS,
    those two are joined again and again for which the fewest zeros have to be multiplied.
    """
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
