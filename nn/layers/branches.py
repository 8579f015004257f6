"""Layers without parameters that change the structure: `Flatten`, and the branching layers `Residual` and `Concat`."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Self

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.layer import Layer
from gridgrad.nn.sequence import Chunk, name_and_order, output_shape


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
    """A layer that consists of several branches, all of which get the same input. branches: {name: list of layers}."""

    output_may_be_overwritten = True

    def __init__(self, branches: dict[str, Sequence[Layer]]) -> None:
        self._names, self.children = list(branches), [list(branch) for branch in branches.values()]

    def give_name(self, name: str) -> None:
        if self.parameters:
            raise ValueError(f"layer {name} {self!r}: parameters of a layer with branches belong into a layer of a branch")
        self.name = name
        self.children = [name_and_order(branch, f"{name}.{own}.") for own, branch in zip(self._names, self.children)]

    def of_branches(self, branches: Sequence[list[Layer]]) -> Self:
        """This layer with other layers in its branches, such as those that a rank runs."""
        new = copy(self)
        new.children = list(branches)
        new.__dict__.pop("chunks", None)
        return new

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The passes of each branch."""
        return [Chunk(branch) for branch in self.children]

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.for_gradients = kept.for_input_gradient = None
        return self._join([branch.forward(x, context) for branch in self.chunks], kept)

    def backward(self, dy: Array, context: Context) -> Array:
        return self._through_branches("backward", dy, context)

    def gradients(self, dy: Array, context: Context) -> None:
        kept = context[self]
        if kept.pop("for_gradients"):
            for branch in reversed(self.chunks):
                branch.parameter_gradients(context)
        else:  # these need the gradients of the outputs of the layers inside, so both halves are computed
            dx = context.run(self, "backward", dy)
            kept.for_input_gradient = kept.workspace("dx", dx.shape, dx.dtype)
            xp.copyto(kept.for_input_gradient, dx)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        dx = context[self].pop("for_input_gradient")
        if dx is None:
            context[self].for_gradients = True
            dx = self._through_branches("input_gradients", dy, context)
        return dx

    def without_input(self, phase: str, dy: Array, context: Context) -> None:
        """`backward` or `input_gradients` of the branches, as `phase` says, without the gradient of the input."""
        context[self].for_gradients = phase == "input_gradients"
        for branch, piece in zip(self.chunks, self._split(dy, context[self])):
            with context.holding(dy):
                getattr(branch, phase)(piece, context, input_gradient=False)

    def _through_branches(self, phase, dy, context):
        """The gradient of the input: the sum of those that the branches return. phase: their method that is called."""
        total, branches = None, self.chunks
        for number, (branch, piece) in enumerate(zip(branches, self._split(dy, context[self])), 1):
            needed = [] if number == len(branches) else [dy]
            with context.holding(*needed, *([] if total is None else [total])):
                gradient = getattr(branch, phase)(piece, context)
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
        """Yield the gradient of each branch's output, which the branch may overwrite; all may lie in the memory of dy."""
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
        super().__init__({"branch": branch, "shortcut": shortcut})

    def has_own_output(self, before: Layer | None) -> bool:
        return not any(branch and branch[-1].output_may_be_overwritten for branch in self.children)

    def _join(self, pieces, kept):
        a, b = pieces
        for branch, piece in zip(self.chunks, pieces):
            if branch.executed and branch.executed[-1].output_may_be_overwritten:
                return xp.add(a, b, out=piece)
        return xp.add(a, b, out=kept.workspace("y", a.shape, a.dtype))

    def _split(self, dy, kept):
        branch, first = self.chunks[0].executed, dy
        if branch and branch[-1].overwrites_gradient:
            first = kept.workspace("dy", dy.shape, dy.dtype)
            xp.copyto(first, dy)
        yield first
        yield dy

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        a, b = (output_shape(branch, shape) for branch in self.children)
        if a != b:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branch gives {a}, the shortcut {b}")
        return a

    def __repr__(self):
        return "Residual(branch {}, shortcut {})".format(*self.children)


class Concat(Branching):
    """The channels of several branches one after another, as in an inception module (Szegedy et al. 2015).

    Parameters
    ----------
    *branches : sequence of Layer
        At least one, else ValueError; an empty one is the identity. All outputs must have the same height and width.

    Examples
    --------
    >>> from gridgrad.nn import Concat, Conv2d, Sequential
    >>> Sequential([Concat([Conv2d(8, 4, 1)], [Conv2d(8, 6, 3, padding=1)])]).output_shape((32, 32, 8))
    (32, 32, 10)
    """

    def __init__(self, *branches: Sequence[Layer]) -> None:
        if not branches:
            raise ValueError("Concat: there must be at least one branch")
        super().__init__({f"branches.{number}": branch for number, branch in enumerate(branches)})

    def _join(self, pieces, kept):
        stops = list(accumulate(piece.shape[-1] for piece in pieces))
        kept.channels = [slice(stop - piece.shape[-1], stop) for stop, piece in zip(stops, pieces)]
        y = kept.workspace("y", (*pieces[0].shape[:-1], stops[-1]), pieces[0].dtype)
        for piece, channels in zip(pieces, kept.channels):
            y[..., channels] = piece
        return y

    def _split(self, dy, kept):
        for channels in kept.channels:
            piece = kept.workspace("dy", (*dy.shape[:-1], channels.stop - channels.start), dy.dtype)
            piece[...] = dy[..., channels]
            yield piece

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        shapes = [output_shape(branch, shape) for branch in self.children]
        if len({s[:-1] for s in shapes}) > 1:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branches give {shapes}, which do not fit together")
        return (*shapes[0][:-1], sum(s[-1] for s in shapes))

    def __repr__(self):
        return f"Concat({', '.join(map(str, self.children))})"
