"""The convolutional layer, alone and computed together with the max-pooling behind it."""

import math
from itertools import groupby
from typing import Any

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import add_bias
from gridgrad.nn.kernels.window import ROWS, Padding, Pixels, Window, along, image_output, make_window
from gridgrad.nn.kernels.workspace import column_sums, scratch
from gridgrad.nn.layer import Layer, Parameter
from gridgrad.nn.layers.linear import WeightedLayer


class Conv2d(WeightedLayer):
    """A convolution of images, y = x * w + b, for x of shape (n, H, W, inputs) and y of shape (n, P, Q, outputs).

    The operation is a correlation (`nn/kernels/convolution.py`). w is stored as (kh, kw, inputs, outputs); `state_dict`
    transposes it to PyTorch's (outputs, inputs, kh, kw). Initial weights and biases are uniform in
    [-1/sqrt(inputs kh kw), 1/sqrt(inputs kh kw)), as in PyTorch. Sizes out of range raise ValueError.

    Parameters
    ----------
    inputs, outputs : int
        The numbers of channels.
    kernel, stride : int or (rows, columns)
        The size of the kernel, and how far it moves from one output to the next, in pixels.
    padding : int, (rows, columns) or ((top, bottom), (left, right))
        The pixels of zeros on each side of an image.
    bias : bool
        Whether there is a b.

    Examples
    --------
    >>> from gridgrad.nn import Conv2d
    >>> Conv2d(3, 16, 5, stride=2, padding=2).output_shape((32, 32, 3))
    (16, 16, 16)
    """

    takes_images = True
    kind = "conv"

    def __init__(
        self, inputs: int, outputs: int, kernel: Pixels, stride: Pixels = 1, padding: Padding = 0, bias: bool = True
    ) -> None:
        inputs, outputs = whole_number(inputs, "Conv2d: inputs"), whole_number(outputs, "Conv2d: outputs")
        self.inputs, self.outputs = inputs, outputs
        self.window = make_window(kernel, stride, padding, self)
        kh, kw = self.window.kernel
        bound = 1 / math.sqrt(inputs * kh * kw)
        super().__init__(Parameter("weight", (kh, kw, inputs, outputs), bound, torch_axes=(3, 2, 0, 1)), bias)

    def forward(self, x: Array, context: Context) -> Array:
        y = self.begin_forward(x, context)
        self.compute(y, ROWS, slice(0, y.shape[ROWS]), context)
        return y

    def begin_forward(self, x: Array, context: Context) -> Array:
        """Store x for the backward pass; returns the uninitialised array for the output, which `compute` then fills."""
        kept, shape = context[self], self.shape_of_output(x)
        kept.x = x
        return kept.workspace("y", shape, self.weight.value.dtype)

    def shape_of_output(self, x: Array) -> tuple[int, ...]:
        """The shape of the output for the input x, (n, P, Q, outputs held here). Raises ValueError if x holds no images."""
        if x.ndim != 4:
            raise ValueError(f"layer {self.name} {self!r} takes (n, height, width, channels) but gets {x.shape}")
        return (len(x), *self.window.output(*x.shape[1:3]), self.weight.value.shape[3])

    def compute(self, y: Array, dim: int, outputs: slice, context: Context) -> None:
        """Write the slice `outputs` of the output along `dim`, ROWS or COLUMNS, into y, from what it looks at of the input."""
        part = y[along(dim, outputs)]
        if not self.weight.value.size:  # no channels of the input here
            part.fill(0)
        elif part.size:
            whole = context[self].x
            length = whole.shape[dim]
            x = whole[along(dim, self.window.input_part(dim, outputs, length))]
            window = self.window.of_part(dim, outputs, length)
            self.algorithm_of(part.shape, window).forward(x, self.weight.value, self.bias_value, part, context.progress)

    def gradients(self, dy: Array, context: Context) -> None:
        self._backward(dy, None, context)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        dx = context.gradient_space(context[self].x.shape, dy)
        if dy.size and dx.size:
            self.algorithm_of(dy.shape).input_gradient(dy, self.weight.value, dx, context.progress)
        else:
            dx.fill(0)
        return dx

    def backward(self, dy: Array, context: Context) -> Array:
        """Both halves at once, because they share the unrolled input."""
        dx = context.gradient_space(context[self].x.shape, dy)
        self._backward(dy, dx, context)
        context.written(self)
        return dx

    def _backward(self, dy, dx, context):
        """Write the gradients of the kernel and the bias and, unless dx is None, that of the input."""
        dw, db = self.weight.grad, self.bias_gradient
        if dy.size and dw.size:
            self.algorithm_of(dy.shape).backward(context[self].x, self.weight.value, dy, dw, db, dx, context.progress)
            return
        for gradient in (dw, db, dx):
            if gradient is not None:
                gradient.fill(0)

    def algorithm_of(self, shape: tuple[int, ...], window: Window | None = None) -> Any:
        """What computes outputs of this shape, and what follows backward from gradients of it. window: that of a part."""
        w = self.weight.value
        images, rows, columns, _ = shape
        return algorithm(window or self.window, w.shape[2], w.shape[3], rows, columns, w.dtype, images)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rows, columns = image_output(self.window, shape, self)
        if shape[2] != self.inputs:
            raise ValueError(f"layer {self.name} {self!r} takes {self.inputs} channels but gets {shape[2]}")
        return rows, columns, self.outputs

    def __repr__(self):
        held = self.weight.block_shape[2:]
        block = "" if held == (self.inputs, self.outputs) else f", block {held[0]}x{held[1]}"
        return f"Conv2d({self.inputs}, {self.outputs}, {self.window}{block})"


