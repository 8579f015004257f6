"""A reader of encoded samples: they are encoded anew for each minibatch, on the grid, so that no rank stores them all."""

from gridgrad.nn.device import to_device
from gridgrad.nn.sequence import Chunk
from gridgrad.parallel.placement.placements import N
from gridgrad.parallel.placement.placer import Placer


class EncodedReader:
    """The minibatches of a network that is to reproduce what an encoder says of the samples.

    net: a ParallelSequential, whose inputs are the encodings and whose targets are its own inputs. encoder: another one on the
    same grid; it is not trained here. reader: that of the encoder, see `parallel/training/minibatch_readers.py`.

    The encodings are moved from where the encoder leaves them to where the network takes them, by the same redistributions as
    between two layers. Its targets lie where the encoder leaves them. ValueError if the network's outputs lie elsewhere.
    """

    def __init__(self, net, encoder, reader):
        if net.output != encoder.output:
            raise ValueError("the outputs of the network must have the shape and the layout of those of the encoder")
        self.net, self.encoder, self.reader = net, encoder, reader
        at, plans = encoder.output.placements, {axis: {} for axis in net.grid.sizes}
        start = at, tuple(axis for axis, placement in at.items() if placement.dim == N)
        placer = Placer(net.grid, plans, encoder.output.sample_shape, net.splits, start=start)
        for axis, placement in net.input.placements.items():
            placer.move(axis, placement, "encodings")
        self.moves = Chunk(placer.layers)

    def load(self, indices):
        """(x, y) of this rank for a global minibatch: both are arrays that the next call overwrites. Collective.

        indices: the samples of the minibatch, an array of the same values on all ranks.
        """
        samples, _ = self.reader.load(indices)
        y = self.encoder.forward(to_device(samples), batch_size=len(indices))
        return self.moves.forward(y, self.encoder.context), y
