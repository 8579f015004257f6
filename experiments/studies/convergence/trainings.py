"""Trainings of one network in several ways, which take turns on the same ranks.

| way        | grid    | what a step is                                                                               |
|------------|---------|----------------------------------------------------------------------------------------------|
| serial     | 1 rank  | rank 0 trains, and the others sleep                                                          |
| batch      | batch=N | each rank has a part of the minibatch, and the gradients are summed                          |
| 1f1b       | stage=N | micro-batches pass through stages of whole layers; one update                                |
| async      | stage=N | minibatches overlap; the backward pass uses the weights of its forward pass                  |
| nostash    | stage=N | the same, but the backward pass uses the newest weights                                      |
| hypergraph | model=N | minibatches overlap; the filters are divided by a hypergraph partition, the thesis' own way  |
"""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from gridgrad.datasets.views import Subset
from gridgrad.experiments.common import train_setup
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.random import permutation
from gridgrad.parallel import READERS, ProcessGrid, evaluate, parallelize
from gridgrad.parallel.job.waiting import broadcast
from gridgrad.parallel.training import MicroBatchReader, minibatch_indices, steps_per_epoch
from gridgrad.parallel.training.steps import Diverged

SEEN = (
    "epoch {epoch:.2f}, {seconds:.1f} s, loss {training_loss:.4f}, accuracy {training_accuracy:.2f} % in training, "
    "{test_accuracy:.2f} % in the test"
)


@dataclass(frozen=True)
class TrainingWay:
    """axis: of the grid with all ranks; None for one rank. plan, pipeline: as `parallelize` takes them; {} in the latter is the
    number of minibatches under way."""

    axis: str | None
    pipeline: str | None = None
    plan: str | None = None

    def label(self, ranks, in_flight):
        """The way in words."""
        grid = f"{self.axis}={ranks}" if self.axis else "serial"
        return ", ".join(filter(None, (grid, self.plan, self.pipeline and self.pipeline.format(in_flight))))


WAYS = {
    "serial": TrainingWay(None),
    "batch": TrainingWay("batch"),
    "1f1b": TrainingWay("stage", "1f1b"),
    "async": TrainingWay("stage", "async:{}"),
    "nostash": TrainingWay("stage", "async:{}:nostash"),
    "hypergraph": TrainingWay("model", "async:{}", "hypergraph"),
}


class ConvergenceTraining:
    """The training of a network in one way. Its methods are collective.

    way: a TrainingWay. args: the options. serial: the network. data: the Dataset. comm: of the ranks that train.
    history: a dict for each evaluation. over: whether the target is reached or the training has diverged.
    """

    def __init__(self, way, args, serial, data, comm):
        self.args, self.data, self.label = args, data, way.label(comm.size, args.in_flight)
        self.grid = ProcessGrid(comm, **{way.axis or "batch": comm.size})
        pipeline = way.pipeline and way.pipeline.format(args.in_flight)
        micro_batches = args.micro_batches if pipeline == "1f1b" else None
        reduction = args.reduction
        self.net = parallelize(
            serial, self.grid, way.plan, reduction=reduction, pipeline=pipeline, micro_batches=micro_batches
        )  # fmt: skip
        self.trainer = self.net.trainer(LOSSES[data.loss](), SGD(self.net, args.lr, momentum=args.momentum))
        seen = np.sort(permutation(args.seed, 0, args.samples, "evaluated")[: args.evaluated])
        self.parts = {"training_accuracy": Subset(data.train, seen), "test_accuracy": data.test}
        self.test_batch = train_setup.evaluation_batch(args, serial)
        self.step, self.seconds, self.step_seconds, self.history, self.diverged = 0, 0.0, [], [], None

    def advance(self, until):
        """Train until a step, and evaluate."""
        first = self.step
        try:
            losses, seconds = self._train(until)
            accuracies = {name: self._accuracy(part) for name, part in self.parts.items()}
        except Diverged as error:
            self.diverged = str(error)
            return
        self.seconds += seconds
        self.step_seconds.append(seconds / (until - first))
        epoch = until / steps_per_epoch(self.args.samples, self.args.batch_size)
        mean = sum(losses) / len(losses)
        self.history.append({"epoch": epoch, "seconds": self.seconds, "training_loss": mean, **accuracies})

    def _train(self, until):
        """(the losses of the steps until `until`, the seconds that they took)."""
        losses, args, net = [], self.args, self.net
        reader = MicroBatchReader(READERS["each"](net, self.data.train))
        self.grid.comm.Barrier()
        start = time.perf_counter()
        for step in range(self.step, until):
            indices, _ = minibatch_indices(args.samples, args.batch_size, args.seed, step)
            losses += self.trainer.step(reader.parts(indices, net.micro_batches), len(indices))
        losses += self.trainer.flush()
        self.step = until
        return losses, float(self.grid.max(np.array([time.perf_counter() - start]))[0])

    def _accuracy(self, part):
        reader = READERS["each"](self.net, part)
        return evaluate(self.net, part, self.data.loss, reader, self.test_batch)["accuracy"]

    @property
    def over(self):
        return self.diverged is not None or reached(self.history, self.args.target) is not None

    def result(self):
        """What the results have of this way: a dict on rank 0."""
        found, turns = reached(self.history, self.args.target) or {}, self.step_seconds
        staleness = self.grid.gather(dict(sorted(self.trainer.staleness.items())))
        return {
            "way": self.label, "grid": str(self.grid), "plan": ",".join(dict.fromkeys(self.net.plan)),
            "pipeline": self.net.pipeline, "micro_batches": self.net.micro_batches, "reduction": str(self.net.reduction),
            "epochs": found.get("epoch"), "seconds": found.get("seconds"),
            "seconds_per_step": {"median": median(turns), "min": min(turns), "max": max(turns)} if turns else None,
            "staleness": staleness if any(staleness or ()) else None, "diverged": self.diverged, "history": self.history,
        }  # fmt: skip


def reached(history, target):
    """The first entry of a history with which the target was reached, or None."""
    return next((row for row in history if row["training_accuracy"] >= target), None)


def turn(comm, training, until):
    """Let a training advance; returns (its last line of the history or why it has diverged, whether it is over), on all ranks.

    training: None on a rank that has no part in it. Such a rank sleeps meanwhile, and leaves its core to the others.
    """
    if training:
        training.advance(until)
    return broadcast(comm, training and (training.diverged or SEEN.format(**training.history[-1]), training.over))
