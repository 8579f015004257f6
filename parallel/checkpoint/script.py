"""Training steps of a script that can be ended at any time and started again."""

import sys

from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Saver
from gridgrad.parallel.checkpoint.signals import Signals
from gridgrad.parallel.checkpoint.state import OptimizerState, State, states_of
from gridgrad.parallel.job.run import CHECKPOINTED, EndedEarly


def resumable_steps(net, optimizer, directory, steps, every=None, minutes=None, keep=3, kept=None):
    """The numbers of the training steps of a script, which goes on where it was ended before. A generator; collective.

        for step in resumable_steps(net, optimizer, "checkpoints", 10_000):
            value = net.learn(*minibatch(step), loss, optimizer)

    The first time it begins at `net.step`, else after the newest whole checkpoint in the folder, on whatever grid that was
    written. It writes one every so many steps (`every`) or minutes (by default 15, without `every`), and one at the end. When
    SIGTERM or SIGUSR1 comes to any rank it writes one after the step under way, and all ranks exit with status 75. A loop that
    is left earlier, by `break` or an exception, has the checkpoints that were whole by then.

    net, optimizer: a ParallelSequential and its optimizer; the body of the loop trains them by one step. directory: on a file
    system that all ranks see. steps: how many there are in all. keep: how many checkpoints to keep. kept: a dict of whatever
    JSON can hold, finite and the same on all ranks, which checkpoints contain too; it is changed in place, before the first
    step.
    Raises ValueError if a checkpoint is of another network or optimizer, or if the body of the loop does not train; UserError
    if the last checkpoint can not be written.
    """
    comm, participants = net.grid.comm, states_of(net) | {"optimizer": OptimizerState(net, optimizer)}
    if kept is not None:
        participants["kept"] = Kept(kept)
    say = (lambda words: print(words, file=sys.stderr, flush=True)) if comm.rank == 0 else lambda words: None
    found = newest(comm, directory, say)
    if found:
        found.restore(net, participants)
    minutes = minutes or (None if every else MINUTES)
    signals = Signals()
    saver = Saver(comm, net, participants, directory, steps=every, minutes=minutes, keep=keep, signals=signals, say=say)
    if found:
        saver.has(net.step)
    signals.listen()
    try:
        while net.step < steps:
            saver.boundary(step := net.step)
            yield step
            if net.step != step + 1:
                saver.close()
                raise ValueError(f"step {step} of resumable_steps has trained the network by {net.step - step} steps, not by 1")
        saver.save(net.step)
        saver.close()
    except EndedEarly:
        saver.close()
        say(f"stopped by a signal after step {net.step}, with a checkpoint in {directory}: start the script again to go on")
        sys.exit(CHECKPOINTED)
    finally:
        signals.listen_no_more()


class Kept:
    """What a script wants to have again, as a participant. content: a dict of what JSON can hold."""

    def __init__(self, content):
        self.content = content

    def state(self):
        return State(numbers={"content": self.content})

    def load(self, state):
        self.content.clear()
        self.content.update(state.numbers["content"])
