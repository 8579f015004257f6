"""The serial network: a list of layers over two flat buffers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import isfinite
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gridgrad.nn.arguments import network_dtype, sample_shape, seed_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, as_input, to_device, to_host
from gridgrad.nn.divergence import Diverged, explain_divergence
from gridgrad.nn.kernels.measure_table import ensure_measured
from gridgrad.nn.layer import Buffer, FlatParameters, Layer, Parameter
from gridgrad.nn.losses import Loss
from gridgrad.nn.minibatch_checks import checked_minibatch, checked_samples
from gridgrad.nn.observer import Observable, observed
from gridgrad.nn.sequence import Chunk, leaves, name_and_order, output_shape


class HasStep(Protocol):
    """What `learn` needs of an optimizer. The update protocols of `parallel` have it, too."""

    def step(self) -> object: ...


class Sequential(Observable):
    """A network of layers that run one after another. Arguments that are none of those below raise ValueError.

    All parameters lie in one flat buffer, `params`, and all gradients in another, `grads`; layers hold views of them. They
    are allocated on first use: until then a network is only a description, and takes no memory.

    Parameters
    ----------
    layers : sequence of Layer
        Each a new one.
    seed : int
        A whole number in [0, 2^64), for the initial weights and dropout masks.
    dtype : dtype
        float32 or float64.
    input_shape : int or tuple of int, optional
        The shape of a sample, (features,) or (height, width, channels), if it is known. `parallelize` needs that of images.

    Attributes
    ----------
    flat : FlatParameters
        The flat buffers, as an optimizer uses them.
    step : int
        The number of the next minibatch, counted from 0; dropout masks depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import SGD, Linear, ReLU, Sequential, SoftmaxCrossEntropy
    >>> net = Sequential([Linear(4, 16), ReLU(), Linear(16, 3)], seed=1)
    >>> loss, optimizer = SoftmaxCrossEntropy(), SGD(net, lr=0.1)
    >>> x, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 2, 1])
    >>> first, *_, last = (net.learn(x, labels, loss, optimizer) for _ in range(20))
    >>> last < first
    True
    >>> net.predict(x).shape
    (4, 3)
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        seed: int = 0,
        dtype: npt.DTypeLike = np.float32,
        input_shape: int | Sequence[int] | None = None,
    ) -> None:
        self.seed, self.dtype, self.input_shape = seed_number(seed), network_dtype(dtype), sample_shape(input_shape)
        self.step, self.flat = 0, FlatParameters()
        self.set_layers(name_and_order(layers))

    def set_layers(self, layers: Sequence[Layer]) -> None:
        """Begin anew with these layers, in the order in which they run. What was derived from earlier ones is forgotten."""
        self.accepted_minibatch: Any = None, None, 0  # what `nn/minibatch_checks.py` knows about the last minibatch
        for derived in ("context", "passes"):
            vars(self).pop(derived, None)
        self.layers = list(layers)

    def allocate(self) -> None:
        """Allocate the parameters and draw their initial values, unless it is done. Collective in a parallel network."""
        if self.flat.params is not None:
            return
        ensure_measured()
        self.flat.lay_out([(layer, p) for layer in self.leaves() for p in layer.parameters], self.dtype)
        for layer, p, _ in self.flat.places:
            p.initialise(self.seed, f"{layer.name}.{p.name}")
        for _, buffer in self.buffers:
            buffer.allocate(self.dtype)

    @property
    def allocated(self) -> bool:
        """Whether the parameters have been allocated."""
        return self.flat.params is not None

    def flat_with_memory(self) -> FlatParameters:
        """`flat`, allocated if necessary."""
        self.allocate()
        return self.flat

    @property
    def parameters(self) -> list[tuple[Layer, Parameter]]:
        """All (layer, Parameter) pairs, in the order of the flat buffers. Allocates them if necessary."""
        return [(layer, p) for layer, p, _ in self.flat_with_memory().places]

    @property
    def buffers(self) -> list[tuple[Layer, Buffer]]:
        """All (layer, Buffer) pairs: the arrays that are saved but not trained."""
        return [(layer, buffer) for layer in self.leaves() for buffer in layer.buffers]

    def leaves(self) -> Iterator[Layer]:
        """All layers that have no branches: a branching layer is replaced by the layers in its branches."""
        return leaves(self.layers)

    @property
    def size(self) -> int:
        """The number of parameters that this process holds. Does not allocate them."""
        return sum(p.size for layer in self.leaves() for p in layer.parameters)

    @property
    def params(self) -> Array:
        """The flat buffer of the parameters that this process holds: (size,). Allocates it if necessary."""
        return self.flat_with_memory().params

    @property
    def grads(self) -> Array:
        """The flat buffer of the gradients, in the order of `params`: (size,). Allocates it if necessary."""
        return self.flat_with_memory().grads

    @cached_property
    def context(self) -> Context:
        """The network's own context, for evaluations and for `learn`."""
        return Context(training=False)

    def forward(
        self,
        x: npt.ArrayLike,
        context: Context | None = None,
        batch_size: int | None = None,
        first: int = 0,
        minibatch_size: int | None = None,
    ) -> Array:
        """The output of the network, (n, outputs), for x, (n, ...).

        context: where to store what `backward` needs. By default this is an evaluation in the network's own Context.
        batch_size, first, minibatch_size: see the attributes of Context; by default n, 0 and batch_size."""
        self.allocate()
        inputs = as_input(x, self.dtype)
        if context is None:
            context = self.context
            context.training = False
        context.begin(self.seed, self.step, len(inputs) if batch_size is None else batch_size, first, minibatch_size)
        self._attach_observer(context)
        return self.passes.forward(inputs, context)

    def _attach_observer(self, context):
        """Connect the observer to a context that is for training: evaluations are not observed."""
        context.attach(self.observer if context.training else None)

    @cached_property
    def passes(self) -> Chunk:
        """The passes through all layers."""
        return Chunk(self.layers)

    def backward(self, dy: Array, context: Context, input_gradient: bool = False) -> Array | None:
        """Write the gradients of all parameters to `grads`.

        dy: the gradient of the output, (n, outputs); it is overwritten. context: that of the forward pass.
        input_gradient: whether to return that of the input, too, which the next backward pass in this context overwrites."""
        self._attach_observer(context)
        return self.passes.backward(dy, context, input_gradient)

    def input_gradients(self, dy: Array, context: Context, input_gradient: bool = False) -> Array | None:
        """One half of `backward`, with its arguments and result. The context stores gradients until the other half runs."""
        self._attach_observer(context)
        return self.passes.input_gradients(dy, context, input_gradient)

    def parameter_gradients(self, context: Context) -> None:
        """The other half of `backward`: write the gradients of the parameters, after `input_gradients` in the same context."""
        self._attach_observer(context)
        self.passes.parameter_gradients(context)

    def learn(self, x: npt.ArrayLike, y: npt.ArrayLike, loss: Loss, optimizer: HasStep) -> float:
        """Train for one step on a global minibatch; returns the mean loss over it, before the update.

        x: the samples, (n, ...). y: their labels, (n,), or targets, (n, outputs). optimizer: one made for this network.
        ValueError if the arguments do not fit together, Diverged if the loss is not finite."""
        self.check_own(optimizer)
        samples, targets = (to_device(array) for array in checked_minibatch(self, x, y, loss))
        self.allocate()
        context, inputs = self.context, as_input(samples, self.dtype)
        context.training = True
        context.begin(self.seed, self.step, len(inputs))
        self._attach_observer(context)
        forward, backward = partial(self.passes.loss, loss, context=context), partial(self.passes.backward_from, loss, context)
        value = context.as_graph(forward, (self.passes, loss), inputs, targets)
        context.as_graph(backward, (), follows=True)
        if not isfinite(value):
            raise Diverged(explain_divergence(self, value, samples, context))
        observed(self.observer, optimizer, "step")
        self.step += 1
        return value

    def check_own(self, optimizer: object) -> None:
        """Raise ValueError if an optimizer was made for another network."""
        if getattr(optimizer, "net", self) is not self:
            which = f"this {type(optimizer).__name__} was made for another network and would leave this one as it is"
            raise ValueError(f"{which}: make it of the network that learns, after `parallelize`")

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[Any] | Any:
        """The outputs for samples x (n, ...), a new host array; ValueError for unfit ones. No minibatch may be under way."""
        return np.array(to_host(self.forward(checked_samples(self, x))))

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one output sample for an input sample of `shape`. ValueError names the layer that cannot take it."""
        return output_shape(self.layers, shape)

    def state_dict(self, everywhere: bool = False) -> dict[str, npt.NDArray[Any]] | Any:
        """{name: host array} with copies of all parameters and buffers, under PyTorch's names and in its layout.

        Collective in a parallel network: rank 0 gets it and the other ranks None, or all ranks get it if `everywhere` is true.
        """
        state = dict(self.global_parameters(everywhere))
        return None if any(value is None for value in state.values()) else state

    def global_parameters(self, everywhere: bool = False) -> Iterator[tuple[str, npt.NDArray[Any] | Any]]:
        """Yield each (name, array, or None on a rank that does not get it) of `state_dict`, one array in memory at a time."""
        self.allocate()
        for layer, p in self.parameters + self.buffers:
            whole = self.global_value(p, everywhere)
            if whole is not None:
                whole = np.array(to_host(whole).reshape(p.stored_shape).transpose(p.torch_axes), order="C")
            yield f"{layer.name}.{p.name}", whole

    def global_value(self, parameter: Parameter, everywhere: bool = False) -> Array | Any:
        """The global array of a Parameter or Buffer; None on a rank that does not get it. Collective in a parallel network."""
        return parameter.value

    def load_state_dict(self, state: Mapping[str, npt.ArrayLike], strict: bool = True) -> None:
        """Set all parameters and buffers from a `state_dict`, of this library or PyTorch's: {name: host array of global shape}.

        strict: if it is false, parameters that the state does not name keep their values, and other names are left out.
        ValueError, which names the entry, if names or shapes differ, or if the type of the parameters can not hold some number;
        nothing is changed then."""
        self.allocate()
        pairs = {f"{layer.name}.{p.name}": p for layer, p in self.parameters + self.buffers}
        state = {name: value for name, value in state.items() if not name.endswith(".num_batches_tracked")}  # PyTorch's own
        if strict and pairs.keys() != state.keys():
            raise ValueError(f"state_dict: names differ: {sorted(pairs.keys() ^ state.keys())}")
        loaded = []
        for name in [name for name in pairs if name in state]:
            p, value = pairs[name], np.asarray(state[name])
            expected = tuple(p.stored_shape[axis] for axis in p.torch_axes)
            if value.shape != expected:
                raise ValueError(f"state_dict: {name} has shape {value.shape}, expected {expected}")
            if value.dtype.kind not in "biuf":
                raise ValueError(f"state_dict: {name} holds {value.dtype}, expected real numbers")
            with np.errstate(over="ignore"):
                if not np.isfinite(value.astype(p.value.dtype, copy=False)).all():
                    raise ValueError(f"state_dict: {name} has numbers that are not finite in {p.value.dtype}")
            loaded.append((p, value.transpose(np.argsort(p.torch_axes)).reshape(p.shape)))
        for p, value in loaded:
            p.load(value)

    def __repr__(self):
        return "\n".join(f"{layer.name:>4}  {layer!r}" for layer in self.layers)
