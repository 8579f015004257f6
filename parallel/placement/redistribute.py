"""Communication between the layers of a network: a layer that moves activations from one placement to another along an axis."""

from collections.abc import Callable, Sequence

import numpy as np

from gridgrad.nn import device
from gridgrad.nn.context import Context
from gridgrad.nn.device import xp
from gridgrad.nn.graphs import hold
from gridgrad.nn.layer import Layer
from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.placement.moves import Move, move_of
from gridgrad.parallel.placement.partition import size
from gridgrad.parallel.placement.placements import AtMaster, Placement

STEPS = 64  # how many Moves a layer caches: one for each direction, shape of the array and batch size


class Redistribute(Layer):
    """Moves `source -> target` in forward and `target* -> source*` in backward, where * is the adjoint placement.

    Arrays are (samples, features) or (samples, height, width, channels). All passes are collective over the group; KeyError in
    them if the table of moves has no row for these placements.

    Parameters
    ----------
    group : Group
        The ranks along the axis.
    source, target : placement
        Placements along it.
    shape : sequence of int
        Of a whole sample.
    rows : function, optional
        A function from the global batch size to the slice of the global minibatch that the ranks of the group hold together.
        By default they hold the whole minibatch.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Context
    >>> from gridgrad.parallel import C, Partition, ProcessGrid, Redistribute, Replicate, Shard
    >>> with ProcessGrid(MPI.COMM_WORLD, model=MPI.COMM_WORLD.size) as grid:
    ...     features = Partition.even(5, grid.size)
    ...     layer = Redistribute(grid.group("model"), Shard(C, features), Replicate(), (5,))
    ...     mine = np.arange(10.0).reshape(2, 5)[:, features.part(grid.rank)]
    ...     print(layer.forward(mine, Context(batch_size=2)))
    [[0. 1. 2. 3. 4.]
     [5. 6. 7. 8. 9.]]
    """

    passes_buffer = False  # its arrays are its own, in both directions: `Move.held` counts them
    move_of = staticmethod(move_of)  # the row of the table; a subclass may have another algorithm for the same move

    def __init__(
        self,
        group: Group,
        source: Placement,
        target: Placement,
        shape: Sequence[int],
        rows: Callable[[int], slice] | None = None,
    ) -> None:
        self.group, self.source, self.target, self.shape = group, source, target, tuple(shape)
        self.rows = rows or (lambda batch_size: slice(0, batch_size))
        self.ways = {"forward": (source, target), "backward": (target.adjoint, source.adjoint)}
        self._steps: dict[tuple, Move | None] = {}

    def has_own_output(self, before: Layer | None) -> bool:
        return False

    def forward(self, x: np.ndarray, context: Context) -> np.ndarray:
        """Move activations, this rank's array, from the source to the target; returns its array there. Collective."""
        return self.move(x, "forward", context)

    def input_gradient(self, dy: np.ndarray, context: Context) -> np.ndarray:
        """Move their gradient from the adjoint of the target to the adjoint of the source. Collective."""
        return self.move(dy, "backward", context)

    def moves(self, direction: str) -> bool:
        """Whether the layer does anything in a direction, "forward" or "backward"."""
        source, target = self.ways[direction]
        return source != target and (self.group.size > 1 or self.is_exchange)

    def move(self, x: np.ndarray, direction: str, context: Context) -> np.ndarray:
        """Move x from the source to the target of a direction; returns this rank's array. Collective over the group."""
        key = direction, x.shape, context.batch_size
        step = self._steps[key] if key in self._steps and device.recording is None else self.step(*key)
        return x if step is None else step.run(xp.ascontiguousarray(x), context[self, direction].workspace, self.name)

    def step(self, direction: str, here: tuple[int, ...], batch_size: int) -> Move | None:
        """The Move of a direction, or None where nothing moves. here: the shape of this rank's array before it."""
        key = direction, here, batch_size
        if key not in self._steps:
            if len(self._steps) >= STEPS:
                self._steps.clear()
            way = self.ways[direction]
            samples = size(self.rows(batch_size))
            self._steps[key] = self.move_of(*way)(self.group, *way, here, samples) if self.moves(direction) else None
        return hold(self._steps[key])  # a graph uses its indices, also after it is forgotten here

    def __repr__(self):
        shape, ranks = "x".join(map(str, self.shape)), f"{self.group.size} ranks"
        if self.is_exchange and AtMaster not in (type(self.source), type(self.target)):
            needed, owned = (shard.partition.sizes for shard in (self.target, self.source))
            return f"Exchange(dim={self.source.dim} of {shape}, up to {max(map(int.__sub__, needed, owned))} more, {ranks})"
        return f"Redistribute({self.source} -> {self.target} of {shape}, {ranks})"

    @property
    def is_exchange(self) -> bool:
        """Whether both placements are shards of the same dimension."""
        return self.source.dim is not None and self.source.dim == self.target.dim
