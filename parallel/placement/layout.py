"""The layout of an array: its placement along every axis of the grid. For any rank it says, without communication, which block
the rank holds, which ranks hold the same block, which of them counts it in a sum over the grid, and along which axes its
gradient is summed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gridgrad.nn.device import empty, xp
from gridgrad.nn.kernels.window import put
from gridgrad.parallel.placement.moves import move_between
from gridgrad.parallel.placement.partition import size, within
from gridgrad.parallel.placement.placements import Invariant, Replicate


@dataclass(frozen=True)
class Layout:
    """The placement of an array along every axis of a grid.

    Parameters
    ----------
    shape : tuple of int or None
        Of the whole array; its first length is None for activations, whose samples come with each minibatch.
    sizes : dict
        {axis: ranks}.
    placements : dict
        {axis: placement}, the outermost axis first: where several axes shard one dimension, each of them divides what the ones
        before it left together. Along an axis that is not named every rank holds the whole array.
    here : dict, optional
        {axis: coordinate} of this rank, for `index`.

    Examples
    --------
    >>> from gridgrad.parallel import Layout, Partition, Shard
    >>> weight = Layout((5, 7), {"batch": 2, "model": 3}, {"model": Shard(1, Partition.even(7, 3))})
    >>> weight.block({"batch": 0, "model": 2}), weight.replicated
    ((slice(0, 5, None), slice(5, 7, None)), ('batch',))
    """

    shape: tuple[int | None, ...]
    sizes: Mapping[str, int] = field(hash=False)
    placements: Mapping[str, Any] = field(hash=False)
    here: Mapping[str, int] | None = field(default=None, compare=False, repr=False)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a whole sample of activations: (features,) or (height, width, channels)."""
        return self.shape[1:]  # type: ignore[return-value]  # only the number of samples may be open

    def of(self, samples: int) -> "Layout":
        """The layout of activations with `samples` samples."""
        return replace(self, shape=(samples, *self.shape[1:]))

    @cached_property
    def index(self) -> tuple[slice | np.ndarray, ...]:
        """The block that this rank, the one of `here`, holds: see `block`."""
        assert self.here is not None, "a Layout without a rank has no index: ask for the block at some coordinates"
        return self.block(self.here)

    def part(self, dim: int, coordinates: Mapping[str, int], inside: str | None = None) -> slice | np.ndarray:
        """The indices of dimension `dim` that the rank at `coordinates` holds, a slice or an index array.
        inside: if given, the name of an axis: only the axes before it divide the dimension."""
        dim %= len(self.shape)
        held: slice | np.ndarray = slice(0, self.shape[dim])
        for axis, placement in self.placements.items():
            if axis == inside:
                break
            split = placement.split_of(dim, len(self.shape))
            if split is not None:
                held = within(held, split.of_length(size(held)).part(coordinates[axis]))
        return held

    def block(self, coordinates: Mapping[str, int]) -> tuple[slice | np.ndarray, ...]:
        """The block that the rank at `coordinates` holds: for each dimension a slice or an index array."""
        return tuple(self.part(dim, coordinates) for dim in range(len(self.shape)))

    def rows(self, samples: int, coordinates: Mapping[str, int]) -> slice | np.ndarray:
        """The slice of a global minibatch of `samples` samples that the rank at `coordinates` holds, of activations."""
        return self.of(samples).part(0, coordinates)

    def sample_block(self, coordinates: Mapping[str, int]) -> tuple[slice | np.ndarray, ...]:
        """The part of each sample that the rank at `coordinates` holds, of activations: one for each dimension of a sample."""
        return tuple(self.part(dim, coordinates) for dim in range(1, len(self.shape)))

    def local_shape(self, coordinates: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of the block that the rank at `coordinates` holds."""
        return tuple(size(part) for part in self.block(coordinates))

    @property
    def replicated(self) -> tuple[str, ...]:
        """The axes along which every rank holds the same block."""
        return self._placed(Replicate(), Invariant())

    @property
    def summed(self) -> tuple[str, ...]:
        """The axes along which the gradient of the array has to be summed: every rank holds the array and a partial sum of it.
        Along the others, where the array is Invariant, every rank has the whole gradient."""
        return self._placed(Replicate())

    @cached_property
    def sharing(self) -> tuple[tuple[str, ...], ...]:
        """(`summed`, `replicated`) without axes of one rank: equal for arrays that the same ranks sum, and hold copies of."""
        return tuple(tuple(axis for axis in axes if self.sizes[axis] > 1) for axes in (self.summed, self.replicated))

    def _placed(self, *placements):
        return tuple(axis for axis in self.sizes if self.placements.get(axis, Replicate()) in placements)

    @property
    def sharded(self) -> tuple[str, ...]:
        """The axes along which the ranks hold different blocks, the outermost first."""
        return tuple(axis for axis, placement in self.placements.items() if placement.dim is not None)

    def is_counted(self, coordinates: Mapping[str, int]) -> bool:
        """Whether the rank at `coordinates` counts in sums over the grid: one of those that hold the same block does."""
        return all(coordinates[axis] == 0 for axis in self.replicated)


def move_block(grid, block, source, target, layer):
    """This rank's block in the Layout `target` of a parameter, from its block in the Layout `source`. Collective. It is one
    move of the table along each axis where they differ, of arrays of which no two axes shard the same dimension."""
    for axis in grid.sizes:
        before, behind = (_placement(layout, axis) for layout in (source, target))
        if before != behind:
            move = move_between(grid.group(axis), before, behind, block.shape)
            block = move.run(xp.ascontiguousarray(block), lambda name, shape, dtype: xp.empty(shape, dtype), layer)
    return block


def _placement(layout, axis):
    """The placement along an axis, with a dimension that is counted from 0."""
    placement = layout.placements.get(axis, Replicate())
    return placement if placement.dim is None else replace(placement, dim=placement.dim % len(layout.shape))


def gather_blocks(grid, block, layout, layer, everywhere=False):
    """The whole array, on rank 0 or `everywhere`, from each rank's block in a Layout; None elsewhere. Collective. One gather
    brings each block once; where a rank has all, its block itself is returned."""
    if not everywhere and not layout.is_counted(grid.coordinates):
        return None
    group = grid.group(*layout.sharded)
    if group.size == 1:
        return block
    blocks = [layout.block(grid.coordinates | place) for place in grid.places(*layout.sharded)]
    counts = [prod(map(size, held)) for held in blocks]
    flat = empty(sum(counts), block.dtype) if everywhere or group.rank == 0 else None
    gather = group.all_gather if everywhere else group.gather
    gather(block, flat, counts, layer)
    if flat is None:
        return None
    whole, start = xp.zeros(layout.shape, block.dtype), 0  # blocks may leave out what is zero in a sparse weight
    for held, count in zip(blocks, counts, strict=True):
        put(whole, held, flat[start : start + count].reshape([size(part) for part in held]))
        start += count
    return whole
