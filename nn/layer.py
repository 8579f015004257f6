"""The base class of all layers, and the arrays that layers own: parameters, which lie in flat buffers, and other arrays."""

from collections.abc import Sequence
from copy import copy
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, empty, to_device, xp
from gridgrad.nn.kernels.window import take
from gridgrad.nn.random import uniform_block

Part = slice | npt.NDArray[np.integer]  # what a process holds of one dimension: a slice, or an array of increasing indices
DRAWN_AT_ONCE = 1 << 16  # the number of initial values drawn in one call, which bounds the memory for them


class Block:
    """The layout of an array of which this process holds the indices `index`, whatever others hold: a Part a dimension."""

    def __init__(self, index: Sequence[Part]) -> None:
        self.index = tuple(index)


class Parameter:
    """An array that a layer trains; `value` and `grad` are views into the network's flat buffers.

    Parameters
    ----------
    name : str
        As `state_dict` and PyTorch use it, such as "weight" or "bias".
    shape : sequence of int
        That of the whole array.
    bound : float, optional
        Initial values are drawn uniformly from [-bound, bound), by their global index. Without it all values start as `fill`.
    torch_axes : sequence of int, optional
        The permutation of the axes that gives PyTorch's layout.
    fill : float
        The initial value if there is no bound.

    Attributes
    ----------
    layout : Block or Layout
        Its `index` says which block of the whole array this process holds. A Layout, of `parallel/placement/layout.py`, also
        says what other processes hold.
    value, grad : array
        That block and the gradient of it; None until the network allocates them.

    Examples
    --------
    >>> from gridgrad.nn import Parameter
    >>> from gridgrad.nn.layer import Block
    >>> gain = Parameter("gain", (5,), fill=1.0)
    >>> gain.size, gain.placed(Block([slice(0, 2)])).size
    (5, 2)
    """

    layout: Any
    stays_zero = False  # whether no element of the whole array is ever other than zero
    value: Any
    grad: Any

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        bound: float | None = None,
        torch_axes: Sequence[int] | None = None,
        fill: float = 0.0,
    ) -> None:
        self.name, self.shape, self.bound, self.fill = name, tuple(shape), bound, fill
        self.layout = Block([slice(0, n) for n in shape])
        self.torch_axes = torch_axes or tuple(range(len(shape)))
        self.value = self.grad = None

    def placed(self, layout: Any) -> Self:
        """The same Parameter in another layout, without memory: a new object."""
        new = copy(self)
        new.layout, new.value, new.grad = layout, None, None
        return new

    @property
    def index(self) -> tuple[Part, ...]:
        """The block of the whole array that this process holds: a Part for each dimension."""
        return self.layout.index

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in a `state_dict`, before the axes are permuted: not `shape` only if that combines some dimensions."""
        return self.shape

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of the block that this process holds."""
        return tuple(i.stop - i.start if isinstance(i, slice) else len(i) for i in self.index)

    @property
    def size(self) -> int:
        """The number of elements of that block."""
        return prod(self.block_shape)

    def initialise(self, seed: int, stream: str) -> None:
        """Write the initial values of this block into `value`: functions of `seed`, `stream` (a name) and the global index."""
        if self.bound is None:
            self.value.fill(self.fill)
            return
        # The array is drawn as a matrix whose columns are the last dimension. The random numbers are float64, which may be
        # twice as large as the parameter, so only some rows are drawn at a time.
        numbers = np.arange(prod(self.shape[:-1])).reshape(self.shape[:-1])
        rows = take(numbers, self.index[:-1]).ravel()
        flat = self.value.reshape(len(rows), self.block_shape[-1])
        many = max(1, DRAWN_AT_ONCE // self.shape[-1])
        for start in range(0, len(rows), many):
            some = rows[start : start + many]
            block = uniform_block(seed, stream, self.shape[-1], some, self.index[-1], self.bound)
            flat[start : start + many] = to_device(block.astype(self.value.dtype))

    def load(self, whole: npt.NDArray[Any]) -> None:
        """Copy this block from a host array of the global shape into `value`."""
        self.value[...] = to_device(take(whole, self.index))


class Buffer(Parameter):
    """An array that is saved but not trained, such as a running mean: without a gradient, and with memory of its own."""

    def allocate(self, dtype: npt.DTypeLike) -> None:
        """Allocate `value` and set all of it to `fill`."""
        self.value = xp.empty(self.block_shape, dtype)
        self.value.fill(self.fill)


class Layer:
    """A differentiable function of a batch.

    A layer stores nothing about a minibatch in itself: what its backward pass needs, and its workspaces, are in
    `context[self]`. `forward` returns x, a view of x, or a workspace that the next `forward` in the same context overwrites.
    A backward pass must follow a `forward` in the same context with `context.training` true.

    The backward pass has two halves, in either order: `gradients` writes the gradients of the parameters, `input_gradient`
    returns that of the input. Both may overwrite `dy`, and `input_gradient` may return it or a view of it, if
    `overwrites_gradient` is true. `backward` does both. A layer overrides it if the halves share work or communication can
    overlap with one; then it calls `context.written` when the gradients of the parameters are final.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Layer, Sequential
    >>> class Double(Layer):
    ...     def forward(self, x, context):
    ...         return 2 * x
    ...
    ...     def input_gradient(self, dy, context):
    ...         return 2 * dy
    >>> Sequential([Double()]).predict(np.ones((1, 2), np.float32))
    array([[2., 2.]], dtype=float32)
    """

    name = ""  # the position in the serial network, as in PyTorch's state_dict
    parameters: Sequence[Parameter] = ()  # each is an attribute of the layer as well
    buffers: Sequence[Buffer] = ()
    output_may_be_overwritten = False  # true if backward does not read the output: the next layer may then reuse its memory
    overwrites_gradient = True  # whether the backward pass may overwrite the gradient of the output, or return it
    passes_buffer = True  # whether the gradient of the input takes a buffer of the context, so that dy is not overwritten
    in_place = False  # whether this layer may overwrite its input; set by the network
    is_monotone = False  # whether this is an elementwise function that never decreases
    is_max_pooling = False
    takes_images = False  # whether the input must be images: (n, height, width, channels)
    kind = ""  # "linear", "conv" or "autoencoder" if there are weights that can be sharded; else empty
    inputs: int  # of a layer that has a `kind`: the features or channels of its input
    children: Sequence[list["Layer"]] = ()  # the layers of each branch, if this layer has branches
    observed_as: "Layer | None" = None  # the layer that observers see in place of this one, which combines several

    def placed(self, **layouts: Any) -> Self:
        """A new layer, without a name and memory, with arrays in these layouts, by name, or ValueError; others keep theirs."""
        new = copy(self)
        made: dict[Parameter, Any] = {}
        for attribute, p in vars(self).items():
            if isinstance(p, Parameter):
                made[p] = p.placed(layouts.get(p.name, p.layout))
                setattr(new, attribute, made[p])
        if unknown := layouts.keys() - {p.name for p in made}:
            raise ValueError(f"layer {self.name} {self!r} has no parameter {', '.join(sorted(unknown))}")
        new.name = ""
        new.parameters, new.buffers = (tuple(made[p] for p in arrays) for arrays in (self.parameters, self.buffers))
        return new

    def give_name(self, name: str) -> None:
        """Set the name of this layer and of all layers in its branches."""
        self.name = name

    def forward(self, x: Array, context: Context) -> Array:
        """The output of the layer, (n, ...), for the input x, (n, ...)."""
        raise NotImplementedError

    def gradients(self, dy: Array, context: Context) -> None:
        """Write the gradients of this layer's parameters. dy: the gradient of the output, in its shape."""

    def input_gradient(self, dy: Array, context: Context) -> Array:
        """The gradient of the input, in its shape. dy: the gradient of the output."""
        raise NotImplementedError

    def backward(self, dy: Array, context: Context) -> Array:
        """Both halves: write the gradients of the parameters and return the gradient of the input."""
        if self.parameters:
            context.run(self, "gradients", dy)
        return context.run(self, "input_gradient", dy)

    def has_own_output(self, before: "Layer | None") -> int:
        """How many arrays of the size of the output it keeps, mostly that alone, for a prediction of memory.
        before: the layer in front of it, if any, whose output it may overwrite."""
        return True

    def check_trained(self, stored: object) -> None:
        """Raise ValueError if `stored` is None, which is something that only a forward pass in training stores."""
        if stored is None:
            raise ValueError(f"layer {self.name} {self!r}: backward must follow a forward pass with Context(training=True)")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one output sample for an input sample of `shape`. Raises ValueError if the layer cannot take it."""
        return shape

    def inputs_of(self, columns: Part) -> Part:
        """The inputs that some outputs, or hidden units of a TiedAutoencoder, need. Both are indices of the whole layer."""
        some = columns.stop > columns.start if isinstance(columns, slice) else len(columns)
        return slice(0, self.inputs if some else 0)

    @property
    def description(self) -> str:
        """The layer in a few words, for messages and tables: its `repr`, or only its type if it has branches."""
        return type(self).__name__ if self.children else repr(self)

    def __repr__(self):
        return type(self).__name__


class FlatParameters:
    """The flat arrays of a network, None until `lay_out`. places: [(layer, Parameter, its slice of them)], in their order."""

    # In each step an optimizer asks for each part of the slices `owned`, with `ready`, before it reads the gradients, and says
    # with `updated` that it has written the parameters; after all of them it calls `end_update`. A parallel network has a
    # Reduction, which then sums the gradients over ranks (`parallel/sync/reduction.py`).

    def __init__(self, params: Any = None, grads: Any = None) -> None:
        self.params, self.grads = params, grads
        self.places: list[tuple[Layer, Parameter, slice]] = []

    def lay_out(self, pairs: Sequence[tuple[Layer, Parameter]], dtype: npt.DTypeLike) -> None:
        """Allocate the arrays for these (layer, Parameter) pairs; each Parameter views its part. Gradients are zero."""
        start = 0
        for layer, p in pairs:
            self.places.append((layer, p, slice(start, start + p.size)))
            start += p.size
        self.params, self.grads = self.memory(start, dtype)
        self.grads.fill(0)
        for _, p, where in self.places:
            p.value, p.grad = (flat[where].reshape(p.block_shape) for flat in (self.params, self.grads))

    def memory(self, size: int, dtype: npt.DTypeLike) -> tuple[Array, Array]:
        """(parameters, gradients): new arrays of `size` elements each."""
        return empty(size, dtype), empty(size, dtype)

    @property
    def owned(self) -> list[slice]:
        """The slices that the optimizer of this process updates, in ascending order: here one, everything."""
        return [slice(0, self.params.size)]

    def ready(self, where: slice) -> None:
        """Return when the gradients of the slice `where`, which lies in one of `owned`, are final."""

    def total(self, squares: Sequence[tuple[slice, float]]) -> float:
        """The sum of numbers of slices of the `owned` ones, over all processes; what several own counts once. Collective."""
        return sum(value for _, value in squares)

    def updated(self, where: slice) -> None:
        """Called when the optimizer has written the parameters of the slice `where`."""

    def end_update(self) -> None:
        """Called when the optimizer has written all its slices."""
