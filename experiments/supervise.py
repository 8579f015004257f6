"""Start a training again, from its last checkpoint, until it is complete: after a rank or a node has died, or it was ended.

    gridgrad supervise --ranks 4 --grid batch=2,model=2 -- train --net mlp:512,512,relu --checkpoint DIR

Where the job has several nodes, those that do not answer are left out of the next start, and the grid is chosen for the ranks
that are left. Everything that follows from how a job has ended:

| the job ends with                               | supervise                                                              |
|-------------------------------------------------|------------------------------------------------------------------------|
| status 0, and training is complete              | ends with 0                                                            |
| status 2: bad input, or no room for checkpoints | ends with 2: the same command would fail again                         |
| status 75: stopped early, with a checkpoint     | ends with 75: start the same command again, in another allocation      |
| any other status, after SIGTERM or SIGUSR1      | ends with 75                                                           |
| anything else                                   | waits, and starts the job again; after too many times, with that status |
"""

import argparse
import signal
import sys
import time
from contextlib import suppress
from math import prod
from pathlib import Path

from gridgrad.experiments.common import programs
from gridgrad.experiments.common.checkpoints import COMPLETE
from gridgrad.experiments.common.options import Parser, among, check_startable, number, user_input, whole
from gridgrad.experiments.common.programs import as_module, check_enough
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.launching import start_ranks
from gridgrad.experiments.launching.start_ranks import SRUN, SSH, Foreground, find_mpiexec
from gridgrad.parallel import parse_grid
from gridgrad.parallel.checkpoint.manifest import found_in, lock
from gridgrad.parallel.grid.process_grid import written
from gridgrad.parallel.job.run import CHECKPOINTED, run_launcher

HALTED = 77  # the exit status where the halt file forbids a start: EX_NOPERM of sysexits.h
LONGEST = 60.0  # seconds between two starts
LEASE = 120.0  # seconds after which a file server gives the lock of a node that is gone to another one
TRAIN, AUTO = "train", "auto"


def options():
    parser = Parser(prog="supervise", description="Start a training again from its last checkpoint until it is complete.")
    add = parser.add_argument
    add("--ranks", type=whole(1), metavar="N", help="number of ranks (default: that of the first grid, else all slots)")
    add("--grid", action="append", metavar="GRID", help="sizes of the axes, as for train; of several the first fitting on the "
        "ranks that are left, else the first with a shorter axis batch (default: batch=RANKS)")  # fmt: skip
    add("--retries", type=whole(0), default=10, metavar="N", help="starts again without a newer checkpoint between, at most")
    add("--wait", type=number(least=0), default=1.0, metavar="S", help="seconds between a failure and the next start, doubled "
        f"for each further one without a newer checkpoint, up to {LONGEST:g}")  # fmt: skip
    add("--halt", metavar="FILE", help=f"start nothing as long as this file exists, but end with status {HALTED}")
    add("--nodes", metavar="FILE", help="a line NAME:SLOTS for each node (default: Slurm's allocation, else this machine)")
    add("--ask", metavar="COMMAND", help="the command, with {node} in it, that succeeds if a node answers (default: "
        f"`{SSH}`, or within Slurm `{SRUN}`)")  # fmt: skip
    add("program", nargs="?", metavar="train", help="the program, which is train; put -- in front of it")
    add("arguments", nargs=argparse.REMAINDER, help="options of train, --checkpoint DIR among them")
    return parser


