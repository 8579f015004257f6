"""The checkpoints of `train`: its options, what a run must have in common with the one that it continues, and its progress."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gridgrad.datasets import images, table
from gridgrad.experiments.common.options import check_writable, number, whole
from gridgrad.parallel.checkpoint.manifest import found_in, lock
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Saver
from gridgrad.parallel.checkpoint.state import State, states_of
from gridgrad.parallel.job.run import UserError, on_root

KEEP = 3  # checkpoints
APART = 10  # steps between two decisions of workers that never exchange anything

COMPLETE = "complete"  # a file beside the checkpoints, touched when the run has ended with all its results

# What the checkpoint's run and this one must have in common, and what makes the training another one if it differs.
SAME = "dataset", "net", "batch_size", "seed", "dtype", "optimizer", "protocol", "augment", "sorted", "validation"
DERIVED = {"samples": "training samples", "sums": "sums of gradients by --reduction, which were"}
OF_BEST = "weights_of_epoch"  # in a manifest: the network has the best weights, and the validation those of the last step
FILES = "file", "x", "y", "test", "test_y"  # what the name of a table says of files; their content is compared
NOTED = "lr", "momentum", "nesterov", "l1", "l2", "schedule", "patience", "pipeline", "micro_batches", "reduce_dtype"


def add_checkpoints(parser):
    """The options --checkpoint, --resume and what belongs to them."""
    add = parser.add_argument
    add("--checkpoint", metavar="DIR", help="write checkpoints into this folder, which all nodes share: at the end, and when "
        "SIGTERM or SIGUSR1 ends the run, with status 75")  # fmt: skip
    add("--checkpoint-steps", type=whole(1), metavar="N", help="write one every N steps")
    add("--checkpoint-minutes", type=number(above=0), metavar="M",
        help=f"write one every M minutes (default: {MINUTES:g}, without --checkpoint-steps)")  # fmt: skip
    add("--keep", type=whole(1), metavar="K", help="keep the last K checkpoints, and with --validation the one with the lowest "
        f"loss at the last validation before it (default: {KEEP})")  # fmt: skip
    add("--resume", metavar="DIR", help="go on from the newest whole checkpoint in this folder, on any grid; begin if it "
        "is the folder of --checkpoint and has none yet")  # fmt: skip


def check_checkpoints(args):
    """ValueError for options of checkpoints that do not go together."""
    for option in ("checkpoint", "resume"):
        if getattr(args, option) == "":
            raise ValueError(f"--{option} is empty: give the name of a folder")


def prepare_checkpoints(args):
    """Make the folder of --checkpoint, and check that one can write into it. OSError or ValueError if not.

    ValueError also if another training has the folder, or if it has checkpoints and this run does not go on from them: it would
    delete those of another run.
    """
    if args.checkpoint:
        Path(args.checkpoint).mkdir(parents=True, exist_ok=True)
        check_writable(str(Path(args.checkpoint) / "step"))
        with lock(args.checkpoint):  # until the Saver takes it, so that what is wrong is said before data are read
            if not goes_on_in_place(args) and any(found_in(args.checkpoint)):
                raise ValueError(
                    f"{args.checkpoint} has checkpoints of an earlier run: add --resume {args.checkpoint} to go on from them, "
                    f"or name another folder with --checkpoint"
                )
    if args.resume and not goes_on_in_place(args) and not any(found_in(args.resume)):
        raise ValueError(nothing_in(args.resume))


def touch(path):
    """Make an empty file, or give what is there a new time: nobody's file is emptied, and no link is followed."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        os.utime(path, follow_symlinks=False)


def nothing_in(directory):
    """The words for a folder without a whole checkpoint, from which a run was to go on."""
    return f"{directory} has no whole checkpoint: name the folder that --checkpoint wrote to, or leave --resume out"


def goes_on_in_place(args):
    """Whether --checkpoint and --resume name the same folder."""
    return bool(args.checkpoint and args.resume) and len({*map(os.path.realpath, (args.checkpoint, args.resume))}) == 1


@dataclass
class Progress:
    """How far a run has come. losses: of all turns so far. epochs: that are complete. in_epoch: losses before this epoch."""

    losses: list = field(default_factory=list)
    epochs: int = 0
    in_epoch: int = 0

    def end_epoch(self, epochs):
        """Note that so many epochs are complete; returns the losses of the last one."""
        recent, self.in_epoch, self.epochs = self.losses[self.in_epoch :], len(self.losses), epochs
        return recent

    def state(self):
        return State(numbers={"epochs": self.epochs, "in_epoch": self.in_epoch}, logs={"losses": self.losses})

    def load(self, state):
        self.losses = state.logs["losses"].tolist()
        self.epochs, self.in_epoch = state.numbers["epochs"], state.numbers["in_epoch"]


def settings_of(args, net, samples, steps, content):
    """What a later run compares with its own.

    net: the ParallelSequential. samples: in the training data. steps: of the run. content: of the data, see `content_of`.
    """
    sums = str(net.reduction) if "reduction" in states_of(net) else "exact"
    options = {name: getattr(args, name) for name in (*SAME, *NOTED)}
    of_data = {"content": content, "dataset_options": options_of(args.dataset)}
    return options | of_data | {"samples": samples, "total_steps": steps, "sums": sums}


