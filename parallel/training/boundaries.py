"""What travels between two consecutive chunks of a pipeline, and between which ranks.

A boundary lies before a chunk. In forward it brings the outputs of the chunk before it to where the chunk takes them; in
backward it brings the gradient of the chunk's input back. What a rank has itself is not sent.

| class              | where the chunks are                                        | what is sent                          |
|--------------------|-------------------------------------------------------------|---------------------------------------|
| `StageBoundary`    | each on one rank of the axis `stage`                        | the whole array, from rank to rank    |

All methods have an argument `way`, "forward" or "backward", and `samples`, those of the global micro-batch.
"""

from nn.device import xp


class StageBoundary:
    """Between two chunks, each of which is on one rank of the axis `stage`.

    layout: of the activations along the other axes. coordinates: of this rank. source, target: the ranks, along the axis, of
    the chunk before the boundary and of the chunk behind it. rank: this one.
    """

    def __init__(self, layout, coordinates, source, target, rank):
        self.layout, self.coordinates, self.rank = layout, coordinates, rank
        self.ends = {"forward": (source, target), "backward": (target, source)}

    def shape(self, way, samples):
        """The shape of the array that this rank has after the way."""
        return self.layout.of(samples).local_shape(self.coordinates)

    def is_sender(self, way):
        """Whether this rank sends something."""
        source, target = self.ends[way]
        return source == self.rank != target

    def is_receiver(self, way):
        """Whether this rank receives something."""
        source, target = self.ends[way]
        return target == self.rank != source

    def sends(self, way, array, samples, take):
        """{rank: flat array} of the messages from this rank, which must not change before they have left.

        array: what this rank has before the way. take: a function of a size that returns a flat array to be sent.
        """
        return {self.ends[way][1]: array.reshape(-1)}

    def receives(self, way, samples, out, take):
        """{rank: flat array} for the messages to this rank. out: the array of `shape` that it will have after the way."""
        return {self.ends[way][0]: out.reshape(-1)}

    def join(self, way, own, received, out, samples):
        """Write `out`. own: what this rank had before the way, or None. received: what `receives` returned, with messages."""
        if own is not None:
            xp.copyto(out, own)
