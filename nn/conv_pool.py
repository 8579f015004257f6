"""A convolution and the max-pooling behind it, a few images at a time.

What the convolution gives is the largest array of many networks, and nobody needs it once it is pooled: the pooling remembers
by itself which place under a window was the largest. So it is made and used up one block of images after the other and
never leaves the cache, and so is its gradient: less to move for one core, and no wait for memory that several cores share.
"""

from itertools import groupby

from nn.conv import Conv2d
from nn.convolution import Patches
from nn.device import is_cpu, xp
from nn.layer import Layer
from nn.pool import MaxPool2d
from nn.workspace import gradient_space, scratch

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
    """conv: a Conv2d. pool: a MaxPool2d. Both keep their names and what they remember."""

    output_is_free = True

    def __init__(self, conv, pool):
        self.conv, self.pool, self.name, self.parameters = conv, pool, conv.name, conv.parameters

    def forward(self, x, training=False):
        shape = self._shape(x)
        self.in_blocks = self._pays(shape, x)
        if not self.in_blocks:
            return self.pool.forward(self.conv.forward(x, training), training)
        self.conv.x = x
        y = self.pool.takes(shape, x.dtype, training)
        for images in self._blocks(x):
            part = scratch("convolved", self._shape(x[images]), x.dtype)
            self.conv.algorithm_of(part.shape).forward(x[images], self.conv.weight.value, self.conv.bias_value, part)
            self.pool.forward_block(part, y[images], images)
        return y

    def gradients(self, dy):
        if self.in_blocks:
            self._backward(dy, None)
        else:
            self.conv.gradients(self.pool.input_gradient(dy))

    def input_gradient(self, dy):
        return self.conv.input_gradient(self.pool.input_gradient(dy))

    def backward(self, dy):
        if not self.in_blocks:
            return self.conv.backward(self.pool.input_gradient(dy))
        dx = gradient_space(self.conv.x.shape, dy)
        self._backward(dy, dx)
        self.conv.written()
        return dx

    def _backward(self, dy, dx):
        x, gradients = self.conv.x, self.conv.gradient_arrays
        for gradient in gradients:
            gradient.fill(0)
        terms = [scratch(f"gradient term {i}", gradient.shape, gradient.dtype) for i, gradient in enumerate(gradients)]
        for images in self._blocks(x):
            part = scratch("convolved", self._shape(x[images]), x.dtype)
            self.pool.backward_block(dy[images], part, images)
            towards = None if dx is None else dx[images]
            self.conv.algorithm_of(part.shape).backward(x[images], self.conv.weight.value, part, *terms, towards)
            for gradient, term in zip(gradients, terms):
                xp.add(gradient, term, out=gradient)

    def _shape(self, x):
        """Of what the convolution gives."""
        return (len(x), *self.conv.window.output(*x.shape[1:3]), self.conv.weight.block_shape[3])

    def _pays(self, shape, x):
        size, filters = shape[0] * shape[1] * shape[2] * shape[3], self.conv.weight.size
        large = size * x.itemsize >= LARGE and filters > 0
        return large and is_cpu() and isinstance(self.conv.algorithm_of(shape), Patches)

    def _blocks(self, x):
        """Slices of images, those of the blocks in which the convolution works."""
        found = self.conv.algorithm_of(self._shape(x)).blocks(x, self._shape(x))
        return [images for images, _ in groupby(images for images, _ in found)]

    def __repr__(self):
        return f"{self.conv!r}, {self.pool!r}"
