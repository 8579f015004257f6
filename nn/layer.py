"""What every layer is: explicit forward and backward, parameters as views, workspaces allocated once."""

import numpy as np

from nn.random import uniform_block

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def aligned_empty(size, dtype):
    """An uninitialised 1-D array of `size` elements that starts on a cache line."""
    dtype = np.dtype(dtype)
    raw = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size * dtype.itemsize].view(dtype)


class Parameter:
    """One block of a global parameter array; `value` and `grad` are views into the network's flat buffers.

    name: the name in `state_dict`, within its layer (PyTorch's: "weight", "bias").
    shape: the global shape.
    index: the block held, one slice (or index array) a dimension; the serial network holds all of it.
    bound: initial values are uniform in [-bound, bound), drawn by global index.
    torch_axes: the permutation of axes that gives PyTorch's layout.
    indices: where ranks share the array, the `index` of each of them; None where this one holds all of it.
    """

    indices = None

    def __init__(self, name, shape, bound, index=None, torch_axes=None):
        self.name, self.shape, self.bound = name, tuple(shape), bound
        self.index = tuple(index or (slice(0, n) for n in shape))
        self.torch_axes = torch_axes or tuple(range(len(shape)))
        self.value = self.grad = None

    @property
    def block_shape(self):
        return tuple(i.stop - i.start if isinstance(i, slice) else len(i) for i in self.index)

    @property
    def size(self):
        return int(np.prod(self.block_shape))

    def initialise(self, seed, stream):
        """Draw this block of the initial values into `value`."""
        rows, columns = self.index if len(self.shape) == 2 else (slice(0, 1), self.index[0])
        block = uniform_block(seed, stream, self.shape[-1], rows, columns, self.bound)
        self.value[...] = block.reshape(self.block_shape)


class Layer:
    """A differentiable function of a batch.

    Arrays are batch first and features last. `forward` may return a workspace that the next `forward` of the
    same layer overwrites; `backward` may overwrite `dy`. Backward is in two halves, so that a network skips
    the half that nobody needs: `gradients(dy)` writes the parameters' gradients, `input_gradient(dy)` returns
    the gradient of the input. `gradients` is called first.
    """

    name = ""  # position in the serial network, as in PyTorch's state_dict; Sequential sets it
    parameters = ()

    def begin(self, seed, step, batch_size):
        """Called before each forward pass with the step and the number of samples of the *global* minibatch."""

    def forward(self, x, training=False):
        raise NotImplementedError

    def gradients(self, dy):
        """Write the gradients of this layer's parameters. (n, outputs) -> None."""

    def input_gradient(self, dy):
        raise NotImplementedError

    def backward(self, dy):
        """Both halves: write the parameters' gradients, return the gradient of the input."""
        self.gradients(dy)
        return self.input_gradient(dy)

    def output_features(self, features):
        """How many features come out where `features` go in; raises ValueError where they do not fit."""
        return features

    def workspace(self, name, shape, dtype):
        """An uninitialised array that lives as long as the layer; grown when needed, never shrunk."""
        spaces = self.__dict__.setdefault("_spaces", {})
        view, flat = spaces.get(name, (None, None))
        if view is not None and view.shape == shape and view.dtype == dtype:
            return view
        size = int(np.prod(shape))
        if flat is None or flat.size < size or flat.dtype != dtype:
            flat = aligned_empty(size, dtype)
        view = flat[:size].reshape(shape)
        spaces[name] = (view, flat)
        return view

    def __repr__(self):
        return type(self).__name__
