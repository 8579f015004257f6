"""The prediction of a training step: what it takes, what it needs and what it sends, in all and for each rank."""

from dataclasses import dataclass, field

OPTIMIZER_ARRAYS = 1  # that the optimizer keeps, each as large as the parameters: one for SGD with momentum


@dataclass(frozen=True)
class RankStep:
    """How a rank spends a step, in seconds, what it needs and what it sends."""

    busy: float  # computing; in a pipeline also communicating within its stage
    waiting: float = 0.0  # for other ranks to arrive at a collective, or for messages of a pipeline
    communicating: float = 0.0  # in collectives, once all have arrived
    bytes: int = 0  # that it sends
    messages: int = 0  # that it sends in exchanges along the axis `model`
    collectives: int = 0  # that it takes part in, and messages of other stages
    memory_of: dict = field(default_factory=dict)  # what `memory_of` returns
    open: int = 1  # the most micro-batches that are open in its chunks

    @property
    def memory(self):
        """Bytes that it needs."""
        return sum(self.memory_of.values())


@dataclass(frozen=True)
class StepPrediction:
    """A predicted training step."""

    seconds: float
    ranks: tuple  # of RankSteps, along the axis `model` or `stage`; only one, where only the slowest rank is looked at
    # {what: seconds} of the rank that bounds the step: "compute" (forward, backward and loss), "update" (of the parameters),
    # "gradients" (their sums), "activations" (all other communication) and, between unlike ranks, "waiting"
    parts: dict

    @property
    def bound_by(self):
        """The number of the rank that bounds the step, because it is busy for the longest time."""
        return max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].busy)

    @property
    def bounding(self):
        """The RankStep of that rank."""
        return self.ranks[self.bound_by]

    @property
    def memory(self):
        """Bytes that the rank with the most of them needs."""
        return max(rank.memory for rank in self.ranks)

    @property
    def bytes(self):
        """Bytes that the ranks send together."""
        return sum(rank.bytes for rank in self.ranks)

    @property
    def messages(self):
        """Messages of exchanges that the ranks send together."""
        return sum(rank.messages for rank in self.ranks)

    @property
    def use(self):
        """The mean share of the time in which a rank is busy."""
        return sum(rank.busy for rank in self.ranks) / (len(self.ranks) * self.seconds)


def memory_of(itemsize, parameters, activations, gradients_of_activations, scratch=0, gradients=1, versions=1):
    """{what: bytes} that a rank needs, from numbers of elements of `itemsize` bytes; activations with masks and buffers of
    messages. gradients, versions: how many of all parameters it keeps, such as the gradient of a micro-batch beside the sum."""
    return {
        "parameters": versions * parameters * itemsize,
        "gradients": gradients * parameters * itemsize,
        "optimizer": OPTIMIZER_ARRAYS * parameters * itemsize,
        "activations": activations * itemsize,
        "gradients of activations": gradients_of_activations * itemsize,
        "scratch": scratch * itemsize,
    }


def gradients_kept(micro_batches):
    """How many gradients of all parameters a rank keeps: that of a micro-batch, and the sum if there are several."""
    return 1 + (micro_batches > 1)
