"""A convolution and the max-pooling behind it, a few images at a time.

What the convolution gives is the largest array of many networks, and nobody needs it once it is pooled: the pooling remembers
by itself which place under a window was the largest. So it is made and used up one block of images after the other and
never leaves the cache, and so is its gradient: less to move for one core, and no wait for memory that several cores share.
"""

from itertools import groupby

from nn.conv import Conv2d
from nn.device import is_cpu, xp
from nn.layer import Layer
from nn.pool import MaxPool2d
from nn.workspace import scratch

LARGE = 1 << 22  # bytes from which an array is not taken for one that stays in the cache


def pooled(layers):
    """The layers, each Conv2d and the MaxPool2d right behind it as one."""
    joined = []
    for layer in layers:
        if joined and type(layer) is MaxPool2d and type(joined[-1]) is Conv2d:
            layer = PooledConv2d(joined.pop(), layer)
        joined.append(layer)
    return joined


class PooledConv2d(Layer):
    """conv: a Conv2d. pool: a MaxPool2d. Both keep their names, and each what it needs in the context."""

    output_is_free = True
    fused = True

    def __init__(self, conv, pool):
        self.conv, self.pool, self.name, self.parameters = conv, pool, conv.name, conv.parameters

    @property
    def reported(self):
        """The convolution; the pooling is reported within its passes."""
        return self.conv

    def forward(self, x, context):
        shape = self._shape(x)
        context[self].in_blocks = self._pays(shape, x)
        if not context[self].in_blocks:
            return context.run(self.pool, "forward", self.conv.forward(x, context))
        context[self.conv].x = x
        y = self.pool.takes(shape, x.dtype, context)
        for images in self._blocks(x):
            part = scratch("convolved", self._shape(x[images]), x.dtype)
            weight, bias = self.conv.weight.value, self.conv.bias_value
            self.conv.algorithm_of(part.shape).forward(x[images], weight, bias, part, context.progress)
            context.begin_pass(self.pool, "forward")
            self.pool.forward_block(part, y[images], images, context)
            context.end_pass(self.pool, "forward", len(part) / len(x))
        return y

    def gradients(self, dy, context):
        if context[self].in_blocks:
            self._backward(dy, None, context)
        else:
            self.conv.gradients(context.run(self.pool, "input_gradient", dy), context)

    def input_gradient(self, dy, context):
        if not context[self].in_blocks:
            return self.conv.input_gradient(context.run(self.pool, "input_gradient", dy), context)
        dx = context.gradient_space(context[self.conv].x.shape, dy)
        for images, part in self._gradients_behind_convolution(dy, context):
            self.conv.algorithm_of(part.shape).input_gradient(part, self.conv.weight.value, dx[images], context.progress)
        return dx

    def backward(self, dy, context):
        if not context[self].in_blocks:
            return self.conv.backward(context.run(self.pool, "input_gradient", dy), context)
        dx = context.gradient_space(context[self.conv].x.shape, dy)
        self._backward(dy, dx, context)
        context.written(self)
        return dx

    def _backward(self, dy, dx, context):
        x, gradients, weight = context[self.conv].x, self.conv.gradient_arrays, self.conv.weight.value
        for gradient in gradients:
            gradient.fill(0)
        terms = [scratch(f"gradient term {i}", gradient.shape, gradient.dtype) for i, gradient in enumerate(gradients)]
        for images, part in self._gradients_behind_convolution(dy, context):
            towards = None if dx is None else dx[images]
            chosen = self.conv.algorithm_of(part.shape)
            chosen.backward(x[images], weight, part, *terms, towards, context.progress)
            for gradient, term in zip(gradients, terms):
                xp.add(gradient, term, out=gradient)

    def _gradients_behind_convolution(self, dy, context):
        """(images, gradient of what the convolution gave) of each block."""
        x = context[self.conv].x
        for images in self._blocks(x):
            part = scratch("convolved", self._shape(x[images]), x.dtype)
            context.begin_pass(self.pool, "input_gradient")
            self.pool.backward_block(dy[images], part, images, context)
            context.end_pass(self.pool, "input_gradient", len(part) / len(x))
            yield images, part

    def _shape(self, x):
        """Of what the convolution gives."""
        return (len(x), *self.conv.window.output(*x.shape[1:3]), self.conv.weight.block_shape[3])

    def _pays(self, shape, x):
        size, filters = shape[0] * shape[1] * shape[2] * shape[3], self.conv.weight.size
        large = size * x.itemsize >= LARGE and filters > 0
        return large and is_cpu() and self.conv.algorithm_of(shape).goes_block_by_block

    def _blocks(self, x):
        """Slices of images, those of the blocks in which the convolution works."""
        found = self.conv.algorithm_of(self._shape(x)).blocks(x, self._shape(x))
        return [images for images, _ in groupby(images for images, _ in found)]

    def __repr__(self):
        return f"{self.conv!r}, {self.pool!r}"
