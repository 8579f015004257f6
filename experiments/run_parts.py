"""A training with a list of parts, each told before, around and after the steps, and the parts that show and measure it.

`train` makes the list from its options, a script of one's own by hand: docs/training.md shows one. Order in a list: what slows
down or observes the network stands in front, `Times` at the end, so that it times the step alone.
"""

import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import partial, reduce
from itertools import pairwise
from operator import or_

from mpi4py import MPI
from tqdm import tqdm

from gridgrad.experiments.common import report
from gridgrad.experiments.common.machine_load import Watch, load_of_job, verdict_of
from gridgrad.experiments.common.tables import table
from gridgrad.nn import device
from gridgrad.parallel import Profile, Trace
from gridgrad.parallel.calibration.timing import core_seconds
from gridgrad.parallel.checkpoint.state import OptimizerState, State, states_of
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.observe.span_observer import METHODS
from gridgrad.parallel.observe.trace import STEPS, write_timeline
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.workers import one_worker
from gridgrad.parallel.training import MicroBatchReader

WARM_UP = 5  # steps before timing begins
PROBES = 3  # reference products between two steps: 0.2 milliseconds in all


class RunPart:
    """Something that is added to a training; in this base class nothing happens. All ranks call its methods together. `before`,
    `start`, `between` and `before_step` are called in the order of the list, the others in reverse order."""

    def before(self, run):
        """Called once the network is on its grid, before anything else. run: the Run, whose attributes say all there is."""
        self.run = run

    def start(self):
        """Called before the first step, when `run.net` has what an earlier run has left."""

    def between(self, step):
        """Called when `step` steps are complete, before the next one is begun."""

    def before_step(self, step):
        """Called before a step, with its number."""

    def wants_losses(self):
        """Whether a pipeline has to be empty behind the step that is under way."""
        return False

    def after_step(self, step, samples):
        """Called after a step. samples: of its global minibatch."""

    def after_epoch(self, epoch, values):
        """Called after each epoch, counted from 1. values: {name: number} of it, to which a part may add."""

    def after(self):
        """Called after the last step, before results are gathered."""

    def report(self):
        """What the report of the run says of this part: a dict on the first rank, whatever on the others."""
        return {}

    def close(self):
        """Called when the report is written: for what is said or written after it."""


