"""All communication inside a network: a layer that moves activations from one placement to another along a grid axis."""

from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer
from gridgrad.parallel.placement.moves import Step, move_of
from gridgrad.parallel.placement.partition import size

STEPS = 64  # how many Steps a layer caches: one for each direction, shape of the array and batch size


class Redistribute(Layer):
    """Moves `source -> target` in forward and `target* -> source*` in backward, where * is the adjoint placement.

    `placements.py` defines the adjoint, and `moves.py` says which collective each move is. Arrays are (samples, features) or
    (samples, height, width, channels). All passes are collective over the group.
    group: the Group of the ranks along the axis. source, target: placements along it. shape: of a whole sample.
    rows: a function from the global batch size to the slice of the global minibatch that the ranks of the group hold together;
    None: they hold the whole minibatch.
    """

    move_of = staticmethod(move_of)  # the row of the table; a subclass may have another algorithm for the same move

    def __init__(self, group, source, target, shape, rows=None):
        self.group, self.source, self.target, self.shape = group, source, target, tuple(shape)
        self.rows = rows or (lambda batch_size: slice(0, batch_size))
        self.ways = {"forward": (source, target), "backward": self.back}
        self._steps = {}

    @property
    def back(self):
        """(source, target) of the move in backward: the adjoint of the one in forward."""
        return self.target.adjoint, self.source.adjoint

    def forward(self, x, context):
        return self.move(x, "forward", context)

    def input_gradient(self, dy, context):
        return self.move(dy, "backward", context)

    def moves(self, direction):
        """Whether the layer does anything in a direction, "forward" or "backward"."""
        source, target = self.ways[direction]
        return source != target and (self.group.size > 1 or self.is_exchange)

    def move(self, x, direction, context):
        """Move x from the source to the target of a direction; returns this rank's array. Collective over the group."""
        step = self.step(direction, x.shape, context.batch_size)
        if step is None:
            return x
        return step.move.run(step, xp.ascontiguousarray(x), self.space(direction, context), self.name)

    def space(self, direction, context):
        """A function (name, shape, dtype) that returns a workspace of the context, a separate one for each direction."""
        workspace = context[self].workspace
        return lambda name, shape, dtype: workspace((direction, name), shape, dtype)

    def step(self, direction, here, batch_size):
        """The Step of a direction, or None where nothing moves.

        here: the shape of this rank's array before the move. batch_size: of the global minibatch.
        """
        key = direction, here, batch_size
        if key not in self._steps:
            if len(self._steps) >= STEPS:
                self._steps.clear()
            way = self.ways[direction]
            samples = size(self.rows(batch_size))
            self._steps[key] = Step(self.group, *way, here, samples, self.move_of(*way)) if self.moves(direction) else None
        return self._steps[key]

    def __repr__(self):
        shape, ranks = "x".join(map(str, self.shape)), f"{self.group.size} ranks"
        if self.is_exchange:
            needed, owned = (shard.partition.sizes for shard in (self.target, self.source))
            return f"Exchange(dim={self.source.dim} of {shape}, up to {max(map(int.__sub__, needed, owned))} more, {ranks})"
        return f"Redistribute({self.source} -> {self.target} of {shape}, {ranks})"

    @property
    def is_exchange(self):
        """Whether both placements are shards of the same dimension."""
        return self.source.dim is not None and self.source.dim == self.target.dim
