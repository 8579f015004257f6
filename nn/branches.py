"""Layers that hold no parameters of their own: from images to features, and networks that branch."""

from math import prod

from nn.sequence import arranged, backward, forward, output_shape
from nn.device import xp
from nn.layer import Layer
from nn.workspace import gradient_space


class Flatten(Layer):
    """(n, H, W, C) -> (n, C H W), the channels outermost: PyTorch's order, so weights of a Linear behind fit both ways."""

    def forward(self, x, training=False):
        self.shape = x.shape
        if x.ndim == 2:
            return x
        n, height, width, channels = x.shape
        y = self.workspace("y", (n, channels * height * width), x.dtype)
        xp.copyto(y.reshape(n, channels, height, width), x.transpose(0, 3, 1, 2))
        return y

    def input_gradient(self, dy):
        if len(self.shape) == 2:
            return dy
        n, height, width, channels = self.shape
        dx = gradient_space(self.shape, dy)
        xp.copyto(dx, dy.reshape(n, channels, height, width).transpose(0, 2, 3, 1))
        return dx

    def output_shape(self, shape):
        return (prod(shape),)


class Residual(Layer):
    """y = branch(x) + shortcut(x) (He et al. 2016).

    branch, shortcut: lists of layers; an empty shortcut is the identity. Both must end in the same shape.
    """

    output_is_free = True

    def __init__(self, branch, shortcut=()):
        self.branch, self.shortcut = list(branch), list(shortcut)

    @property
    def children(self):
        return self.branch, self.shortcut

    def give_name(self, name):
        self.name = name
        self.branch = arranged(self.branch, f"{name}.branch.")
        self.shortcut = arranged(self.shortcut, f"{name}.shortcut.")

    def forward(self, x, training=False):
        a, b = forward(self.branch, x, training), forward(self.shortcut, x, training)
        return xp.add(a, b, out=self.workspace("y", a.shape, a.dtype))

    def backward(self, dy):
        kept = self.workspace("dy", dy.shape, dy.dtype)
        xp.copyto(kept, dy)
        through = backward(self.branch, dy)
        dx = self.workspace("dx", through.shape, through.dtype)
        xp.copyto(dx, through)
        return xp.add(dx, backward(self.shortcut, kept), out=dx)

    def gradients(self, dy):
        self.backward(dy)

    def output_shape(self, shape):
        a, b = output_shape(self.branch, shape), output_shape(self.shortcut, shape)
        if a != b:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branch gives {a}, the shortcut {b}")
        return a

    def __repr__(self):
        return f"Residual(branch {self.branch}, shortcut {self.shortcut})"


class Concat(Layer):
    """The channels of several branches one after another, as in an inception module (Szegedy et al. 2015).

    branches: lists of layers, of which an empty one is the identity; all must end in the same height and width.
    """

    output_is_free = True

    def __init__(self, *branches):
        if not branches:
            raise ValueError("Concat: there must be at least one branch")
        self.branches = [list(branch) for branch in branches]

    @property
    def children(self):
        return tuple(self.branches)

    def give_name(self, name):
        self.name = name
        self.branches = [arranged(branch, f"{name}.branches.{number}.") for number, branch in enumerate(self.branches)]

    def forward(self, x, training=False):
        pieces = [forward(branch, x, training) for branch in self.branches]
        self.widths = [piece.shape[-1] for piece in pieces]
        y = self.workspace("y", (*pieces[0].shape[:-1], sum(self.widths)), x.dtype)
        for piece, part in zip(pieces, self._parts()):
            y[..., part] = piece
        return y

    def backward(self, dy):
        blocks = []
        for number, part in enumerate(self._parts()):
            block = self.workspace(f"dy {number}", (*dy.shape[:-1], self.widths[number]), dy.dtype)
            block[...] = dy[..., part]
            blocks.append(block)
        dx = None
        for branch, block in zip(self.branches, blocks):
            piece = backward(branch, block)
            if dx is None:
                dx = self.workspace("dx", piece.shape, piece.dtype)
                xp.copyto(dx, piece)
            else:
                xp.add(dx, piece, out=dx)
        return dx

    def gradients(self, dy):
        self.backward(dy)

    def _parts(self):
        stops = [sum(self.widths[: number + 1]) for number in range(len(self.widths))]
        return [slice(stop - width, stop) for stop, width in zip(stops, self.widths)]

    def output_shape(self, shape):
        shapes = [output_shape(branch, shape) for branch in self.branches]
        if len({s[:-1] for s in shapes}) > 1:
            raise ValueError(f"layer {self.name} {type(self).__name__}: the branches give {shapes}, which do not fit together")
        return (*shapes[0][:-1], sum(s[-1] for s in shapes))

    def __repr__(self):
        return f"Concat({', '.join(map(str, self.branches))})"
