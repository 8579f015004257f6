"""The weights before earlier updates, for micro-batches whose forward pass used them: weight stashing (PipeDream 2019, 3.3)."""

from contextlib import contextmanager


class WeightVersions:
    """Keeps weights that an update would overwrite while some micro-batch still needs them for its backward pass.

    flat: the FlatParameters of this rank. number: how many updates there have been.
    """

    def __init__(self, flat):
        self.params, self.places = flat.params, flat.places
        self.number, self._kept, self._free = 0, {}, []

    def before_update(self, needed):
        """Called before an update. needed: the numbers of the versions that open micro-batches have used in forward."""
        for old in self._kept.keys() - set(needed):
            self._free.append(self._kept.pop(old))
        if self.number in needed:
            kept = self._free.pop() if self._free else self.params.copy()
            kept[...] = self.params
            self._kept[self.number] = kept
        self.number += 1

    @contextmanager
    def used(self, number):
        """A `with` block in which the layers use the weights of a version."""
        if number == self.number:
            yield
            return
        self._point_to(self._kept[number])
        try:
            yield
        finally:
            self._point_to(self.params)

    def _point_to(self, flat):
        for _, p, where in self.places:
            p.value = flat[where].reshape(p.block_shape)
