"""The geometry of convolutions and poolings: which pixels each output looks at."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

ROWS, COLUMNS = 1, 2  # the dimensions of (n, H, W, C) that a window slides along


@dataclass(frozen=True)
class Window:
    """A window that slides over the rows and columns of an image.

    kernel, stride: (rows, columns). padding: ((top, bottom), (left, right)), in pixels.
    """

    kernel: tuple
    stride: tuple = (1, 1)
    padding: tuple = ((0, 0), (0, 0))

    def __str__(self):
        (kh, kw), (sh, sw), ((top, bottom), (left, right)) = self.kernel, self.stride, self.padding
        stride = "" if (sh, sw) == (1, 1) else f", stride {sh}x{sw}"
        if (top, left) == (bottom, right):
            padding = f", padding {top}x{left}" if top or left else ""
        else:
            padding = f", padding {top}+{bottom}x{left}+{right}"
        return f"{kh}x{kw}{stride}{padding}"

    def output(self, height, width):
        """How many (rows, columns) come out; none where the window does not fit."""
        return self.outputs(ROWS, height), self.outputs(COLUMNS, width)

    def outputs(self, dim, length):
        """How many come out along a dimension of this length."""
        k, s, _ = self.along(dim)
        return max(0, (length + sum(self.padding[dim - ROWS]) - k) // s + 1)

    def along(self, dim):
        """(kernel, stride, padding before) along a dimension of (n, H, W, C): ROWS or COLUMNS."""
        return self.kernel[dim - ROWS], self.stride[dim - ROWS], self.padding[dim - ROWS][0]

    def input_part(self, dim, outputs, length):
        """The slice of the image's rows or columns, `length` of them, that the slice `outputs` of the outputs along `dim` looks
        at: empty for an empty one."""
        k, s, before = self.along(dim)
        if outputs.stop <= outputs.start:
            return slice(0, 0)
        start = max(0, outputs.start * s - before)
        return slice(start, max(start, min(length, (outputs.stop - 1) * s - before + k)))

    def of_part(self, dim, outputs, length):
        """The window that computes this slice of the outputs from `input_part(dim, outputs, length)` alone."""
        k, s, before = self.along(dim)
        inside, pads = self.input_part(dim, outputs, length), (0, 0)
        if outputs.stop > outputs.start:
            pads = inside.start - (outputs.start * s - before), (outputs.stop - 1) * s - before + k - inside.stop
        padding = (pads, self.padding[1]) if dim == ROWS else (self.padding[0], pads)
        return Window(self.kernel, self.stride, padding)


def make_window(kernel, stride, padding, layer):
    """A Window from what users write: numbers, (rows, columns), or for the padding ((top, bottom), (left, right)).

    Raises ValueError naming the layer for what is no window.
    """
    name = type(layer).__name__
    (kh, kw), (sh, sw) = _pair(kernel, 1, f"{name}: kernel"), _pair(stride, 1, f"{name}: stride")
    if isinstance(padding, tuple | list) and len(padding) == 2:
        padding = tuple(_pair(pads, 0, f"{name}: padding") for pads in padding)
    else:
        padding = (_pair(padding, 0, f"{name}: padding"),) * 2
    return Window((kh, kw), (sh, sw), padding)


def _pair(value, least, what):
    """Two whole numbers from one or from two."""
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, Integral) and n >= least for n in pair):
        raise ValueError(f"{what} must be a whole number of at least {least}, or two of them, not {value!r}")
    return tuple(map(int, pair))


def image_output(window, shape, layer):
    """The (rows, columns) that come out for samples of `shape` (H, W, C); ValueError naming the layer if it does not fit."""
    if len(shape) != 3:
        raise ValueError(
            f"layer {layer.name} {layer!r} takes images (height, width, channels) but gets samples of shape {shape}"
        )
    rows, columns = window.output(*shape[:2])
    if not rows or not columns:
        raise ValueError(f"layer {layer.name} {layer!r}: its window does not fit into images of {shape[0]}x{shape[1]}")
    return rows, columns


def along(dim, part):
    """The index that takes `part` of dimension `dim` of an array; -1 is the last one."""
    return (Ellipsis, part) if dim == -1 else (slice(None),) * dim + (part,)


def take(array, index):
    """The block of an array at an index of one slice or index array for each dimension; a view where all are slices."""
    if sum(not isinstance(part, slice) for part in index) < 2:
        return array[tuple(index)]
    for dim, part in enumerate(index):  # one after another, since NumPy would pair index arrays up
        array = array[along(dim, part)]
    return array


def put(array, index, block):
    """Write a block to the place that `take` would take it from."""
    if sum(not isinstance(part, slice) for part in index) > 1:  # NumPy would pair index arrays up
        index = np.ix_(*(np.arange(n)[part] for part, n in zip(index, array.shape, strict=True)))
    array[tuple(index)] = block


def span(offset, stride, outputs, length, first=0):
    """(outputs, inputs): the slices of windows and of pixels that meet where window p looks at pixel p stride + offset.

    outputs: how many windows, of which the first has the number `first`. length: of the image.
    """
    offset += first * stride
    start = max(0, -(offset // stride))
    stop = min(outputs, max(start, (length - 1 - offset) // stride + 1))
    if stop <= start:
        return slice(0, 0), slice(0, 0)
    return slice(start, stop), slice(start * stride + offset, (stop - 1) * stride + offset + 1, stride)
