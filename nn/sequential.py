"""The serial network: a list of layers over two flat buffers."""

from functools import cached_property
from math import isfinite

import numpy as np

from nn.arguments import network_dtype, seed_number, shape_of_sample
from nn.divergence import Diverged, explained
from nn.minibatch_checks import as_input, checked_minibatch
from nn.sequence import arranged, backward, forward, leaves, output_shape
from nn.device import empty, to_device, to_host
from nn.conv_pool import pooled
from nn.window import take


class Sequential:
    """Layers one after another.

    layers: Layer objects. seed: of the initial weights and dropout masks. dtype: float32 or float64. input_shape: of a
    sample, (features,) or (height, width, channels), where it is known. ValueError for what is none of these.

    All parameters lie in one flat buffer `params` and all gradients in another, `grads`; the layers hold
    views, so that an update or an all-reduce is one call over a slice. The buffers are allocated on first
    use: until then a network is a description, and costs nothing however large it is.
    """

    def __init__(self, layers, seed=0, dtype=np.float32, input_shape=None):
        self.seed, self.dtype, self.input_shape = seed_number(seed), network_dtype(dtype), shape_of_sample(input_shape)
        self.step = 0  # which minibatch comes next; dropout masks depend on it
        self.accepted_kind = self.accepted_labels = None  # of the last minibatch, see `nn/minibatch_checks.py`
        self.layers = self.arrange(layers)

    def arrange(self, layers):
        """The layers, named by their positions, in the order in which they run: see `nn/sequence.py`."""
        return arranged(layers)

    @cached_property
    def parameters(self):
        """All (layer, parameter) pairs, in the order of the flat buffers; allocated and initialised."""
        pairs = [(layer, p) for layer in self.leaves() for p in layer.parameters]
        self._flat = self.allocate(self.size)
        self._flat[1].fill(0)
        start = 0
        for layer, p in pairs:
            p.value, p.grad = (flat[start : start + p.size].reshape(p.block_shape) for flat in self._flat)
            p.initialise(self.seed, f"{layer.name}.{p.name}")
            start += p.size
        for _, buffer in self.buffers:
            buffer.allocate(self.dtype)
        return pairs

    def allocate(self, size):
        """The two flat buffers, of `size` elements each."""
        return empty(size, self.dtype), empty(size, self.dtype)

    @property
    def buffers(self):
        """All (layer, buffer) pairs: the part of the state that is not trained."""
        return [(layer, buffer) for layer in self.leaves() for buffer in layer.buffers]

    def leaves(self):
        """All layers, those of branches in place of what holds them."""
        return leaves(self.layers)

    @property
    def size(self):
        """How many parameters are held here; asking allocates none."""
        return sum(p.size for layer in self.leaves() for p in layer.parameters)

    @property
    def allocated(self):
        return "parameters" in self.__dict__

    @property
    def params(self):
        """The flat buffer of the parameters held here: (size,)."""
        self.parameters  # noqa: B018 (allocates on first use)
        return self._flat[0]

    @property
    def grads(self):
        """The flat buffer of their gradients, in the same order: (size,)."""
        self.parameters  # noqa: B018 (allocates on first use)
        return self._flat[1]

    @property
    def owned(self):
        """The slices of the flat buffers that an optimizer updates here, in their order: all of it."""
        return [slice(0, self.params.size)]

    def complete(self, where):
        """Called by an optimizer before it reads the slice `where` of `grads`."""

    def changed(self, where):
        """Called by an optimizer when it has written the slice `where` of `params`."""

    def updated(self):
        """Called by an optimizer at the end of an update."""

    def forward(self, x, training=False, batch_size=None, first=0):
        """x: (n, ...) -> (n, outputs).

        batch_size: samples of the global minibatch, by default n; or of one of its micro-batches, which begins at its
        sample `first`.
        """
        self.parameters  # noqa: B018 (allocates on first use)
        x = as_input(x, self.dtype)
        batch_size = len(x) if batch_size is None else batch_size
        for layer in self.leaves():
            layer.begin(self.seed, self.step, batch_size, first)
        return forward(self.running, x, training)

    @cached_property
    def running(self):
        """The layers as they are called: where two work better as one, that one."""
        return pooled(self.layers)

    def backward(self, dy, input_gradient=False):
        """Write all gradients; return that of the input if asked for, else None (and save its computation).

        dy: (n, outputs), which is overwritten. What is returned is overwritten by the next backward.
        """
        layers = self.running
        if input_gradient:
            return backward(layers, dy)
        first = next((i for i, layer in enumerate(layers) if any(leaf.parameters for leaf in leaves([layer]))), None)
        if first is not None:
            layers[first].gradients(backward(layers[first + 1 :], dy))
        return None

    def learn(self, x, y, loss, optimizer):
        """One step on the global minibatch x (n, ...), y; returns the mean loss over it.

        The same call on a serial network and on what `parallelize` makes of it, where each rank takes its own part.
        Raises ValueError for what does not fit (see `nn/minibatch_checks.py`), Diverged if the loss is NaN or infinite.
        """
        x, y = checked_minibatch(self, x, y, loss, optimizer)
        value = loss.forward(self.forward(to_device(x), training=True), to_device(y), len(x))
        if not isfinite(value):
            raise Diverged(explained(self, value, to_device(x), len(x)))
        self.backward(loss.backward())
        optimizer.step()
        self.step += 1
        return value

    def output_shape(self, shape):
        """The shape of a sample's output where one of `shape` goes in; raises ValueError naming the layer that does not fit."""
        return output_shape(self.layers, shape)

    def state_dict(self, everywhere=False):
        """{name: host array} under PyTorch's names and in its layout: copies.

        Of a parallel network rank 0 gets them, and the others None; or all ranks do, if they are to be `everywhere`. Collective.
        """
        state = dict(self.global_parameters(everywhere))
        return None if any(value is None for value in state.values()) else state

    def global_parameters(self, everywhere=False):
        """(name, array) of each entry of `state_dict`, one after another; None in the place of arrays that are not for this
        rank. Collective."""
        for layer, p in self.parameters + self.buffers:
            whole = self.whole(p, everywhere)
            array = whole if whole is None else np.array(to_host(whole).transpose(p.torch_axes), order="C")
            yield f"{layer.name}.{p.name}", array

    def whole(self, parameter, everywhere=False):
        """The global array of which `parameter` holds a block."""
        return parameter.value

    def load_state_dict(self, state):
        """Take the values of a `state_dict` (ours or PyTorch's, as host arrays of the *global* shapes).

        Raises ValueError, naming the entry, if names or shapes differ; then nothing is changed.
        """
        pairs = {f"{layer.name}.{p.name}": p for layer, p in self.parameters + self.buffers}
        state = {name: value for name, value in state.items() if not name.endswith(".num_batches_tracked")}  # PyTorch's alone
        if pairs.keys() != state.keys():
            raise ValueError(f"state_dict: names differ: {sorted(pairs.keys() ^ state.keys())}")
        values = {}
        for name, p in pairs.items():
            value = np.asarray(state[name])
            expected = tuple(p.shape[axis] for axis in p.torch_axes)
            if value.shape != expected:
                raise ValueError(f"state_dict: {name} has shape {value.shape}, expected {expected}")
            values[name] = value.transpose(np.argsort(p.torch_axes))
        for name, p in pairs.items():
            p.value[...] = to_device(take(values[name], p.index))

    def __repr__(self):
        return "\n".join(f"{layer.name:>4}  {layer!r}" for layer in self.layers)
