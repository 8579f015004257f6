"""A check in every pass of every layer that all values are finite, to find where the first NaN or infinity comes from. A search
after the step (`nn/divergence.py`) comes too late for that: by then a gradient that was not finite has become a parameter, and
in a pipeline the activations are gone."""

import numpy as np

from gridgrad.nn.divergence import DATA, RATE, all_finite
from gridgrad.nn.observer import Observer
from gridgrad.parallel.training.steps import Diverged

NOTHING = np.iinfo(np.int64).max  # the position of what was found while nothing was
STEP = 1 << 40  # positions in one step
PASS = 1 << 36  # positions in one of its parts: the forward pass, the backward pass, the update


class FiniteCheck(Observer):
    """Looks at what each layer takes and returns and at all gradients and parameters of a ParallelSequential.
    What was found first has the lowest position: the step, the part of the step, and the place in the network."""

    def __init__(self, net):
        self.net, self.step = net, 0
        self._position, self._words = NOTHING, ""
        net.observe(self)

    def computed(self, layer, phase, taken, result, context):
        self.step = context.step
        of = f"of layer {layer.name} ({layer.description})"
        if phase == "forward":
            if not all_finite(taken):
                place = self._place(layer)
                self._found(2 * place, f"the input {of}", place and RATE)
            elif not all_finite(result):
                self._found(2 * self._place(layer) + 1, f"the output {of}")
        elif result is not None and not all_finite(result):
            self._found(PASS - 2 * self._place(layer), f"the gradient of the input {of}")

    def written(self, layer):
        for p in layer.parameters:
            if not all_finite(p.grad):
                self._found(PASS - 2 * self._place(layer) - 1, f"the gradient of parameter {layer.name}.{p.name}")

    def after_step(self, step):
        """Called after training step number `step`. Collective. Raises Diverged, on all ranks, if something was not finite."""
        self.step = step
        for place, (layer, p) in enumerate(self.net.parameters if self._position == NOTHING else ()):
            if not all_finite(p.value):
                self._found(2 * PASS + place, f"parameter {layer.name}.{p.name}", when=" after the update")
        grid = self.net.grid
        first = int(grid.min(np.array([self._position]))[0])
        if first < NOTHING:
            raise Diverged(next(filter(None, grid.comm.allgather(self._words if self._position == first else None))))

    def _place(self, layer):
        leaves = list(self.net.leaves())
        return next((at for at, leaf in enumerate(leaves) if leaf is layer or leaf.name == layer.name), len(leaves))

    def _found(self, position, what, advice=RATE, when=""):
        """Note that something is not finite, unless something before it was not. position: within the step."""
        position += self.step * STEP
        if position < self._position:
            self._position, self._words = position, f"step {self.step}: {what} is not finite{when}; {advice or DATA}"
