"""The convolutional layer."""

import math
from typing import Any

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.window import ROWS, Padding, Pixels, Window, along, image_output, make_window
from gridgrad.nn.layer import Parameter
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
    kernel : int or (rows, columns)
        The size of the kernel, in pixels.
    stride : int or (rows, columns)
        How far the kernel moves from one output to the next, in pixels.
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
