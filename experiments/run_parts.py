"""A training and what may be added to it: a Run with a list of parts, each told before, around and after the steps.

`train` makes the list from its options, a script of one's own by hand: docs/training.md shows one. Order in a list: what slows
down or observes the network stands in front, `Times` at the end, so that it times nothing but the step.
"""

import math
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from pathlib import Path
from time import perf_counter

from mpi4py import MPI
from tqdm import tqdm

from gridgrad.experiments.common import checkpoints, report
from gridgrad.experiments.common.machine_load import Watch, load_of_job, verdict_of
from gridgrad.experiments.common.tables import table
from gridgrad.nn import EarlyStopping
from gridgrad.nn.observer import Observer
from gridgrad.parallel import Profile, Trace, Watchdog, evaluate
from gridgrad.parallel.calibration.timing import core_seconds
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Saver, Signals
from gridgrad.parallel.checkpoint.state import OptimizerState, State, copy_over, states_of
from gridgrad.parallel.choose.rebalance import Rebalancer
from gridgrad.parallel.faults.checks import FiniteCheck, ReplicaCheck
from gridgrad.parallel.job.run import CHECKPOINTED, EndedEarly, UserError, on_root
from gridgrad.parallel.observe.span_observer import METHODS, SpanObserver
from gridgrad.parallel.observe.trace import STEPS, write_timeline
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.workers import one_worker
from gridgrad.parallel.training import MicroBatchReader, check_finite
from gridgrad.parallel.training.minibatch_readers import READERS

WARM_UP = 5  # steps before timing begins
PROBES = 3  # reference products between two steps: 0.2 milliseconds in all
KEEP = 3  # checkpoints
APART = 10  # steps between two decisions of workers that never exchange anything


class RunPart:
    """Something that is added to a training; in this base class nothing happens.

    `before`, `start`, `between` and `before_step` are called in the order of the list, the others in reverse order, so that
    parts lie around each other. All ranks call them together.
    """

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


@dataclass
class Progress:
    """How far a run has come. losses: of all turns so far. epochs: that are complete. in_epoch: losses before this epoch."""

    losses: list = field(default_factory=list)
    epochs: int = 0
    in_epoch: int = 0

    def state(self):
        return State(numbers={"epochs": self.epochs, "in_epoch": self.in_epoch}, logs={"losses": self.losses})

    def load(self, state):
        self.losses = state.logs["losses"].tolist()
        self.epochs, self.in_epoch = state.numbers["epochs"], state.numbers["in_epoch"]


