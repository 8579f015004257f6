"""The gradient of a convolution's input as convolutions of the gradient of its output."""

from itertools import product

from gridgrad.nn.kernels.window import COLUMNS, ROWS, Window
from gridgrad.nn.kernels.workspace import scratch


def turned_convolutions(window, dy, w, dx):
    """Yield (window, gradients, kernel, part) for each phase of the stride: `part` of dx is that convolution of the gradients.

    window: that of the convolution. dy: (n, P, Q, F), the gradient of its output; w: (kh, kw, C, F). dx: (n, H, W, C), the
    gradient of its input; pixels that no window sees are set to 0 here. All convolutions have stride 1. They use the rows and
    columns of w in reverse order, with the roles of C and F exchanged. The kernel is scratch memory.
    """
    strides = window.stride
    for phases in product(*map(range, strides)):
        rows, columns = (Phase(window, dim, phase, dx.shape[dim], dy.shape[dim]) for dim, phase in zip((ROWS, COLUMNS), phases))
        part = dx[:, rows.pixels, columns.pixels]
        if not rows.taps or not columns.taps:
            part.fill(0)
        elif part.size:
            some = w[phases[0] :: strides[0], phases[1] :: strides[1]]
            turned = scratch("turned", (rows.taps, columns.taps, w.shape[3], w.shape[2]), w.dtype)
            turned[...] = some[::-1, ::-1].transpose(0, 1, 3, 2)
            single = Window((rows.taps, columns.taps), (1, 1), (rows.padding, columns.padding))
            yield single, dy[:, rows.gradients, columns.gradients], turned, part


class Phase:
    """Every s-th pixel along one dimension of an image, s being the stride, and what its gradient is made of.

    The windows that look at these pixels see them under every s-th row or column of the kernel. So their gradient is the
    convolution with stride 1 of the gradient of the output with these `taps`, turned around.

    pixels: the slice of the image. taps: the number of rows or columns of the kernel. gradients: the slice of the gradients of
    the output that matter. padding: the zeros to add (before, after) them.
    """

    def __init__(self, window, dim, phase, length, outputs):
        """phase: the first of the taps. length, outputs: those of the image and of the output along the dimension."""
        k, stride, before = window.along(dim)
        self.taps = len(range(phase, k, stride))
        start = (phase - before) % stride
        self.pixels = slice(start, length, stride)
        first = (start + before) // stride - self.taps + 1  # the first output whose gradient reaches the first pixel
        stop = first + len(range(start, length, stride)) + self.taps - 1
        self.gradients = slice(max(0, first), max(0, first, min(outputs, stop)))
        self.padding = max(0, -first), max(0, stop - max(outputs, first))
