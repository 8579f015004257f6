"""What may be added to a training and changes it, ends it or keeps it: parts of a Run (see `run_parts.py`)."""

import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from gridgrad.experiments.common import checkpoints
from gridgrad.experiments.run_parts import RunPart
from gridgrad.nn import EarlyStopping
from gridgrad.nn.observer import Observer
from gridgrad.parallel import Watchdog, evaluate
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Saver, Signals
from gridgrad.parallel.checkpoint.state import State, copy_over
from gridgrad.parallel.choose.rebalance import Rebalancer
from gridgrad.parallel.faults.checks import FiniteCheck, ReplicaCheck
from gridgrad.parallel.job.run import CHECKPOINTED, EndedEarly, UserError, on_root
from gridgrad.parallel.observe.span_observer import SpanObserver
from gridgrad.parallel.training import check_finite
from gridgrad.parallel.training.minibatch_readers import READERS

KEEP = 3  # checkpoints
APART = 10  # steps between two decisions of workers that never exchange anything


class Handicap(RunPart, SpanObserver):
    """Makes this rank compute `factor` times as slowly, at least 1, from training step `first` on. It pauses after each pass of
    a layer, the loss or the optimizer, awake, since a core that has slept is slower for a while."""

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
            begun, progress = self.clock(), self.net.observer.progress
            while self.clock() < begun + (self.factor - 1) * (stop - start - inner):
                if progress is not None:
                    progress()
            self._paused = self.clock() - begun

    def end(self, thing, phase, context):
        super().end(thing, phase, context)
        self._inner += self._paused  # the pass around this one has not computed in that time
        self._paused = 0.0


class Rebalancing(RunPart):
    """Compares every `interval` steps how long the ranks compute, and moves work where that pays. serial: the network as it was
    before it was placed. balance: a Balance of its ranks."""

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
    """Looks for faults. watchdog: seconds after which a rank that waits is reported. replicas: steps between two comparisons of
    copies. finite: look for NaN in every pass."""

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


class Validation(RunPart, Observer):
    """Evaluates a network on held-out samples after each epoch; with `patience` it keeps the best weights, and ends the
    training when so many epochs have brought no better ones. loss: "mse" or "cross-entropy". make_reader: of READERS."""

    # `evaluate` gives the same loss on every rank, so all ranks take the same decision without communicating.

    def __init__(self, part, loss, batch_size, patience=None, make_reader=READERS["each"]):
        self.part, self.loss, self.batch_size, self.patience, self.make_reader = part, loss, batch_size, patience, make_reader
        self.early, self.losses = EarlyStopping(patience or math.inf), []
        self.exchanged = False  # else the network has the best weights, and `best` those of the last step

    def before(self, run):
        super().before(run)
        self.net, self.reader = run.net, self.make_reader(run.net, self.part)
        self.best = [array.copy() for array in self._state()] if self.patience else None
        run.participants["validation"] = self
        if run.moves:  # where shares of the network change, the best weights move too
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
        copy_over(state, self.state())
        self.early.restore(state.numbers)
        self.losses = state.logs["losses"].tolist()

    def _tell(self):
        """Say what the weights of the network are worth."""
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
    """Writes checkpoints into the folder `directory`, and goes on from the newest one in `resume`; either may be None. steps,
    minutes: between two of them; by default 15 minutes. keep: how many of the last ones, beside the best one. signals: Signals
    that listen for SIGTERM already."""

    def __init__(self, directory=None, resume=None, steps=None, minutes=None, keep=KEEP, signals=None):
        self.directory, self.resume, self.steps, self.keep = directory, resume, steps, keep
        self.minutes = minutes or (None if steps else MINUTES)
        self.signals, self.is_asked_elsewhere, self.resumed, self.saver = signals or Signals(), signals is not None, None, None
        if directory and not signals:
            self.signals.listen()

    def before(self, run):
        super().before(run)
        if self.directory:
            held = run.participants["protocol"]
            held.state()  # says now if the protocol has none
            every = max(run.net.steps_under_way, 1 if run.workers.size == 1 else held.interval or APART)
            self.saver = Saver(run.grid.comm, run.net, run.participants, self.directory, run.workers, steps=self.steps,
                               minutes=self.minutes, keep=self.keep, every=every, signals=self.signals, settings=run.settings,
                               value=lambda: run.value, flush=run.flush, say=run.warn)  # fmt: skip
            if run.net.steps_under_way > 1:
                run.say("note: an asynchronous pipeline is emptied for a checkpoint, which changes the training: only runs "
                        "with checkpoints after the same steps, as by --checkpoint-steps, equal each other")  # fmt: skip

    def start(self):
        if not self.resume:
            return
        run, begins, begun = self.run, checkpoints.same_folder(self.directory, self.resume), time.monotonic()
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
