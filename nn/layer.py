"""What every layer is: explicit forward and backward, parameters as views."""

from math import prod

import numpy as np

from nn.device import to_device, xp
from nn.random import uniform_block

DRAWN = 1 << 20  # initial values that are drawn at a time


class Parameter:
    """One block of a global parameter array; `value` and `grad` are views into the network's flat buffers.

    name: the name in `state_dict`, within its layer (PyTorch's: "weight", "bias").
    shape: the global shape.
    index: the block held, one slice (or index array) a dimension; the serial network holds all of it.
    bound: initial values are uniform in [-bound, bound), drawn by global index; without one all of them are `fill`.
    torch_axes: the permutation of axes that gives PyTorch's layout.
    layout: how the array is placed on a process grid; None in a serial network. See `parallel/placement/layout.py`.
    """

    layout = None

    def __init__(self, name, shape, bound=None, index=None, torch_axes=None, fill=0.0):
        self.name, self.shape, self.bound, self.fill = name, tuple(shape), bound, fill
        self.index = tuple(index or (slice(0, n) for n in shape))
        self.torch_axes = torch_axes or tuple(range(len(shape)))
        self.value = self.grad = None

    @property
    def block_shape(self):
        return tuple(i.stop - i.start if isinstance(i, slice) else len(i) for i in self.index)

    @property
    def size(self):
        return prod(self.block_shape)

    def initialise(self, seed, stream):
        """Draw this block of the initial values into `value`."""
        if self.bound is None:
            self.value.fill(self.fill)
            return
        # As a matrix whose columns are the last dimension; some rows at a time, which are drawn in double precision.
        numbers = np.arange(prod(self.shape[:-1])).reshape(self.shape[:-1])
        rows = numbers[self.index[:-1]].ravel()
        flat = self.value.reshape(len(rows), self.block_shape[-1])
        many = max(1, DRAWN // self.shape[-1])
        for start in range(0, len(rows), many):
            some = rows[start : start + many]
            block = uniform_block(seed, stream, self.shape[-1], some, self.index[-1], self.bound)
            flat[start : start + many] = to_device(block.astype(self.value.dtype))


class Buffer(Parameter):
    """A block of an array that belongs to the state but is not trained, such as a running mean; not in the flat buffers."""

    def allocate(self, dtype):
        self.value = xp.empty(self.block_shape, dtype)
        self.value.fill(self.fill)


class Layer:
    """A differentiable function of a batch.

    Arrays are batch first and features (channels) last. A layer keeps nothing of a minibatch in itself: what backward needs,
    and its workspaces, are in `context[self]`, see `nn/context.py`. `forward` may return a workspace that the next `forward`
    in the same context overwrites, or x itself or a view of it; backward follows a `forward` in a context of training.

    Backward is in two halves, in either order, so that a network skips the half that nobody needs and a schedule may do one
    of them later: `gradients` writes the parameters' gradients, `input_gradient` returns the gradient of the input and may
    overwrite `dy` if the layer itself has no parameters. `backward` does both; `fused` layers override it, because they
    share work between the halves or have communication to hide behind one. It tells the context when the gradients of the
    parameters are `written`: nobody writes them again after that.
    """

    name = ""  # position in the serial network, as in PyTorch's state_dict
    parameters = ()  # Parameters
    buffers = ()  # Buffers
    children = ()  # lists of layers, for those that hold others
    output_is_free = False  # whether backward does without the output of forward, so that the next layer may overwrite it
    in_place = False  # whether this layer may overwrite its input
    is_monotone = False  # an elementwise function that never decreases
    takes_largest = False  # a max-pooling
    takes_images = False  # it means something for images alone, (n, height, width, channels)
    kind = ""  # "linear" or "conv" where there are weights that may be split by their inputs or outputs
    fused = False  # whether `backward` does both halves at once

    def give_name(self, name):
        """Name the layer, and those that it holds."""
        self.name = name

    @property
    def reported(self):
        """The layer as which an observer is told of this one."""
        return self

    def forward(self, x, context):
        raise NotImplementedError

    def gradients(self, dy, context):
        """Write the gradients of this layer's parameters. (n, outputs) -> None."""

    def input_gradient(self, dy, context):
        raise NotImplementedError

    def backward(self, dy, context):
        """Both halves: write the parameters' gradients, return the gradient of the input."""
        if context.observer is None:  # as below, without the cost of `run`
            if self.parameters:
                self.gradients(dy, context)
            return self.input_gradient(dy, context)
        if self.parameters:
            context.run(self, "gradients", dy)
            context.written(self)
        return context.run(self, "input_gradient", dy)

    def output_shape(self, shape):
        """The shape of a sample that comes out where one of `shape` goes in; raises ValueError where it does not fit."""
        return shape

    def __repr__(self):
        return type(self).__name__