def options_of(name):
    """{option: text} of the name of a data set, without the paths of files, which may move."""
    if name.startswith(table.PREFIX):
        said = vars(table.parse(name)) | {"name": table.PREFIX}
    elif name.startswith(images.PREFIX):
        said = {"name": images.PREFIX, "size": images.parse(name)[1]}
    else:
        said = {"name": name}
    return {option: str(value) for option, value in said.items() if value and option not in FILES}


class Checkpoints:
    """The checkpoints of one run of `train`; without --checkpoint and --resume its methods do nothing.

    args: the options. program: options of a Saver, whose signals listen already if there is --checkpoint, whose settings are
    those of `settings_of`, and which says what is a warning. The others are as for a Saver; among the participants is the
    "protocol". say: called with a line about anything else.

    resumed: the step after which this run goes on; None if it began. failure: the UserError of the last checkpoint, if any.
    """

    def __init__(self, args, comm, net, participants, workers, program, say):
        self.args, self.comm, self.net, self.participants, self.workers = args, comm, net, participants, workers
        self.say, self.warn, self.settings = say, program["say"], program["settings"]
        self.resumed, self.saver, self.failure = None, None, None
        if args.checkpoint:
            protocol = participants["protocol"]
            protocol.state()  # says now if the protocol has none
            minutes = args.checkpoint_minutes or (None if args.checkpoint_steps else MINUTES)
            every = max(net.steps_under_way, 1 if workers.size == 1 else protocol.interval or APART)
            policy = {"steps": args.checkpoint_steps, "minutes": minutes, "keep": args.keep or KEEP, "every": every}
            self.saver = Saver(comm, net, participants, args.checkpoint, workers, **policy, **program)
            if net.steps_under_way > 1:
                self.say("note: an asynchronous pipeline is emptied for a checkpoint, which changes the training: only runs "
                         "with checkpoints after the same steps, as by --checkpoint-steps, equal each other")  # fmt: skip

    def resume(self):
        """Take over the newest checkpoint, if there is one to take over. Collective."""
        args = self.args
        if args.resume:
            begins = goes_on_in_place(args)
            start = time.monotonic()
            found = newest(self.comm, args.resume, self.warn)
            if found is None and not begins:
                raise UserError(nothing_in(args.resume))
            if found is None:
                self.say(f"no checkpoint in {args.resume} yet: training begins")
            else:
                self._check(found.manifest)
                if validation := self.participants.get("validation"):
                    validation.expect(found.manifest.settings.get(OF_BEST) is not None)
                try:
                    found.restore(self.net, self.participants, self.workers)
                except ValueError as error:
                    raise UserError(str(error)) from None
                self.resumed = found.manifest.step
                if begins:
                    self.saver.has(self.resumed, found.passed_over)
                took = time.monotonic() - start
                self.say(f"goes on after step {self.resumed}, from {found.manifest.folder}, which was read in {took:.2f} s")

    def _check(self, manifest):
        """UserError unless the run of a checkpoint can be continued by this one; notes what makes it another training."""
        before = manifest.settings
        by_content = "content" in before  # else the name says what the data are
        moved = by_content and before.get("dataset_options") == self.settings["dataset_options"]
        for name in (*SAME, *DERIVED):
            if before.get(name) != self.settings[name] and not (moved and name == "dataset"):
                option = DERIVED.get(name, f"--{name.replace('_', '-')}")
                raise UserError(
                    f"--resume: {manifest.folder} was written with {option} {before.get(name)}, not {self.settings[name]}: "
                    f"give the same, or another folder"
                )
        if by_content and before["content"] != self.settings["content"]:
            raise UserError(
                f"--resume: {manifest.folder} was written with other data in {before.get('dataset')} than there are now in "
                f"{self.settings['dataset']}: give the same, or another folder"
            )
        if before.get("dataset") != self.settings["dataset"]:
            self.say(f"note: the data were {before.get('dataset')} before, with the same content")
        different = [name for name in (*NOTED, "total_steps") if before.get(name) != self.settings[name]]
        if different:
            words = ", ".join(f"{name} {before.get(name)} -> {self.settings[name]}" for name in different)
            self.say(f"note: this is not the training that was interrupted: {words}")

    def boundary(self, step):
        """Called between two steps; see Saver. Collective."""
        if self.saver:
            self.saver.boundary(step)

    def finish(self, step, best_epoch=None):
        """Called after the last step, before anything else changes the network: the last checkpoint. Collective.

        If that can not be written, the results of the run still can: it is an error only at the `end`. best_epoch: the epoch
        whose weights the network has, if they are not those of the last step.
        """
        if self.saver:
            with suppress(UserError):  # of an earlier one, which has been said
                self.saver.complete()
            self.settings[OF_BEST] = best_epoch
            self.saver.save(step)
            try:
                self.saver.close()
            except UserError as error:
                self.failure = error
            self.saver.signals.nothing_left()

    def end(self):
        """Note that the run is complete, with all its results. Collective. UserError if the last checkpoint was not written.

        `supervise` asks for this, since Open MPI's mpiexec ends with status 0 when it loses a node.
        """
        if self.failure:
            raise self.failure
        if self.args.checkpoint:
            on_root(self.comm, lambda: touch(Path(self.args.checkpoint) / COMPLETE))

    def report(self):
        """What a report says. written: whole checkpoints. seconds: that training stood still, on the first rank."""
        if not self.saver:
            return {"resumed": self.resumed}
        return {"resumed": self.resumed, "checkpoints": {"written": self.saver.written, "seconds": self.saver.seconds}}