def fitting(grids, ranks):
    """(the grid to use on so many ranks, as a text; how many of them it has); None if there is none. grids: dicts or AUTO."""
    for sizes in grids:
        if sizes == AUTO:
            return AUTO, ranks
        if prod(sizes.values()) <= ranks:
            return written(sizes), prod(sizes.values())
    for sizes in grids:
        others = prod(size for axis, size in sizes.items() if axis != "batch")
        if others <= ranks:
            return written(sizes | {"batch": ranks // others}), ranks // others * others
    return None


def newest_step(folder):
    """How many steps of training the newest checkpoint in a folder has; -1 if there is none, or it can not be read."""
    with suppress(OSError):
        for manifest in found_in(folder)[0]:
            return manifest.step
    return -1


def time_of(path):
    """When a file was changed last; None if there is none."""
    with suppress(OSError):
        return path.lstat().st_mtime_ns


def say(line):
    print(f"supervise, {time.strftime('%Y-%m-%d %H:%M:%S')}: {line}", file=sys.stderr, flush=True)


class Supervisor:
    """Starts the training of some options until it is complete. OSError or ValueError for options that do not suit."""

    def __init__(self, args):
        self.nodes = start_ranks.nodes_in(args.nodes) if args.nodes else start_ranks.nodes_of_allocation()
        slots = sum(self.nodes.values())  # of {name: slots}; {} for this machine alone
        self.folder, self.grids, self.ranks = training_of(args, slots)
        if self.ranks is None and not self.nodes:
            raise ValueError("how many ranks? Give --ranks N, or --grid with the sizes of its axes")
        if self.nodes and self.ranks and self.ranks > slots:
            raise ValueError(
                f"{self.ranks} ranks do not fit in the {slots} slots of the nodes: ask for fewer, or name more nodes"
            )
        find_mpiexec()
        self.command = [sys.executable, *as_module(TRAIN), *args.arguments, "--resume", str(self.folder)]  # without the grid
        self.halt, self.ask = args.halt and Path(args.halt), args.ask or (SSH if args.nodes else SRUN)
        self.retries, self.wait, self.jobs = args.retries, args.wait, Foreground()
        self.starts = []  # rows of the table at the end

    def run(self):
        """Start the training until it is complete or must not be started any more; returns the status to exit with."""
        failures, best = 0, newest_step(self.folder)
        try:
            while not self.jobs.signalled:
                if self.halt and self.halt.exists():
                    say(f"{self.halt} exists, so nothing is started: delete it and start the same command again to go on")
                    return HALTED
                status = self._start()
                if status in (0, 2, CHECKPOINTED):
                    return status
                if self.jobs.signalled:
                    break
                step = newest_step(self.folder)
                failures, best = 1 if step > best else failures + 1, max(step, best)
                if failures > self.retries:
                    say(f"status {status}, and no newer checkpoint after {self.retries} starts again: giving up")
                    return status
                seconds = min(self.wait * 2 ** (failures - 1), LONGEST)
                last = f"step {step} is the last in a checkpoint" if step >= 0 else "there is no checkpoint yet"
                say(f"the job ended with status {status}; {last}; start again in {seconds:g} s ({failures} of {self.retries})")
                self.jobs.pause(seconds)
            received = self.jobs.signalled
            say(f"ended by {signal.Signals(received).name}: start the same command again to go on")
            return CHECKPOINTED if received in (signal.SIGTERM, signal.SIGUSR1) else 128 + received
        finally:
            if self.starts:
                print(table(self.starts), file=sys.stderr, flush=True)

    def _start(self):
        """Run the job once, on the nodes that answer; returns its status, 1 if too few are left."""
        living = start_ranks.answering(self.nodes, self.ask) if self.nodes else {}
        if missing := self.nodes.keys() - living.keys():
            say(f"without {', '.join(sorted(missing))}, which {'do' if len(missing) > 1 else 'does'} not answer")
        slots = sum(living.values()) if self.nodes else self.ranks
        ranks = min(slots, self.ranks or slots)
        chosen = fitting(self.grids or [{"batch": max(ranks, 1)}], ranks)
        if chosen is None:
            say(f"no grid fits on the {counted(ranks, 'rank')} that are left: name a smaller one with another --grid")
            return 1
        grid, ranks = chosen
        placed = start_ranks.launcher_options(find_mpiexec()[0], living, ranks) if self.nodes else []
        say(f"{counted(ranks, 'rank')}, {grid}{' on ' + ', '.join(living) if living else ''}")
        end = time.monotonic() + LEASE
        while self.starts and time.monotonic() < end and not self.jobs.signalled:  # until the job before has left the folder
            try:
                lock(self.folder).release()
                break
            except (OSError, ValueError):  # a file server may take a while to see that a node is gone
                self.jobs.pause(1)
        completed, began = time_of(self.folder / COMPLETE), time.monotonic()
        status = self.jobs.run(ranks, [*self.command, "--grid", grid], placed)
        step = newest_step(self.folder)
        self.starts.append({
            "start": len(self.starts) + 1, "ranks": ranks, "grid": grid, "minutes": f"{(time.monotonic() - began) / 60:.1f}",
            "status": status, "steps in a checkpoint": step if step >= 0 else None,
        })  # fmt: skip
        if status == 0 and time_of(self.folder / COMPLETE) in (None, completed):  # Open MPI's mpiexec has lost a node
            say("the launcher ended with status 0, but the training did not reach its end")
            return 1
        return status


def training_of(args, slots=None):
    """(folder of the checkpoints, grids, ranks or None) of the options, which must suit `slots` ranks where these are known."""
    if args.program is None:
        raise ValueError("name the training behind --, such as supervise --ranks 4 -- train --checkpoint DIR")
    if args.program != TRAIN:
        raise ValueError(f"only {TRAIN} has checkpoints from which it can be started again, not {args.program}")
    given, _ = among(args.arguments, "checkpoint", "resume", "grid")
    if not given.checkpoint:
        raise ValueError("the training can not go on without checkpoints: give train the option --checkpoint DIR")
    if given.resume is not None:
        raise ValueError("train is told to resume from the folder of --checkpoint: leave --resume out")
    if given.grid is not None:
        raise ValueError("the grid may change from start to start: give --grid to supervise, in front of --, and not to train")
    grids = [AUTO if text == AUTO else parse_grid(text) for text in args.grid or ()]
    if args.ask and "{node}" not in args.ask:
        raise ValueError(f"--ask '{args.ask}' does not say where the name of the node stands: put {{node}} there")
    ranks = args.ranks or (prod(grids[0].values()) if grids and grids[0] != AUTO else None)
    if ranks and not args.nodes:
        check_startable(ranks)
    if grids and (ranks or slots) and fitting(grids, ranks or slots) is None:
        words = counted(ranks or slots, "rank")
        raise ValueError(f"none of the grids fits on {words}: name one that does with --grid, or more ranks")
    return Path(given.checkpoint), grids, ranks


def check_job(args, ranks):
    """Raise ValueError for a training that does not suit a job of so many ranks: see `programs.check_job`."""
    folder, _, wanted = training_of(args, ranks)
    check_enough(wanted or 1, ranks, "the training")
    programs.check_job([TRAIN, *args.arguments, "--resume", str(folder)], wanted or ranks)


def main():
    args = options().parse_args()
    with user_input():
        status = Supervisor(args).run()
    sys.exit(status)


if __name__ == "__main__":
    run_launcher(main)
