"""The serial network: a list of layers over two flat buffers."""

from functools import cached_property
from math import isfinite

import numpy as np

from nn.arguments import network_dtype, seed_number, shape_of_sample
from nn.context import Context
from nn.conv_pool import pooled
from nn.device import empty, to_device, to_host
from nn.divergence import Diverged, explained
from nn.minibatch_checks import as_input, checked_minibatch
from nn.observer import Observed, observed
from nn.sequence import arranged, backward, forward, input_gradients, keep_gradient, leaves, output_shape, parameter_gradients
from nn.window import take


class Sequential(Observed):
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
        self._flat = self._pairs = None
        self.accepted_kind = self.accepted_labels = None  # of the last minibatch, see `nn/minibatch_checks.py`
        self.layers = self.arrange(layers)

    def arrange(self, layers):
        """The layers, named by their positions, in the order in which they run: see `nn/sequence.py`."""
        return arranged(layers)

    def allocate(self):
        """Allocate the parameters and draw their initial values, unless that has been done.

        Making an optimizer, a forward pass and `state_dict` call it. Collective in a parallel network.
        """
        if self.allocated:
            return
        self._flat = self.flat_buffers(self.size)
        self._flat[1].fill(0)
        self._pairs, start = [(layer, p) for layer in self.leaves() for p in layer.parameters], 0
        for layer, p in self._pairs:
            p.value, p.grad = (flat[start : start + p.size].reshape(p.block_shape) for flat in self._flat)
            p.initialise(self.seed, f"{layer.name}.{p.name}")
            start += p.size
        for _, buffer in self.buffers:
            buffer.allocate(self.dtype)

    @property
    def allocated(self):
        """Whether the network has memory; until then it is a description."""
        return self._flat is not None

    @property
    def parameters(self):
        """All (layer, parameter) pairs, in the order of the flat buffers."""
        self.allocate()
        return self._pairs

    def flat_buffers(self, size):
        """The two flat buffers, of parameters and of gradients, of `size` elements each."""
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
    def params(self):
        """The flat buffer of the parameters held here: (size,)."""
        self.allocate()
        return self._flat[0]

    @property
    def grads(self):
        """The flat buffer of their gradients, in the same order: (size,)."""
        self.allocate()
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

    @cached_property
    def context(self):
        """The network's own context, for evaluations and for `learn`."""
        return Context(training=False)

    def forward(self, x, context=None, batch_size=None, first=0, minibatch_size=None):
        """x: (n, ...) -> (n, outputs).

        context: for training, what `backward` needs is kept there; by default this is an evaluation, in the network's own.
        batch_size: samples of the global minibatch, by default n; or of one of its micro-batches, which begins at sample
        `first` of the whole one of `minibatch_size` samples.
        """
        self.allocate()
        x = as_input(x, self.dtype)
        if context is None:
            context = self.context
            context.training = False
        context.begin(self.seed, self.step, len(x) if batch_size is None else batch_size, first, minibatch_size)
        self._show(context)
        return forward(self.running, x, context)

    def _show(self, context):
        """Let the observer see what happens in a context of training."""
        context.observer = self.observer if context.training else None
        context.progress = context.observer and context.observer.progress

    @cached_property
    def running(self):
        """The layers as they are called: where two work better as one, that one."""
        return pooled(self.layers)

    @cached_property
    def _trained(self):
        """(the first layer that runs and has parameters: a list of it, the layers behind it)."""
        layers = self.running
        first = next((i for i, layer in enumerate(layers) if any(leaf.parameters for leaf in leaves([layer]))), len(layers))
        return layers[first : first + 1], layers[first + 1 :]

    def backward(self, dy, context, input_gradient=False):
        """Write all gradients; return that of the input if asked for, else None (and save its computation).

        dy: (n, outputs), which is overwritten. context: that of the forward pass. What is returned is overwritten by the
        next backward in it.
        """
        self._show(context)
        if input_gradient:
            return backward(self.running, dy, context)
        first, behind = self._trained
        for layer in first:
            context.run(layer, "gradients", backward(behind, dy, context))
            if layer.parameters:
                context.written(layer)
        return None

    def input_gradients(self, dy, context, input_gradient=False):
        """The first half of what `backward` does, which passes gradients back and writes none of parameters.

        `parameter_gradients` may follow at any time: the gradients of the layers' outputs are kept in the context until then.
        """
        self._show(context)
        if input_gradient:
            return input_gradients(self.running, dy, context)
        first, behind = self._trained
        for layer in first:
            dy = input_gradients(behind, dy, context)
            keep_gradient(layer, dy, context)
            if layer.children:  # those inside need the gradients of their outputs as well
                context.run(layer, "input_gradient", dy)
        return None

    def parameter_gradients(self, context):
        """The other half: write the gradients of the parameters. It follows `input_gradients` in the same context."""
        self._show(context)
        parameter_gradients(self.running, context)

    def learn(self, x, y, loss, optimizer):
        """One step on the global minibatch x (n, ...), y; returns the mean loss over it.

        The same call on a serial network and on what `parallelize` makes of it, where each rank takes its own part.
        Raises ValueError for what does not fit (see `nn/minibatch_checks.py`), Diverged if the loss is NaN or infinite.
        """
        x, y = checked_minibatch(self, x, y, loss, optimizer)
        context, x = self.context, to_device(x)
        context.training = True
        outputs = self.forward(x, context)
        value = observed(self.observer, loss, "forward", outputs, to_device(y), context, context=context)
        if not isfinite(value):
            raise Diverged(explained(self, value, x, context))
        self.backward(observed(self.observer, loss, "backward", context, context=context), context)
        observed(self.observer, optimizer, "step")
        self.step += 1
        return value

    def predict(self, x):
        """The outputs for samples x (n, ...), as a host array of its own: (n, outputs). No minibatch may be under way."""
        return np.array(to_host(self.forward(to_device(x))))

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
        self.allocate()
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
        self.allocate()
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