class Run:
    """A training on this rank, whose loop calls `begin`, `step` for each minibatch, `after`, `report` and `close`.

    net: a ParallelSequential with memory. loss, optimizer: such as MSE() and SGD(net, lr=0.1); a Protocol may take the
    optimizer's place. reader: brings samples to the ranks, such as READERS["each"](net, part). steps, per_epoch: how many there
    are in all, counted from the very start, and in an epoch. parts: RunParts that are added. grid, workers: of all ranks, where
    a protocol trains several workers. say: told a line about what happens; by default rank 0 prints it.

    | attributes                      | what parts may find and change there                                                |
    |---------------------------------|-------------------------------------------------------------------------------------|
    | losses, epochs, in_epoch        | all losses so far, complete epochs, and how many losses came before this epoch      |
    | begun, number, first            | the step with which this process begins, its steps so far, and those for warming up |
    | stop, failure                   | whether to end before the last step; what `close` raises in the end, or None        |
    | participants, settings, value   | of a checkpoint: {name: participant}, what a later run compares, the lowest is best |
    | written                         | {kind: path} of the files that the run has written                                  |
    """

    def __init__(self, net, loss, optimizer, reader, steps, per_epoch, parts=(), grid=None, workers=None, say=None):
        is_first = MPI.COMM_WORLD.rank == 0
        self.say = say or (print if is_first else lambda *_: None)
        self.warn = partial(print, file=sys.stderr, flush=True) if is_first else lambda *_: None
        self.net, self.loss, self.optimizer, self.parts = net, loss, optimizer, list(parts)
        self.grid, self.workers = grid or net.grid, workers or one_worker(net.grid)[1]
        self.reader, self.steps, self.per_epoch = MicroBatchReader(reader), steps, per_epoch
        self.trainer, self.losses, self.epochs, self.in_epoch = net.trainer(loss, optimizer), [], 0, 0
        held = optimizer if isinstance(optimizer, Protocol) else OptimizerState(net, optimizer)
        self.participants, self.settings, self.written = states_of(net) | {"protocol": held, "progress": self}, {}, {}
        self.begun, self.number, self.stop, self.moves, self.value, self.failure = net.step, 0, False, False, None, None
        self.memory, self.devices = report.memory(net, optimizer, self.grid), self.grid.gather(device.describe())

    def state(self):
        """What a checkpoint needs of it: how far it has come."""
        return State(numbers={"epochs": self.epochs, "in_epoch": self.in_epoch}, logs={"losses": self.losses})

    def load(self, state):
        self.losses = state.logs["losses"].tolist()
        self.epochs, self.in_epoch = state.numbers["epochs"], state.numbers["in_epoch"]

    def begin(self):
        """Let the parts prepare themselves, and go on from a checkpoint if one of them knows one. Collective."""
        for part in self.parts:
            part.before(self)
        for part in self.parts:
            part.start()
        if self.net.step >= self.steps:
            self.say(f"note: nothing is left to train: the checkpoint has {self.net.step} steps, of {self.steps} asked for")

    @property
    def first(self):
        return min(WARM_UP, max(0, self.steps - self.begun - 1))

    def between(self, step):
        for part in self.parts:
            part.between(step)

    def step(self, indices, step=None, samples=None):
        """A training step on a global minibatch, of these samples. Collective over the grid of the network. step: its number,
        by default that of the network. samples: of the minibatches of all workers."""
        step = self.net.step if step is None else step
        ended = -(-self.steps // self.per_epoch) if step + 1 == self.steps else (step + 1) // self.per_epoch
        epoch_ends = ended > self.epochs
        for part in self.parts:
            part.before_step(step)
        self.losses.extend(self.trainer.step(self.reader.parts(indices, self.net.micro_batches), len(indices)))
        if epoch_ends or any(part.wants_losses() for part in self.parts):
            self.flush()
        self.number += 1
        for part in reversed(self.parts):
            part.after_step(step, len(indices) if samples is None else samples)
        if epoch_ends:
            recent = self.losses[self.in_epoch :]
            self.in_epoch, self.epochs = len(self.losses), ended
            values = {"mean loss": sum(recent) / len(recent)}
            for part in reversed(self.parts):
                part.after_epoch(ended, values)

    def flush(self):
        """Learn the losses of all steps so far: a pipeline is emptied. Collective."""
        self.losses.extend(self.trainer.flush())

    def after(self):
        self.flush()
        for part in reversed(self.parts):
            part.after()

    def report(self):
        """What the parts report together: a dict, which is empty on all ranks but the first. Collective."""
        return reduce(or_, [part.report() or {} for part in reversed(self.parts)], {})

    def close(self):
        """Called when all results are written. Collective. UserError for a last checkpoint that could not be written."""
        for part in reversed(self.parts):
            part.close()
        if self.written:
            folder = self.written.get("checkpoint")
            further = f"; to go on: --resume {folder} and more steps" if folder else ""
            self.say(f"written: {', '.join(f'{kind} {path}' for kind, path in self.written.items())}{further}")
        if self.failure:
            raise self.failure


# ----- what is shown and measured


class Lines(RunPart):
    """A line for each epoch and, on a terminal, a bar of the steps. bar: whether this process shows one."""

    def __init__(self, bar=True):
        self.bar = bar

    def start(self):
        disable = None if self.bar and MPI.COMM_WORLD.rank == 0 else True
        self.shown = tqdm(total=self.run.steps, initial=self.run.net.step, unit=" steps", delay=2, disable=disable)

    def after_step(self, step, samples):
        self.done = step + 1
        self.shown.update(self.done - self.shown.n)

    def after_epoch(self, epoch, values):
        said = ", ".join(f"{name} {value:.6f}" for name, value in values.items())
        self.run.say(f"epoch {epoch}: {said}, step {self.done} of {self.run.steps}")

    def after(self):
        self.shown.close()


class Times(RunPart):
    """The seconds of the steps behind the first few, what was sent in them, and what else used the machine. core_speed: whether
    to measure between the steps how long a reference product takes on this core."""

    def __init__(self, core_speed=False):
        self.probe = partial(core_seconds, PROBES) if core_speed else None
        self.found = None

    def start(self):
        """Discard all measurements so far: the tally, the reduction and the reader measure the same steps."""
        self.clock = self.run.net.grid.tally.clock.now
        for measuring in (self.run.net.grid.tally, self.run.net.reduction, self.run.reader):
            measuring.clear()
        self.seconds, self.samples, self.watch = [], 0, Watch()
        self.probes = [self.probe()] if self.probe else []  # before the first step and after each

    def before_step(self, step):
        if self.run.number == self.run.first:
            self.start()
        self._begun = self.clock()

    def after_step(self, step, samples):
        self.seconds.append(self.clock() - self._begun)
        self.samples += samples
        if self.probe:
            self.probes.append(self.probe())

    def after(self):
        self.watched, self.peak = self.watch.seen(), report.peak_memory()  # before results are gathered

    def report(self):
        grid = self.run.grid
        hidden = report.overlap(self.run.net)
        found = report.time_and_bytes(grid, self.seconds, self.run.reader.seconds, self.peak)
        lost = getattr(self.run.optimizer, "lost", 0)  # workers: what the dead took of the machine is not known
        load = None if lost else load_of_job(grid.comm, self.watched)
        reference = [(before + after) / 2 for before, after in pairwise(self.probes)]
        core = report.core_speed(grid, self.seconds, reference) if self.probe else None
        if found is None:
            return None
        self.found = found | {
            "device": self.run.devices, "memory": self.run.memory, "overlap": hidden,
            "load": load.entry() if load and found["timed_steps"] else None,
            "core": core if set(self.run.devices) == {"cpu"} else None,  # GPUs are no cores
            "samples_per_step": self.samples / max(len(self.seconds), 1),
        }  # fmt: skip
        return self.found

    def close(self):
        if self.found and self.found["timed_steps"]:
            self.run.say(table(report.in_words(self.found)))
            if words := verdict_of(self.found):
                self.run.say(f"note: while steps were timed, {words}")


class Observing(RunPart):
    """Opens `observer(net)`, a context manager, behind the first few steps; closes it after `steps` more, or at the end."""

    steps = None

    def before(self, run):
        super().before(run)
        self.observed, self.opened = self.observer(run.net), ExitStack()

    def start(self):
        self.after_step(None, 0)

    def after_step(self, step, samples):
        if self.run.number == self.run.first:
            self.opened.enter_context(self.observed)
        elif self.steps and self.run.number == self.run.first + self.steps:
            self.opened.close()

    def after(self):
        self.opened.close()


class LayerTable(Observing):
    """A table of the milliseconds of each layer in a step, the mean over the ranks: forward, backward, communication."""

    observer = Profile

    def report(self):
        self.rows = self.observed.rows(max(0, self.run.number - self.run.first))
        return self.rows is not None and {"layers": self.rows}

    def close(self):
        """What is sent stands in the first row of a layer, and in rows of its own where it is no layer's."""
        if not self.rows:
            return
        sent, found = defaultdict(float), next((part.found for part in self.run.parts if isinstance(part, Times)), None)
        for row in found["communication"] if found else ():
            sent[row["layer"]] += row["seconds"]
        rows = [(row["layer"], row["kind"], row["forward"], sum(row[method] for method in METHODS[1:]),
                 sent.pop(row["layer"], 0.0)) for row in self.rows]  # fmt: skip
        rows += [(name, "", 0.0, 0.0, seconds) for name, seconds in sent.items()]
        heads = "forward, ms", "backward, ms", "communicate, ms"
        self.run.say(table([{"layer": layer, "kind": kind} | {head: round(1e3 * seconds, 4) for head, seconds in zip(heads, of)}
                            for layer, kind, *of in rows]))  # fmt: skip


class Timeline(Observing):
    """A timeline of all ranks, of `steps` steps behind the first few, for ui.perfetto.dev. path: of the JSON file."""

    def __init__(self, path, steps=STEPS):
        self.path, self.steps = path, steps

    def observer(self, net):
        return Trace(net, self.steps)

    def wants_losses(self):  # it begins and ends in step
        return self.run.number + 1 in (self.run.first, self.run.first + self.steps)

    def report(self):
        self.found = self.observed.timeline()
        return {}

    def close(self):
        on_root(self.run.grid.comm, lambda: write_timeline(self.path, self.found))
        self.run.written["trace"] = self.path
