"""What layers store between the forward and the backward pass of one minibatch or micro-batch.

It belongs to a `Context`, which the caller owns, never to the layer. So several micro-batches can be in flight in one network,
each with its own context, and their passes may come in any order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

from gridgrad.nn.device import Array, empty, xp
from gridgrad.nn.graphs import Graphs, between
from gridgrad.nn.kernels.workspace import Workspace, scratch
from gridgrad.nn.observer import Observer


class LayerContext:
    """What one layer stores in one context: the attributes that the layer sets, and its workspaces."""

    # If the halves of a backward pass share work, the first one stores the result in the attribute that is named after the half
    # that still has to run, and that half removes it with `pop`.
    for_gradients = for_input_gradient = None
    dy = None  # the gradient of the output, stored if the gradients of the parameters are computed later

    def __init__(self):
        self.workspace = Workspace()  # arrays that live as long as the context

    def pop(self, name):
        """Return the value of an attribute and set the attribute to None."""
        value = getattr(self, name)
        setattr(self, name, None)
        return value

    def arrays(self):
        """All stored arrays that own their memory; views are left out."""
        yield from self.workspace.arrays()
        for value in vars(self).values():
            for array in value if isinstance(value, list | tuple) else [value]:
                if isinstance(array, xp.ndarray) and array.base is None:
                    yield array


class Context(dict[Any, Any]):
    """What the layers keep of one minibatch, or one micro-batch: `context[layer]` is the `LayerContext` of a layer or a loss.

    A context can be used for one minibatch after another; its arrays are allocated once.

    Parameters
    ----------
    training : bool
        Whether a backward pass will follow. If not, layers store nothing that costs time or memory.
    batch_size : int, optional
        The number of samples of the global minibatch, for layers and losses without a network. A network sets it.
    sharing : Context, optional
        One with which it shares the buffers for gradients: then no backward pass may begin within one in the other.

    Attributes
    ----------
    seed, step : int
        Those of the network; random numbers such as dropout masks depend on them.
    batch_size, first : int
        The number of samples of the global minibatch or micro-batch, and the index in the minibatch of the first of them.
    minibatch_size : int
        The number of samples of the whole global minibatch, over which losses take the mean.
    observer : Observer
        It is told about the passes of the layers, see `nn/observer.py`; None if nobody observes.
    progress : function
        What layers call within long computations, so that non-blocking communication advances; None: work is not split for it.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, Context, Linear, Sequential
    >>> net, loss, context = Sequential([Linear(3, 2)]), MSE(), Context()
    >>> x, y = np.ones((5, 3), np.float32), np.zeros((5, 2), np.float32)
    >>> value = loss.forward(net.forward(x, context), y, context)
    >>> net.backward(loss.backward(context), context)
    >>> net.grads.shape
    (8,)
    """

    observer: Observer | None = None
    progress: Callable[[], object] | None = None
    batch_size: Any
    minibatch_size: Any

    def __init__(self, training: bool = True, batch_size: int | None = None, sharing: "Context | None" = None) -> None:
        super().__init__()
        self.training = training
        self.begin(seed=0, step=0, batch_size=batch_size)
        self._gradients: list[Array] = [] if sharing is None else sharing._gradients  # flat buffers
        self._held: list[Array] = []
        self.graphs = Graphs(self._arrays, lambda: map(vars, self.values()))

    def begin(self, seed: int, step: int, batch_size: int | None, first: int = 0, minibatch_size: int | None = None) -> None:
        """Start the next minibatch or micro-batch; the arguments are the attributes. minibatch_size: by default batch_size."""
        self.seed, self.step, self.batch_size, self.first = seed, step, batch_size, first
        self.minibatch_size = batch_size if minibatch_size is None else minibatch_size

    def attach(self, observer: Observer | None) -> None:
        """Have an observer told about the passes from now on, or nobody. On a GPU, work is not split for communication."""
        self.observer = observer
        self.progress = observer.progress if observer and xp.is_cpu else None

    def __missing__(self, layer):
        kept = self[layer] = LayerContext()
        return kept

    def gradient_space(self, shape: tuple[int, ...], dy: Array) -> Array:
        """An uninitialised array of `shape` for the gradient of a layer's input; dy: the gradient of its output.

        All layers share a few buffers in turn. A layer that needs a gradient after the layer before has computed its own must
        copy it, or hold it (`holding`) while other layers run."""
        size, needed = prod(shape), (dy, *self._held)
        for number, buffer in enumerate(self._gradients):
            if any(map(partial(xp.may_share_memory, buffer), needed)):
                continue
            if buffer.size < size or buffer.dtype != dy.dtype:  # the first free one grows, so that the others remain small
                buffer = self._gradients[number] = empty(size, dy.dtype)
            return buffer[:size].reshape(shape)
        self._gradients.append(empty(size, dy.dtype))
        return self._gradients[-1].reshape(shape)

    @contextmanager
    def holding(self, *arrays: Array) -> Iterator[None]:
        """Within this block, `gradient_space` returns no memory of these arrays."""
        self._held += arrays
        try:
            yield
        finally:
            del self._held[len(self._held) - len(arrays) :]

    def _arrays(self):
        return [*scratch.arrays(), *self._gradients, *(array for kept in self.values() for array in kept.arrays())]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays of this context, workspaces included; an array that is stored twice counts once."""
        return self.stored_bytes + total_bytes(self._gradients)

    @property
    def stored_bytes(self) -> int:
        """The bytes of the arrays that layers store in it, without the buffers for gradients that layers share."""
        return total_bytes(array for kept in self.values() for array in kept.arrays())

    def as_graph(self, function: Callable[..., Any], key: Any, *arrays: Array, follows: bool = False) -> Any:
        """function(*arrays): a pass of many layers in this context, on a GPU as a graph unless an observer hears of each layer.
        key, follows: see `Graphs.run`."""
        if xp.is_cpu:
            return function(*arrays)
        if self.observer is not None and self.observer.hears_passes:
            if not follows:
                self.graphs.forget_newest()
            return function(*arrays)
        hears_written = self.observer is not None and self.observer.hears_written
        key = key, self.batch_size, self.minibatch_size, hears_written
        return self.graphs.run(function, key, *arrays, follows=follows)

    # ----- where an observer listens, every pass of a layer is a call of `run` or lies between `begin_pass` and `end_pass`

    def run(self, layer: Any, phase: str, array: Array) -> Any:
        """Call a method of a layer, such as "forward", with an array, and tell the observer, if any; returns its result."""
        if self.observer is None:
            return getattr(layer, phase)(array, self)
        observed, hears_passes = layer.observed_as or layer, self.observer.hears_passes
        if hears_passes:
            self.observer.begin(observed, phase, self)
        result = getattr(layer, phase)(array, self)
        if hears_passes:
            self.observer.end(observed, phase, self)
            self.observer.computed(observed, phase, array, result, self)
        if phase == "gradients" and layer.parameters:
            self.written(layer)
        return result

    def begin_pass(self, layer: Any, phase: str) -> None:
        """Tell the observer that a pass begins that is no call of `run`, such as a pooling of one block of images."""
        if self.observer is not None:
            self.observer.begin(layer, phase, self)

    def end_pass(self, layer: Any, phase: str) -> None:
        """Tell the observer that this pass ends."""
        if self.observer is not None:
            self.observer.end(layer, phase, self)

    def written(self, layer: Any) -> None:
        """Tell the observer that the gradients of a layer's parameters are final."""
        if self.observer is not None and self.observer.hears_written:
            between(partial(self._tell_written, layer))

    def _tell_written(self, layer):
        self.observer.written(layer.observed_as or layer)  # looked up in each replay: a graph may be older than the observer

    def __repr__(self):
        kind = "training" if self.training else "evaluation"
        return f"Context({kind}, step {self.step}, {self.batch_size} samples from {self.first}, {self.nbytes} bytes)"


def total_bytes(arrays):
    """The bytes of some arrays; one that occurs twice counts once."""
    return sum({id(array): array.nbytes for array in arrays}.values())
