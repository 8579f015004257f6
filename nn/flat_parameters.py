"""The parameters of a network and their gradients in two flat buffers, and when an optimizer may update which part of them."""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from gridgrad.nn.device import Array, empty
from gridgrad.nn.layer import Layer, Parameter


class FlatParameters:
    """All parameters of a network in one flat array and all gradients in another; layers hold views of them.
    params, grads: these arrays; None until `lay_out`. places: [(layer, Parameter, its slice of them)], in their order.
    """

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

    def updated(self, where: slice) -> None:
        """Called when the optimizer has written the parameters of the slice `where`."""

    def end_update(self) -> None:
        """Called when the optimizer has written all its slices."""
