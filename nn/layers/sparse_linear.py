"""The fully connected layer most of whose weights are zero and stay zero."""

from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, to_device, xp
from gridgrad.nn.kernels.window import take
from gridgrad.nn.layer import Parameter, Part
from gridgrad.nn.layers.linear import Linear


class SparseLinear(Linear):
    """A Linear layer whose weights are zero, and stay so in training, outside of a pattern. The others start as in a Linear.

    The products are those of a dense array: with a tenth of the weights they take about as long as those of SciPy's sparse
    matrices in the forward pass, and SciPy has none that computes x^T dy at some places only. What the zeros save is
    communication, and work of ranks that hold only the rows `inputs_of` their columns.

    Parameters
    ----------
    pattern : array of bool, (inputs, outputs)
        True where a weight may be other than zero. ValueError if it is no such array.
    bias : bool
        Whether there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import SparseLinear
    >>> SparseLinear(np.eye(4, dtype=bool))
    SparseLinear(4, 4, 75.0% zeros)
    """

    def __init__(self, pattern: npt.ArrayLike, bias: bool = True) -> None:
        pattern = np.asarray(pattern)
        if pattern.ndim != 2 or pattern.dtype != bool:
            raise ValueError(f"SparseLinear: pattern must be boolean (inputs, outputs), not {pattern.dtype} {pattern.shape}")
        inputs, outputs = pattern.shape
        super().__init__(inputs, outputs, bias)
        self.pattern = pattern
        self.weight: SparseWeight = SparseWeight(pattern, self.weight.bound)
        self.parameters = (self.weight, *self.parameters[1:])

    def inputs_of(self, columns: Part) -> Part:
        return np.flatnonzero(self.pattern[:, columns].any(axis=1))

    def gradients(self, dy: Array, context: Context) -> None:
        super().gradients(dy, context)
        self.weight.clear(self.weight.grad)

    def __repr__(self):
        return super().__repr__().replace("Linear(", "SparseLinear(").replace(")", f", {1 - self.pattern.mean():.1%} zeros)")


class SparseWeight(Parameter):
    """The weight of a SparseLinear: a dense block that is zero outside of the pattern."""

    def __init__(self, pattern: npt.NDArray[np.bool_], bound: float | None) -> None:
        super().__init__("weight", pattern.shape, bound, torch_axes=(1, 0))
        self.pattern, self.stays_zero = pattern, not pattern.any()

    def placed(self, layout: Any) -> Self:
        new = super().placed(layout)
        vars(new).pop("kept", None)
        return new

    @cached_property
    def kept(self) -> Array:
        """The block of the pattern that this process holds, on the device."""
        return to_device(np.ascontiguousarray(take(self.pattern, self.index)))

    def clear(self, array: Array) -> None:
        """Set the elements of an array of this block's shape to zero that are outside of the pattern."""
        xp.multiply(array, self.kept, out=array)

    def initialise(self, seed: int, stream: str) -> None:
        super().initialise(seed, stream)
        self.clear(self.value)

    def load(self, whole: npt.NDArray[Any]) -> None:
        super().load(whole)
        self.clear(self.value)
