"""Layers without parameters that change the structure: `Flatten`, and the branching layers `Residual` and `Concat`."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from math import prod

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.layer import Layer
from gridgrad.nn.layers.fusion import fuse
from gridgrad.nn.sequence import (
    backward,
    backward_without_input,
    forward,
    input_gradients,
    input_gradients_without_input,
    name_and_order,
    output_shape,
    parameter_gradients,
)


class Flatten(Layer):
    """Images as features: (n, H, W, C) -> (n, C H W). An input (n, features) is returned as it is.

    The channels vary slowest, as in PyTorch, so the weights of a Linear layer that follows can be exchanged with PyTorch.

    Examples
    --------
    >>> from gridgrad.nn import Flatten
    >>> Flatten().output_shape((4, 4, 3))
    (48,)
    """

    takes_images = True

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.shape = x.shape
        if x.ndim == 2:
            return x
        n, height, width, channels = x.shape
        y = kept.workspace("y", (n, channels * height * width), x.dtype)
        xp.copyto(y.reshape(n, channels, height, width), x.transpose(0, 3, 1, 2))
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        shape = context[self].shape
        if len(shape) == 2:
            return dy
        n, height, width, channels = shape
        dx = context.gradient_space(shape, dy)
        xp.copyto(dx, dy.reshape(n, channels, height, width).transpose(0, 2, 3, 1))
        return dx

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (prod(shape),)


class Branching(Layer):
    """A layer that consists of several branches, which are lists of layers. All get the same input.

    The gradients of the parameters inside need the gradients of the outputs of the layers inside. So if `gradients` runs
    before `input_gradient`, it computes both halves for the branches and stores the input's gradient for `input_gradient`.
    """

    output_may_be_overwritten = True
    has_fused_backward = True

    @cached_property
    def executed_branches(self) -> list[list[Layer]]:
        """The layers of the branches as they run: see `nn/layers/fusion.py`."""
        return [fuse(branch) for branch in self.children]

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.for_gradients = kept.for_input_gradient = None
        return self._join([forward(branch, x, context) for branch in self.executed_branches], kept)

    def backward(self, dy: Array, context: Context) -> Array:
        return self._through_branches(dy, context, backward)

    def gradients(self, dy: Array, context: Context) -> None:
        kept = context[self]
        if kept.pop("for_gradients"):
            for branch in reversed(self.executed_branches):
                parameter_gradients(branch, context)
        else:
            dx = context.run(self, "backward", dy)
            kept.for_input_gradient = kept.workspace("dx", dx.shape, dx.dtype)
            xp.copyto(kept.for_input_gradient, dx)

    def backward_without_input(self, dy: Array, context: Context) -> None:
        """Write the gradients of all parameters in the branches, but do not compute the gradient of the input."""
        self._through_branches_without_input(dy, context, backward_without_input)

    def input_gradients_without_input(self, dy: Array, context: Context) -> None:
        """Compute the gradients of the outputs of the layers in the branches, but not that of the input."""
        context[self].for_gradients = True
        self._through_branches_without_input(dy, context, input_gradients_without_input)

    def _through_branches_without_input(self, dy, context, branch_backward):
        """branch_backward: the function of `nn/sequence.py` to call for each branch."""
        for branch, piece in zip(self.executed_branches, self._split(dy, context[self])):
            with context.holding(dy):
                branch_backward(branch, piece, context)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        kept = context[self]
        dx = kept.pop("for_input_gradient")
        if dx is None:
            kept.for_gradients = True
            dx = self._through_branches(dy, context, input_gradients)
        return dx

    def _through_branches(self, dy, context, branch_backward):
        """The gradient of the input: the sum of those that the branches return.

        branch_backward: the function that computes it for one branch, `backward` or `input_gradients` of `nn/sequence.py`.
        """
        total, branches = None, self.executed_branches
        for number, (branch, piece) in enumerate(zip(branches, self._split(dy, context[self])), 1):
            needed = [] if number == len(branches) else [dy]
            with context.holding(*needed, *([] if total is None else [total])):
                gradient = branch_backward(branch, piece, context)
                if total is not None:
                    xp.add(total, gradient, out=total)
                elif needed and xp.may_share_memory(gradient, piece):  # the next branch's piece may be in that memory
                    total = context.gradient_space(gradient.shape, dy)
                    xp.copyto(total, gradient)
                else:
                    total = gradient
        return total

    def _join(self, pieces, kept):
        """The output of the layer from those of its branches. kept: the layer's entry in the context."""
        raise NotImplementedError

    def _split(self, dy, kept):
        """Yield the gradient of each branch's output from that of the layer's, as an array that the branch may overwrite.

        Each may lie in the same memory as the one before, and as dy.
        """
        raise NotImplementedError


