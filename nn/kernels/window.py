"""Which input pixels lie in the window of each output of a convolution or pooling, and how blocks of arrays are indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from numbers import Integral

import numpy as np

from gridgrad.nn.device import to_device
from gridgrad.nn.kernels.workspace import scratch

Pixels = int | Sequence[int]  # a number, or (rows, columns)
Padding = Pixels | Sequence[Sequence[int]]  # also ((top, bottom), (left, right))
ROWS, COLUMNS = 1, 2  # the dimensions of (n, H, W, C) that a window slides along


@dataclass(frozen=True)
class Window:
    """A window that slides over the rows and columns of an image."""

    kernel: tuple  # (rows, columns)
    stride: tuple
    padding: tuple  # ((top, bottom), (left, right)), in pixels

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
        """The slice of the image's `length` rows or columns at which a slice of the outputs looks; empty for an empty one."""
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
    """A Window from the arguments of a layer: a number, (rows, columns), or for the padding ((top, bottom), (left, right)).
    ValueError, which names the layer, if they are not whole numbers: at least 1, or 0 for the padding."""
    name = type(layer).__name__
    kernel, stride = _pair(kernel, 1, f"{name}: kernel"), _pair(stride, 1, f"{name}: stride")
    if isinstance(padding, tuple | list) and len(padding) == 2:
        padding = tuple(_pair(pads, 0, f"{name}: padding") for pads in padding)
    else:
        padding = (_pair(padding, 0, f"{name}: padding"),) * 2
    return Window(kernel, stride, padding)


def _pair(value, least, what):
    """A pair of whole numbers of at least `least`, from one number or two; ValueError, which names `what`, for others."""
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, Integral) and n >= least for n in pair):
        raise ValueError(f"{what} must be a whole number of at least {least}, or two of them, not {value!r}")
    return tuple(map(int, pair))


def image_output(window, shape, layer):
    """(rows, columns) of the output for samples of `shape`, (H, W, C). ValueError names the layer if there are none."""
    if len(shape) != 3:
        raise ValueError(
            f"layer {layer.name} {layer!r} takes images (height, width, channels) but gets samples of shape {shape}"
        )
    rows, columns = window.output(*shape[:2])
    if not rows or not columns:
        raise ValueError(f"layer {layer.name} {layer!r}: its window does not fit into images of {shape[0]}x{shape[1]}")
    return rows, columns


def along(dim, part):
    """The index that selects `part` of dimension `dim` of an array and all of the others. dim: counted from 0, or -1."""
    return (Ellipsis, part) if dim == -1 else (slice(None),) * dim + (part,)


def take(array, index):
    """The block of an array that one slice or index array for each dimension selects; a view if all are slices."""
    if sum(not isinstance(part, slice) for part in index) < 2:
        return array[tuple(index)]
    for dim, part in enumerate(index):  # one dimension at a time, because NumPy would combine index arrays elementwise
        array = array[along(dim, part)]
    return array


def put(array, index, block):
    """Write a block to the place from which `take` would read it. array: on the host or the device; index: on the host."""
    if sum(not isinstance(part, slice) for part in index) > 1:  # NumPy would combine index arrays elementwise
        index = np.ix_(*(np.arange(n)[part] for part, n in zip(index, array.shape, strict=True)))
    if not isinstance(array, np.ndarray):
        index = (part if isinstance(part, slice) else to_device(part) for part in index)
    array[tuple(index)] = block


def matching_slices(offset, stride, outputs, length, first=0):
    """(slice of outputs, slice of inputs): output p has input p stride + offset at one place of its window, inside the image.
    outputs, length: how many. first: the number of the first output of a block: its slices count from the block's start."""
    offset += first * stride
    start = max(0, -(offset // stride))
    stop = min(outputs, max(start, (length - 1 - offset) // stride + 1))
    if stop <= start:
        return slice(0, 0), slice(0, 0)
    return slice(start, stop), slice(start * stride + offset, (stop - 1) * stride + offset + 1, stride)


@lru_cache(maxsize=4096)
def runs(k, stride, before, outputs, length):
    """[(slice of outputs, range of places)]: runs of outputs whose windows have the same places inside the image."""
    inside = [range(max(0, before - p * stride), min(k, length + before - p * stride)) for p in range(outputs)]
    starts = [p for p in range(outputs) if not p or inside[p] != inside[p - 1]]
    return [(slice(start, stop), inside[start]) for start, stop in zip(starts, [*starts[1:], outputs])]


# ----- the gradient of a convolution's input, as convolutions of the gradient of its output


def turned_convolutions(window, dy, w, dx):
    """Yield (window, gradients, kernel, part) for each phase of the stride: `part` of dx is that convolution, of stride 1.
    Kernels are w, (kh, kw, C, F), turned around, with C and F exchanged, in scratch memory. Pixels of dx, (n, H, W, C), that no
    window sees are set to 0 here. dy: (n, P, Q, F)."""
    strides = window.stride
    for phase, single, gradients, part in phases_of(window, dy, dx):
        if not single:
            part.fill(0)
        elif part.size:
            some = w[phase[0] :: strides[0], phase[1] :: strides[1]]
            turned = scratch("turned", (*single.kernel, w.shape[3], w.shape[2]), w.dtype)
            turned[...] = some[::-1, ::-1].transpose(0, 1, 3, 2)
            yield single, gradients, turned, part


def phases_of(window, dy, dx):
    """Yield (phase, window, gradients, part) of `turned_convolutions`; no window where none of the kernel sees the part."""
    for phase in product(*map(range, window.stride)):
        dims = (_phase(window, dim, phase[dim - ROWS], dx.shape[dim], dy.shape[dim]) for dim in (ROWS, COLUMNS))
        taps, padding, gradients, pixels = zip(*dims)
        single = Window(taps, (1, 1), padding) if all(taps) else None
        yield phase, single, dy[:, *gradients], dx[:, *pixels]


def _phase(window, dim, phase, length, outputs):
    """(taps, padding, slice of outputs, slice of pixels): every s-th pixel of `length`, s being the stride, and the outputs
    whose gradients reach them, with zeros to add (before, after). Windows see them under `taps` rows or columns of the
    kernel, every s-th, the first of which is `phase`."""
    k, stride, before = window.along(dim)
    taps = len(range(phase, k, stride))
    start = (phase - before) % stride
    first = (start + before) // stride - taps + 1  # the first output whose gradient reaches the first pixel
    stop = first + len(range(start, length, stride)) + taps - 1
    padding = max(0, -first), max(0, stop - max(outputs, first))
    return taps, padding, slice(max(0, first), max(0, first, min(outputs, stop))), slice(start, length, stride)
