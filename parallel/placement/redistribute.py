"""All communication inside a network: a layer that moves an array from one placement to another along one axis of the grid."""

from nn.device import xp
from nn.layer import Layer
from parallel.placement.moves import Step
from parallel.placement.partition import size

STEPS = 64  # shapes of minibatches whose steps are remembered


class Redistribute(Layer):
    """`source -> target` in forward, `target* -> source*` in backward, where * is the adjoint: see `moves.py`.

    Arrays are (samples, features) or (samples, height, width, channels).
    group: the ranks of the axis. source, target: placements along it. shape: of a whole sample.
    rows: from the global batch size, the slice of samples that the *group* holds together.
    """

    def __init__(self, group, source, target, shape, rows=None):
        self.group, self.source, self.target, self.shape = group, source, target, tuple(shape)
        self.rows = rows or (lambda batch_size: slice(0, batch_size))
        self.ways = {"forward": (source, target), "backward": self.back}
        self._steps = {}

    @property
    def back(self):
        """(source, target) of what backward moves: the adjoint."""
        return self.target.adjoint, self.source.adjoint

    def forward(self, x, context):
        return self.move(x, "forward", context)

    def input_gradient(self, dy, context):
        return self.move(dy, "backward", context)

    def moves(self, direction):
        """Whether there is anything to do in a direction, "forward" or "backward"."""
        source, target = self.ways[direction]
        return source != target and (self.group.size > 1 or self.is_exchange)

    def move(self, x, direction, context):
        """x, placed as the source of a direction, placed as its target."""
        step = self.step(direction, x.shape, context.batch_size)
        if step is None:
            return x
        return step.move.run(step, xp.ascontiguousarray(x), self.space(direction, context), self.name)

    def space(self, direction, context):
        """Workspaces by name, those of one direction in a context."""
        workspace = context[self].workspace
        return lambda name, shape, dtype: workspace((direction, name), shape, dtype)

    def step(self, direction, here, batch_size):
        """The Step of a direction for this rank's arrays of the shape `here` in a minibatch of `batch_size` samples; None where
        nothing moves."""
        key = direction, here, batch_size
        if key not in self._steps:
            if len(self._steps) >= STEPS:
                self._steps.clear()
            way = self.ways[direction]
            samples = size(self.rows(batch_size))
            self._steps[key] = Step(self.group, *way, here, samples) if self.moves(direction) else None
        return self._steps[key]

    def __repr__(self):
        shape, ranks = "x".join(map(str, self.shape)), f"{self.group.size} ranks"
        if self.is_exchange:
            needed, owned = (shard.partition.sizes for shard in (self.target, self.source))
            return f"Exchange(dim={self.source.dim} of {shape}, up to {max(map(int.__sub__, needed, owned))} more, {ranks})"
        return f"Redistribute({self.source} -> {self.target} of {shape}, {ranks})"

    @property
    def is_exchange(self):
        """Whether both placements shard the same dimension."""
        return self.source.dim is not None and self.source.dim == self.target.dim