class PooledConv2d(Layer):
    """A Conv2d and the MaxPool2d behind it, which keep their names and entries in the context."""

    # The output of the convolution is the largest array of many networks, and nobody needs it after the pooling, which stores
    # which pixel of each window had the maximum. In blocks of images it and its gradient never leave the cache.

    output_may_be_overwritten = True
    overwrites_gradient = False

    def __init__(self, conv, pool):
        self.conv, self.pool, self.name, self.parameters = conv, pool, conv.name, conv.parameters
        self.observed_as = conv  # the passes of the pooling are reported as nested in those of the convolution

    def forward(self, x, context):
        shape = self.conv.shape_of_output(x)
        context[self].in_blocks = self._blocks_pay(shape, x)
        if not context[self].in_blocks:
            return context.run(self.pool, "forward", self.conv.forward(x, context))
        context[self.conv].x = x
        y = self.pool.begin_forward(shape, x.dtype, context)
        chosen, weight, bias = self.conv.algorithm_of(shape), self.conv.weight.value, self.conv.bias_value
        for images, part in self._blocks(x, shape):
            chosen.forward(x[images], weight, bias[:0], part, context.progress)
            context.begin_pass(self.pool, "forward")
            self.pool.forward_block(part, y[images], images, context)
            add_bias(y[images], bias)  # gives the same numbers as before the pooling, with fewer additions
            context.end_pass(self.pool, "forward")
        return y

    def gradients(self, dy, context):
        self._backward("gradients", dy, context)

    def input_gradient(self, dy, context):
        return self._backward("input_gradient", dy, context)

    def backward(self, dy, context):
        return self._backward("backward", dy, context)

    def _backward(self, phase, dy, context):
        """Both halves, or the one that `phase` names."""
        if not context[self].in_blocks:
            return getattr(self.conv, phase)(context.run(self.pool, "input_gradient", dy), context)
        x, weight, dw, db = (context[self.conv].x, self.conv.weight.value, self.conv.weight.grad, self.conv.bias_gradient)
        shape = self.conv.shape_of_output(x)
        chosen, dx = self.conv.algorithm_of(shape), None if phase == "gradients" else context.gradient_space(x.shape, dy)
        if phase != "input_gradient":
            if db.size:
                column_sums(dy.reshape(-1, db.size), db)
            partial_sum = scratch("partial gradient", dw.shape, dw.dtype)
            dw.fill(0)
        for images, part in self._blocks(x, shape):
            context.begin_pass(self.pool, "input_gradient")
            self.pool.backward_block(dy[images], part, images, context)
            context.end_pass(self.pool, "input_gradient")
            dx_block = None if dx is None else dx[images]
            if phase == "input_gradient":
                chosen.input_gradient(part, weight, dx_block, context.progress)
                continue
            chosen.backward(x[images], weight, part, partial_sum, db[:0], dx_block, context.progress)
            xp.add(dw, partial_sum, out=dw)
        if phase == "backward":
            context.written(self)
        return dx

    def _blocks_pay(self, shape, x):
        """Whether working in blocks is faster: not if the convolution's output, of this shape, stays in the cache."""
        size, filters = shape[0] * shape[1] * shape[2] * shape[3], self.conv.weight.size
        large = size * x.itemsize >= kernels().fused_bytes and filters > 0
        return large and xp.is_cpu and self.conv.algorithm_of(shape).goes_block_by_block

    def _blocks(self, x, shape):
        """Yield (slice of images, uninitialised array for the convolution of them) for each block. shape: of the whole."""
        blocks = self.conv.algorithm_of(shape).blocks(x, shape)
        for images, _ in groupby(images for images, _ in blocks):  # one image may be cut into several blocks
            yield images, scratch("convolved", (images.stop - images.start, *shape[1:]), x.dtype)

    def __repr__(self):
        return f"{self.conv!r}, {self.pool!r}"
