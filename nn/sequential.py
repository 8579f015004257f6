"""The serial network: a list of layers over two flat buffers."""

from functools import cached_property

import numpy as np

from nn.layer import aligned_empty


class Sequential:
    """Layers one after another.

    layers: Layer objects. seed: of the initial weights and dropout masks. dtype: float32 or float64.

    All parameters lie in one flat buffer `params` and all gradients in another, `grads`; the layers hold
    views, so that an update or an all-reduce is one call over a slice. The buffers are allocated on first
    use: until then a network is a description, and costs nothing however large it is.
    """

    def __init__(self, layers, seed=0, dtype=np.float32):
        self.layers, self.seed, self.dtype = list(layers), seed, np.dtype(dtype)
        self.step = 0  # which minibatch comes next; dropout masks depend on it
        self.name_layers()

    def name_layers(self):
        """Name each layer by its position. ValueError for a layer that is part of a network already."""
        for position, layer in enumerate(self.layers):
            if layer.name:
                raise ValueError(f"layer {position} {layer!r} is part of a network already: make a new one")
            layer.name = str(position)

    @cached_property
    def parameters(self):
        """All (layer, parameter) pairs, in the order of the flat buffers; allocated and initialised."""
        pairs = [(layer, p) for layer in self.layers for p in layer.parameters]
        self._flat = aligned_empty(self.size, self.dtype), aligned_empty(self.size, self.dtype)
        self._flat[1].fill(0)
        start = 0
        for layer, p in pairs:
            p.value, p.grad = (flat[start : start + p.size].reshape(p.block_shape) for flat in self._flat)
            p.initialise(self.seed, f"{layer.name}.{p.name}")
            start += p.size
        return pairs

    @property
    def size(self):
        """How many parameters are held here; asking allocates none."""
        return sum(p.size for layer in self.layers for p in layer.parameters)

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

    def forward(self, x, training=False, batch_size=None):
        """x: (n, features) -> (n, outputs). batch_size: samples of the global minibatch, by default n."""
        self.parameters  # noqa: B018 (allocates on first use)
        batch_size = len(x) if batch_size is None else batch_size
        for layer in self.layers:
            layer.begin(self.seed, self.step, batch_size)
            x = layer.forward(x, training)
        return x

    def backward(self, dy, input_gradient=False):
        """Write all gradients; return that of the input if asked for, else None (and save its computation)."""
        first = 0 if input_gradient else next((i for i, layer in enumerate(self.layers) if layer.parameters), 0)
        for layer in reversed(self.layers[first + 1 :]):
            dy = layer.backward(dy)
        if not self.layers:
            return dy if input_gradient else None
        self.layers[first].gradients(dy)
        return self.layers[first].input_gradient(dy) if input_gradient else None

    def output_features(self, features):
        """How many features come out where `features` go in; raises ValueError naming the layer that does not fit."""
        for layer in self.layers:
            features = layer.output_features(features)
        return features

    def state_dict(self):
        """{name: array} under PyTorch's names and in its layout: copies."""
        return dict(self.global_parameters())

    def global_parameters(self):
        """(name, array) of each entry of `state_dict`, one after another."""
        for layer, p in self.parameters:
            yield f"{layer.name}.{p.name}", np.array(self.whole(p).transpose(p.torch_axes), order="C")

    def whole(self, parameter):
        """The global array of which `parameter` holds a block."""
        return parameter.value

    def load_state_dict(self, state):
        """Take the values of a `state_dict` (ours or PyTorch's, as arrays of the *global* shapes).

        Raises ValueError, naming the entry, if names or shapes differ; then nothing is changed.
        """
        pairs = {f"{layer.name}.{p.name}": p for layer, p in self.parameters}
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
            p.value[...] = values[name][p.index]

    def __repr__(self):
        return "\n".join(f"{layer.name:>4}  {layer!r}" for layer in self.layers)
