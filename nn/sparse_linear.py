"""The fully connected layer most of whose weights are zero and stay zero."""

from functools import cached_property

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.layer import Parameter
from gridgrad.nn.linear import Linear
from gridgrad.nn.window import take


class SparseLinear(Linear):
    """A Linear layer whose weights are zero, and stay so in training, outside of a pattern.

    pattern: a boolean array (inputs, outputs), true where a weight may be other than zero. Raises ValueError for anything else.
    The other arguments are those of Linear. Weights of the pattern start with the values that those of a Linear would have.

    The products are those of a dense array: with a tenth of the weights they take about as long as those of SciPy's sparse
    matrices in the forward pass, and SciPy has none that computes x^T dy at some places only. What the zeros save is
    communication, and work of ranks that hold only the rows `inputs_of` their columns.
    """

    def __init__(self, pattern, bias=True, rows=None, columns=None, bias_block=None):
        pattern = np.asarray(pattern)
        if pattern.ndim != 2 or pattern.dtype != bool:
            raise ValueError(f"SparseLinear: pattern must be boolean (inputs, outputs), not {pattern.dtype} {pattern.shape}")
        super().__init__(*pattern.shape, bias, rows, columns, bias_block)
        self.pattern = pattern
        self.weight = SparseWeight(pattern, self.weight.bound, self.weight.index)
        self.parameters = (self.weight, *self.parameters[1:])

    def block(self, rows, columns, bias_block):
        return SparseLinear(self.pattern, self.has_bias, rows, columns, bias_block)

    def inputs_of(self, columns):
        return np.flatnonzero(self.pattern[:, columns].any(axis=1))

    def gradients(self, dy, context):
        super().gradients(dy, context)
        self.weight.clear(self.weight.grad)

    def __repr__(self):
        return super().__repr__().replace("Linear(", "SparseLinear(").replace(")", f", {1 - self.pattern.mean():.1%} zeros)")


class SparseWeight(Parameter):
    """The weight of a SparseLinear: a dense block that is zero outside of the pattern."""

    def __init__(self, pattern, bound, index):
        super().__init__("weight", pattern.shape, bound, index, torch_axes=(1, 0))
        self.pattern = pattern

    @property
    def stays_zero(self):
        return not self.pattern.any()

    @cached_property
    def kept(self):
        """The block of the pattern that this process holds, on the device."""
        return to_device(np.ascontiguousarray(take(self.pattern, self.index)))

    def clear(self, array):
        """Set the elements of an array of this block's shape to zero that are outside of the pattern."""
        xp.multiply(array, self.kept, out=array)

    def initialise(self, seed, stream):
        super().initialise(seed, stream)
        self.clear(self.value)

    def load(self, whole):
        super().load(whole)
        self.clear(self.value)
