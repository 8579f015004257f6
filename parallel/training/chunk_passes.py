"""What an Executor works on: the micro-batches of a step, and the pass of each through a chunk; and what drives its steps."""

from dataclasses import dataclass, field

import numpy as np

from gridgrad.nn.context import Context


@dataclass
class MicroBatch:
    """The part of a minibatch that passes through the pipeline as one.

    x, y: this rank's blocks of the inputs and targets, on the host or the device. samples: its global number of samples.
    first: the index of the first of them in the global minibatch, which has `minibatch_size`. step: the number of the training
    step, on which dropout masks depend.
    """

    x: np.ndarray
    y: np.ndarray
    samples: int
    first: int
    minibatch_size: int
    step: int


@dataclass
class ChunkPass:
    """One micro-batch in one chunk, from when its input is expected until the gradients of the parameters are computed.

    context: what the layers store, from forward on. version: of the weights that forward used. The others are dicts with the
    keys "forward" and "backward". takes: the chunk's input. own: the part of it that this rank computed. received: the parts
    that came from others, {rank: array}. made: the chunk's output, until it is sent.
    """

    context: Context | None = None
    version: int = 0
    takes: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)
    received: dict = field(default_factory=dict)
    made: dict = field(default_factory=dict)


class StepDriver:
    """What an Executor needs of the network as a whole.

    loss: such as SoftmaxCrossEntropy(). observer: the network's observer or None.
    """

    loss = observer = None

    def prepare(self, context, micro_batch):
        """Begin a context for a micro-batch."""
        raise NotImplementedError

    def resume(self, context):
        """Called before a backward pass in a context."""

    def loss_known(self, number):
        """Called when this rank's part of the loss of a micro-batch is known."""

    def begins(self, instruction):
        """Called before the gradients of the parameters of a chunk are computed."""

    def computed(self, instruction):
        """Called when they are written in the flat buffer."""

    def update(self, micro_batch):
        """Update the parameters. micro_batch: the number of the last one whose gradients take part."""
        raise NotImplementedError