class Run:
    """A training on this rank, whose loop calls `begin`, `step` for each minibatch, `after`, `report` and `close`.

    Parameters
    ----------
    net : ParallelSequential
        The network, with memory.
    loss, optimizer
        Such as MSE() and SGD(net, lr=0.1); a Protocol may take the optimizer's place.
    reader : Reader
        What brings samples to the ranks, such as READERS["each"](net, part).
    steps, per_epoch : int
        How many steps there are in all, counted from the very start, and in an epoch.
    parts : list of RunPart
        What is added.
    grid, workers
        Of all ranks, where a protocol trains several workers.
    say, warn : function
        Told a line about what happens, and what must be said in any case; by default rank 0 prints them.

    Attributes
    ----------
    losses : list of float
        The losses that are known, of all steps since the very start.
    begun, number, first : int
        The step with which this process begins, how many it has taken, and how many of them are for warming up.
    stop, failure
        Whether to end before the last step; what `close` raises when all results are written, or None.
    participants, settings, value
        What a checkpoint holds, {name: participant}, and what a later run compares; the lowest value is the best checkpoint.
    written : dict
        {kind: path} of the files that the run has written.
    """

    def __init__(self, net, loss, optimizer, reader, steps, per_epoch, parts=(), grid=None, workers=None, say=None, warn=None):
        first_rank = MPI.COMM_WORLD.rank == 0
        self.say = say or (print if first_rank else lambda *_: None)
        self.warn = warn or (partial(print, file=sys.stderr, flush=True) if first_rank else lambda *_: None)
        self.net, self.loss, self.optimizer, self.parts = net, loss, optimizer, list(parts)
        self.grid, self.workers = grid or net.grid, workers or one_worker(net.grid)[1]
        self.reader, self.steps, self.per_epoch = MicroBatchReader(reader), steps, per_epoch
        self.trainer, self.progress = net.trainer(loss, optimizer), Progress()
        held = optimizer if isinstance(optimizer, Protocol) else OptimizerState(net, optimizer)
        self.participants = states_of(net) | {"protocol": held, "progress": self.progress}
        self.settings, self.written = {}, {}
        self.begun, self.number, self.stop, self.moves, self.value, self.failure = net.step, 0, False, False, None, None
        self.memory, self.devices = report.memory(net, optimizer, self.grid), report.devices(self.grid)

    @property
    def losses(self):
        return self.progress.losses

    def begin(self):
        """Let the parts prepare themselves, and go on from a checkpoint if one of them knows one. Collective."""
        for part in self.parts:
            part.before(self)
        for part in self.parts:
            part.start()
        if self.net.step >= self.steps:
            self.say(
                f"note: nothing is left to train: the checkpoint has {self.net.step} steps, and {self.steps} are asked for"
            )

    @property
    def first(self):
        return min(WARM_UP, max(0, self.steps - self.begun - 1))

    def between(self, step):
        """Called between two steps, when `step` are complete. Collective."""
        for part in self.parts:
            part.between(step)

    def step(self, indices, step=None, samples=None):
        """A training step on a global minibatch. Collective over the grid of the network.

        indices: of its samples. step: its number, by default that of the network. samples: of the minibatches of all workers.
        """
        step = self.net.step if step is None else step
        ended = -(-self.steps // self.per_epoch) if step + 1 == self.steps else (step + 1) // self.per_epoch
        epoch_ends = ended > self.progress.epochs
        for part in self.parts:
            part.before_step(step)
        self.losses.extend(self.trainer.step(self.reader.parts(indices, self.net.micro_batches), len(indices)))
        if epoch_ends or any(part.wants_losses() for part in self.parts):
            self.flush()
        self.number += 1
        for part in reversed(self.parts):
            part.after_step(step, len(indices) if samples is None else samples)
        if epoch_ends:
            recent = self.losses[self.progress.in_epoch :]
            self.progress.in_epoch, self.progress.epochs = len(self.losses), ended
            values = {"mean loss": sum(recent) / len(recent)}
            for part in reversed(self.parts):
                part.after_epoch(ended, values)

    def flush(self):
        """Learn the losses of all steps so far: a pipeline is emptied. Collective."""
        self.losses.extend(self.trainer.flush())

    def after(self):
        """Called after the last step. Collective."""
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


# ----- what is said, and how long it takes


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
    """The seconds of the steps behind the first few, what was sent in them, and what else used the machine.

    core_speed: whether to measure between the steps how long a reference product takes on this core.
    seconds: of each step that counts. reference: of the product around each of them, the mean of before and after.
    """

    def __init__(self, core_speed=False):
        self.probe = partial(core_seconds, PROBES) if core_speed else None
        self.found = None

    def start(self):
        """Discard all measurements so far: the tally, the reduction and the reader measure the same steps."""
        self.clock = self.run.net.grid.tally.clock.now
        for measuring in (self.run.net.grid.tally, self.run.net.reduction, self.run.reader):
            measuring.clear()
        self.seconds, self.reference, self.samples, self.watch = [], [], 0, Watch()
        self._before = self.probe and self.probe()

    def before_step(self, step):
        if self.run.number == self.run.first:
            self.start()
        self._begun = self.clock()

    def after_step(self, step, samples):
        self.seconds.append(self.clock() - self._begun)
        self.samples += samples
        if self.probe:
            after = self.probe()
            self.reference.append((self._before + after) / 2)
            self._before = after

    def after(self):
        self.watched, self.peak = self.watch.seen(), report.peak_memory()  # before results are gathered

    def report(self):
        grid = self.run.grid
        hidden = report.overlap(self.run.net)
        found = report.time_and_bytes(grid, self.seconds, self.run.reader.seconds, self.peak)
        lost = getattr(self.run.optimizer, "lost", 0)  # workers: what the dead took of the machine is not known
        load = None if lost else load_of_job(grid.comm, self.watched)
        core = report.core_speed(grid, self.seconds, self.reference) if self.probe else None
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


class LayerTable(RunPart):
    """A table of the milliseconds of each layer in a step, the mean over the ranks: forward, backward, communication."""

    def before(self, run):
        super().before(run)
        self.profile, self.steps = Profile(run.net), None

    def start(self):
        self.after_step(None, 0)

    def after_step(self, step, samples):
        if self.steps is not None:
            self.steps += 1
        elif self.run.number == self.run.first:
            self.profile.__enter__()
            self.steps = 0

    def after(self):
        if self.steps is not None:
            self.profile.__exit__(None, None, None)

    def report(self):
        rows = self.profile.rows(self.steps or 0)
        self.rows = rows
        return rows is not None and {"layers": rows}

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


class Timeline(RunPart):
    """A timeline of all ranks, of `steps` steps behind the first few, for ui.perfetto.dev. path: of the JSON file."""

    def __init__(self, path, steps=STEPS):
        self.path, self.steps = path, steps

    def before(self, run):
        super().before(run)
        self.trace, self.opened = Trace(run.net, self.steps), False

    def start(self):
        self._open_or_close()

    def wants_losses(self):  # it begins and ends in step
        return self.run.number + 1 in (self.run.first, self.run.first + self.steps)

    def after_step(self, step, samples):
        self._open_or_close()

    def _open_or_close(self):
        if self.run.number == self.run.first:
            self.trace.__enter__()
            self.opened = True
        elif self.run.number == self.run.first + self.steps:
            self.after()

    def after(self):
        if self.opened:
            self.trace.__exit__(None, None, None)
            self.opened = False

    def report(self):
        self.found = self.trace.timeline()
        return {}

    def close(self):
        on_root(self.run.grid.comm, lambda: write_timeline(self.path, self.found))
        self.run.written["trace"] = self.path


# ----- what changes the training


class Handicap(RunPart, SpanObserver):
    """Makes this rank compute `factor` times as slowly, at least 1, from training step `first` on.

    After each pass of a layer, the loss or the optimizer it pauses for (factor - 1) times what that pass computed. It stays
    awake, since a core that has slept is slower for a while. Communication is not slowed down, and there are progress points.
    """

    clock = staticmethod(perf_counter)

    def __init__(self, factor, first=0):
        SpanObserver.__init__(self, None)
        self.factor, self.first, self._paused = factor, first, 0.0

    def before(self, run):
        self.slow_down(run.net)

    def slow_down(self, net):
        """Slow down the passes of a Sequential or ParallelSequential from now on, and no longer those of an earlier one."""
        if self.net is not None:
            self.net.forget(self)
        self.net = net
        net.observe(self)

    def record(self, span):
        (_, _, phase), start, stop, inner, step = span
        if step >= self.first and self.factor > 1 and phase != "load":
            self._pause((self.factor - 1) * (stop - start - inner))

    def end(self, thing, phase, context):
        super().end(thing, phase, context)
        self._inner += self._paused  # the pass around this one has not computed in that time
        self._paused = 0.0

    def _pause(self, seconds):
        start, progress = self.clock(), self.net.observer.progress
        while self.clock() < start + seconds:
            if progress is not None:
                progress()
        self._paused = self.clock() - start


class Rebalancing(RunPart):
    """Compares every `interval` steps how long the ranks compute, and moves work where that pays.

    serial: the network as it was before it was placed. balance: a Balance of its ranks.
    """

    def __init__(self, interval, serial, balance):
        self.interval, self.serial, self.balance = interval, serial, balance

    def before(self, run):
        super().before(run)
        optimizer = getattr(run.optimizer, "optimizer", run.optimizer)
        self.rebalancer = Rebalancer(run.net, self.serial, optimizer, self.balance, self.interval, run.steps)
        run.moves = True

    def start(self):
        self.rebalancer.times.begin_anew()  # the step from which it counts may be another one now

    def after_step(self, step, samples):
        if proposal := self.rebalancer.after_step():
            slowness = ", ".join(f"{factor:.2f}" for factor in proposal["slowness"])
            changes = [f"{name}: {shares} -> {proposal['proposed'][name]}" for name, shares in proposal["shares"].items()]
            did = f"adopted in {proposal['took']:.3g} s" if proposal["adopted"] else "not adopted"
            said = f"slowness of the ranks {slowness}; {'; '.join(changes)}: {did}, {proposal['reason']}"
            self.run.say("\n".join([f"step {proposal['step']}: {said}", *(proposal["left_out"] * proposal["adopted"])]))

    def report(self):
        return {"rebalancing": self.rebalancer.log}


class Augmentation(RunPart):
    """Tells samples that vary from epoch to epoch which epoch it is. samples: an Augmented."""

    def __init__(self, samples):
        self.samples = samples

    def before_step(self, step):
        self.samples.epoch = step // self.run.per_epoch


class Faults(RunPart):
    """Looks for faults. watchdog: seconds after which a rank that waits is reported. replicas: compare copies every so many
    steps. finite: look for NaN in every pass. ValueError for what does not fit the devices."""

    def __init__(self, watchdog=None, replicas=None, finite=False):
        self.watchdog, self.replicas, self.finite = watchdog, replicas, finite

    def before(self, run):
        super().before(run)
        self.checks = [FiniteCheck(run.net)] if self.finite else []
        if self.replicas:
            self.checks.append(ReplicaCheck(run.net, getattr(run.optimizer, "optimizer", run.optimizer), self.replicas))
        self.guard = Watchdog(run.grid.comm, self.watchdog, run.net) if self.watchdog else None
        if self.guard:
            self.guard.start()

    def after_step(self, step, samples):
        for check in self.checks:
            check.after_step(step)

    def close(self):
        if self.guard:
            self.guard.stop()


# ----- what is kept


class Validation(RunPart, Observer):
    """Evaluates a network on samples that were held out after each epoch; with `patience` it keeps its best weights, and ends
    the training when so many epochs have brought no better ones.

    part: the samples. loss: its name, "mse" or "cross-entropy". batch_size: samples in a forward pass. make_reader: of READERS.
    exchanged: whether the network has the best weights, and `best` those of the last step.
    """

    # `evaluate` gives the same loss on every rank, so all ranks take the same decision without communicating. Where the shares
    # of the network change, it must be registered as an observer, so that the best weights move too.

    def __init__(self, part, loss, batch_size, patience=None, make_reader=READERS["each"]):
        self.part, self.loss, self.batch_size, self.patience, self.make_reader = part, loss, batch_size, patience, make_reader
        self.early, self.losses, self.exchanged = EarlyStopping(patience or math.inf), [], False

    def before(self, run):
        super().before(run)
        self.net, self.reader = run.net, self.make_reader(run.net, self.part)
        self.best = [array.copy() for array in self._state()] if self.patience else None
        run.participants["validation"] = self
        if run.moves:
            run.net.observe(self)

    def start(self):
        self.run.stop = self.early.stop
        if not (self.patience and (self.early.stop or self.net.step >= self.run.steps)):
            if self.exchanged:  # training goes on with the weights of the last step
                self.exchange()
            if not self.patience:
                self.best = None
        self._tell()

    def after_epoch(self, epoch, values):
        values["validation"] = self.see()
        self.run.stop = self.early.stop
        self._tell()

    def see(self):
        """The loss on the held-out samples after one more epoch. Collective."""
        with self.net.grid.tally.set_aside():
            self.losses.append(evaluate(self.net, self.part, self.loss, self.reader, self.batch_size)["loss"])
        if self.early.see(self.losses[-1]) and self.best is not None:
            self._copy(self._state(), self.best)
        return self.losses[-1]

    def after(self):
        if self.patience:
            check_finite(self.net)
            if self.early.best_epoch and not self.exchanged:
                self.exchange()
            self.run.say(f"back to the weights of epoch {self.early.best_epoch}, validation {self.early.best:.6f}")
        self.run.settings[checkpoints.OF_BEST] = self.early.best_epoch if self.exchanged else None
        self._tell()

    def exchange(self):
        """Give the network the best weights and keep its own ones, or the other way round. Collective."""
        own = [array.copy() for array in self._state()]
        with self.net.exclusive():
            self._copy(self.best, self._state())
        self.best, self.exchanged = own, not self.exchanged

    def relocated(self, relocation):
        if self.best is not None:
            self.best = [relocation.flat(self.best[0]), *relocation.buffers(self.best[1:])]

    def expect(self, exchanged):
        """Called before `load`. exchanged: whether weights are exchanged in the state to come."""
        self.exchanged = exchanged
        if exchanged and self.best is None:
            self.best = [array.copy() for array in self._state()]

    def state(self):
        """What a checkpoint needs of it: a State."""
        numbers, logs = self.early.state(), {"losses": self.losses}
        if self.best is None:
            return State(numbers=numbers, logs=logs)
        best = {"best": (self.best[0], [slice(0, self.net.size)])}
        return State(best, buffers={"best_buffers": self.best[1:]}, numbers=numbers, logs=logs)

    def load(self, state):
        """Take over a state."""
        copy_over(state, self.state())
        self.early.restore(state.numbers)
        self.losses = state.logs["losses"].tolist()

    def _tell(self):
        """Say what the weights that the network has are worth: the lowest is the best checkpoint."""
        self.run.value = self.early.best if self.exchanged else self.losses[-1] if self.losses else None

    def _state(self):
        """The blocks held here of all that training changes: the parameters, and what the layers remember."""
        return [self.net.params, *(buffer.value for _, buffer in self.net.buffers)]

    @staticmethod
    def _copy(sources, targets):
        for source, target in zip(sources, targets):
            target[...] = source

    def report(self):
        """Epochs count from 1; stopped_epoch is None where training ran to its end."""
        stopped = self.early.epochs if self.early.stop else None
        return {"validation": self.losses, "best_epoch": self.early.best_epoch, "stopped_epoch": stopped}


class Checkpoints(RunPart):
    """Writes checkpoints, and goes on from one.

    Parameters
    ----------
    directory : str, optional
        The folder to write into; None to write none.
    resume : str, optional
        The folder whose newest checkpoint the run goes on from.
    steps, minutes : optional
        Between two checkpoints; every 15 minutes if neither is given.
    keep : int
        How many of the last ones to keep, beside the best one.
    signals : Signals, optional
        Listens for SIGTERM already.
    """

    def __init__(self, directory=None, resume=None, steps=None, minutes=None, keep=KEEP, signals=None):
        self.directory, self.resume, self.steps, self.keep = directory, resume, steps, keep
        self.minutes = minutes or (None if steps else MINUTES)
        self.signals, self.resumed, self.saver = signals or Signals(), None, None
        self.is_asked_elsewhere = signals is not None
        if directory and not signals:
            self.signals.listen()

    def before(self, run):
        super().before(run)
        if self.directory:
            held = run.participants["protocol"]
            held.state()  # says now if the protocol has none
            every = max(run.net.steps_under_way, 1 if run.workers.size == 1 else held.interval or APART)
            policy = {"steps": self.steps, "minutes": self.minutes, "keep": self.keep, "every": every, "signals": self.signals}
            self.saver = Saver(run.grid.comm, run.net, run.participants, self.directory, run.workers, **policy,
                               settings=run.settings, value=lambda: run.value, flush=run.flush, say=run.warn)  # fmt: skip
            if run.net.steps_under_way > 1:
                run.say("note: an asynchronous pipeline is emptied for a checkpoint, which changes the training: only runs "
                        "with checkpoints after the same steps, as by --checkpoint-steps, equal each other")  # fmt: skip

    def start(self):
        run, begins = self.run, checkpoints.same_folder(self.directory, self.resume)
        if not self.resume:
            return
        begun = time.monotonic()
        found = newest(run.grid.comm, self.resume, run.warn)
        if found is None and not begins:
            raise UserError(checkpoints.nothing_in(self.resume))
        if found is None:
            run.say(f"no checkpoint in {self.resume} yet: training begins")
            return
        for note in checkpoints.compared(found.manifest, run.settings):
            run.say(f"note: {note}")
        if validation := run.participants.get("validation"):
            validation.expect(found.manifest.settings.get(checkpoints.OF_BEST) is not None)
        try:
            found.restore(run.net, run.participants, run.workers)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.resumed, run.begun = found.manifest.step, run.net.step
        if begins:
            self.saver.has(self.resumed, found.passed_over)
        took = time.monotonic() - begun
        run.say(f"goes on after step {self.resumed}, from {found.manifest.folder}, which was read in {took:.2f} s")

    def between(self, step):
        try:
            if self.saver:
                self.saver.boundary(step)
        except EndedEarly as ended:  # `train` lets all ranks end together
            if self.is_asked_elsewhere:
                raise
            self.run.warn(ended)
            sys.exit(CHECKPOINTED)

    def after(self):
        """If the last checkpoint can not be written, the results of the run still can: it is an error only at the end."""
        if self.saver:
            with suppress(UserError):  # of an earlier one, which has been said
                self.saver.complete()
            self.saver.save(self.run.net.step)
            try:
                self.saver.close()
            except UserError as error:
                self.run.failure = error
            self.signals.nothing_left()

    def report(self):
        """written: whole checkpoints. seconds: that training stood still, on the first rank."""
        saver = self.saver
        written = {"checkpoints": {"written": saver.written, "seconds": saver.seconds}} if saver else {}
        return {"resumed": self.resumed, **written}

    def close(self):
        """`supervise` asks for the file, since Open MPI's mpiexec ends with status 0 when it loses a node."""
        if self.directory and not self.run.failure:
            self.run.written["checkpoint"] = self.directory
            on_root(self.run.grid.comm, lambda: checkpoints.touch(Path(self.directory) / checkpoints.COMPLETE))