class Residual(Branching):
    """The sum of two branches, y = branch(x) + shortcut(x) (He et al. 2016).

    Parameters
    ----------
    branch, shortcut : sequence of Layer
        The layers of each; an empty one is the identity. Both outputs must have the same shape.

    Examples
    --------
    >>> from gridgrad.nn import Conv2d, ReLU, Residual, Sequential
    >>> block = Residual([Conv2d(8, 8, 3, padding=1), ReLU(), Conv2d(8, 8, 3, padding=1)])
    >>> Sequential([block, ReLU()]).output_shape((32, 32, 8))
    (32, 32, 8)
    """

    def __init__(self, branch: Sequence[Layer], shortcut: Sequence[Layer] = ()) -> None:
        self.branch, self.shortcut = list(branch), list(shortcut)

    @property
    def children(self) -> Sequence[list[Layer]]:
        return self.branch, self.shortcut

    def give_name(self, name: str) -> None:
        self.name = name
        self.branch = name_and_order(self.branch, f"{name}.branch.")
        self.shortcut = name_and_order(self.shortcut, f"{name}.shortcut.")

    def has_own_output(self, before: Layer | None) -> bool:
        return not any(branch and branch[-1].output_may_be_overwritten for branch in self.children)

    def _join(self, pieces, kept):
        a, b = pieces
        for branch, piece in zip(self.executed_branches, pieces):
            if branch and branch[-1].output_may_be_overwritten:
                return xp.add(a, b, out=piece)
        return xp.add(a, b, out=kept.workspace("y", a.shape, a.dtype))

    def _split(self, dy, kept):
        branch, _ = self.executed_branches
        if branch and branch[-1].overwrites_gradient:
            copied = kept.workspace("dy", dy.shape, dy.dtype)
            xp.copyto(copied, dy)
            yield copied
        else:
            yield dy
        yield dy

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        a, b = output_shape(self.branch, shape), output_shape(self.shortcut, shape)
        if a != b:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branch gives {a}, the shortcut {b}")
        return a

    def __repr__(self):
        return f"Residual(branch {self.branch}, shortcut {self.shortcut})"


class Concat(Branching):
    """The channels of several branches one after another, as in an inception module (Szegedy et al. 2015).

    Parameters
    ----------
    *branches : sequence of Layer
        The layers of each; an empty one is the identity. All outputs must have the same height and width.

    Raises
    ------
    ValueError
        If there is no branch.

    Examples
    --------
    >>> from gridgrad.nn import Concat, Conv2d, Sequential
    >>> Sequential([Concat([Conv2d(8, 4, 1)], [Conv2d(8, 6, 3, padding=1)])]).output_shape((32, 32, 8))
    (32, 32, 10)
    """

    def __init__(self, *branches: Sequence[Layer]) -> None:
        if not branches:
            raise ValueError("Concat: there must be at least one branch")
        self.branches = [list(branch) for branch in branches]

    @property
    def children(self) -> Sequence[list[Layer]]:
        return tuple(self.branches)

    def give_name(self, name: str) -> None:
        self.name = name
        self.branches = [name_and_order(branch, f"{name}.branches.{number}.") for number, branch in enumerate(self.branches)]

    def _join(self, pieces, kept):
        kept.widths = [piece.shape[-1] for piece in pieces]
        y = kept.workspace("y", (*pieces[0].shape[:-1], sum(kept.widths)), pieces[0].dtype)
        for piece, part in zip(pieces, parts(kept.widths)):
            y[..., part] = piece
        return y

    def _split(self, dy, kept):
        for width, part in zip(kept.widths, parts(kept.widths)):
            piece = kept.workspace("dy", (*dy.shape[:-1], width), dy.dtype)
            piece[...] = dy[..., part]
            yield piece

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        shapes = [output_shape(branch, shape) for branch in self.branches]
        if len({s[:-1] for s in shapes}) > 1:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branches give {shapes}, which do not fit together")
        return (*shapes[0][:-1], sum(s[-1] for s in shapes))

    def __repr__(self):
        return f"Concat({', '.join(map(str, self.branches))})"


def parts(widths):
    """Consecutive slices whose lengths are `widths`; the first starts at 0."""
    return [slice(stop - width, stop) for stop, width in zip(accumulate(widths), widths)]
