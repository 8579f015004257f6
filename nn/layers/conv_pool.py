"""A convolution fused with the max-pooling that follows it, computed for one block of images at a time.

The output of the convolution is the largest array of many networks, and nobody needs it after the pooling, which stores
which pixel of each window had the maximum. In blocks it and its gradient never leave the cache, which saves memory traffic.
"""

from itertools import groupby

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import add_bias
from gridgrad.nn.kernels.workspace import column_sums, scratch
from gridgrad.nn.layer import Layer


class PooledConv2d(Layer):
    """A Conv2d and the MaxPool2d behind it, which keep their names and entries in the context. They run one after the other if
    the output of the convolution stays in the cache, or if its algorithm does not work in blocks.
    """

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
        if context[self].in_blocks:
            self._backward(dy, None, context)
        else:
            self.conv.gradients(context.run(self.pool, "input_gradient", dy), context)

    def input_gradient(self, dy, context):
        if not context[self].in_blocks:
            return self.conv.input_gradient(context.run(self.pool, "input_gradient", dy), context)
        x, weight = context[self.conv].x, self.conv.weight.value
        dx, chosen = context.gradient_space(x.shape, dy), self.conv.algorithm_of(self.conv.shape_of_output(x))
        for images, part in self._convolution_output_gradients(dy, context):
            chosen.input_gradient(part, weight, dx[images], context.progress)
        return dx

    def backward(self, dy, context):
        if not context[self].in_blocks:
            return self.conv.backward(context.run(self.pool, "input_gradient", dy), context)
        dx = context.gradient_space(context[self.conv].x.shape, dy)
        self._backward(dy, dx, context)
        context.written(self)
        return dx

    def _backward(self, dy, dx, context):
        """Write the gradients of the kernel and the bias and, unless dx is None, that of the input, block by block."""
        x, weight, dw, db = (context[self.conv].x, self.conv.weight.value, self.conv.weight.grad, self.conv.bias_gradient)
        chosen = self.conv.algorithm_of(self.conv.shape_of_output(x))
        if db.size:
            column_sums(dy.reshape(-1, db.size), db)
        partial_sum = scratch("partial gradient", dw.shape, dw.dtype)
        dw.fill(0)
        for images, part in self._convolution_output_gradients(dy, context):
            dx_block = None if dx is None else dx[images]
            chosen.backward(x[images], weight, part, partial_sum, db[:0], dx_block, context.progress)
            xp.add(dw, partial_sum, out=dw)

    def _convolution_output_gradients(self, dy, context):
        """Yield (slice of images, gradient of the convolution's output for them) for each block."""
        x = context[self.conv].x
        for images, part in self._blocks(x, self.conv.shape_of_output(x)):
            context.begin_pass(self.pool, "input_gradient")
            self.pool.backward_block(dy[images], part, images, context)
            context.end_pass(self.pool, "input_gradient")
            yield images, part

    def _blocks_pay(self, shape, x):
        """Whether working in blocks is faster. shape: of the convolution's output for the input x."""
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
