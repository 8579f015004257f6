"""Training steps of a script that can be ended at any time and started again."""

import sys
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Policy, Program, Saver
from gridgrad.parallel.checkpoint.signals import Signals
from gridgrad.parallel.checkpoint.state import OptimizerState, State, states_of
from gridgrad.parallel.job.run import CHECKPOINTED, EndedEarly

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential


def resumable_steps(
    net: "ParallelSequential",
    optimizer: Any,
    checkpoint: str | PathLike[str],
    steps: int,
    checkpoint_steps: int | None = None,
    checkpoint_minutes: float | None = None,
    keep: int = 3,
    kept: dict[str, Any] | None = None,
) -> Iterator[int]:
    """The numbers of the training steps of a script, which goes on where it was ended before. A generator; collective.

    The first time it begins at `net.step`, else after the newest whole checkpoint in the folder, on whatever grid that was
    written. It writes one every so many steps or minutes, and one at the end. When SIGTERM or SIGUSR1 comes to any rank it
    writes one after the step under way, and all ranks exit with status 75. A loop that is left earlier, by `break` or an
    exception, has the checkpoints that were whole by then.

    Parameters
    ----------
    net, optimizer
        A parallel network and its optimizer; the body of the loop trains them by one step.
    checkpoint : str or path
        Where checkpoints are, on a file system that all ranks see.
    steps : int
        How many steps there are in all.
    checkpoint_steps, checkpoint_minutes : number, optional
        Steps and minutes between two checkpoints. By default there is one every 15 minutes.
    keep : int
        How many checkpoints to keep.
    kept : dict, optional
        Whatever else the script wants back: a dict of what JSON can hold, finite and the same on all ranks, which checkpoints
        contain too. It is changed in place, before the first step.

    Yields
    ------
    The number of each step, from 0 in a new training.

    Raises
    ------
    ValueError
        If a checkpoint is of another network or optimizer, or if the body of the loop does not train.
    UserError
        If the last checkpoint can not be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> from gridgrad.parallel import parallelize, resumable_steps
    >>> comm, x, y = MPI.COMM_WORLD, np.ones((4, 3)), np.zeros((4, 2))
    >>> folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)  # a script names one
    >>> def trained(steps):
    ...     net = parallelize(Sequential([Linear(3, 2)], input_shape=(3,)), {"batch": comm.size})
    ...     optimizer, loss = SGD(net, lr=0.1), MSE()
    ...     numbers = []
    ...     for step in resumable_steps(net, optimizer, folder, steps):
    ...         net.learn(x, y, loss, optimizer)
    ...         numbers.append(step)
    ...     net.grid.free()
    ...     return numbers
    >>> trained(steps=2), trained(steps=5)
    ([0, 1], [2, 3, 4])
    """
    comm, participants = net.grid.comm, states_of(net) | {"optimizer": OptimizerState(net, optimizer)}
    if kept is not None:
        participants["kept"] = KeptSteps(kept)
    say = (lambda words: print(words, file=sys.stderr, flush=True)) if comm.rank == 0 else lambda words: None
    found = newest(comm, checkpoint, say)
    if found:
        found.restore(net, participants)
    minutes = checkpoint_minutes or (None if checkpoint_steps else MINUTES)
    signals, policy = Signals(), Policy(checkpoint, checkpoint_steps, minutes, keep)
    saver = Saver(comm, net, participants, policy, program=Program(signals, say=say))
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
        say(f"stopped by a signal after step {net.step}, with a checkpoint in {checkpoint}: start the script again to go on")
        sys.exit(CHECKPOINTED)
    finally:
        signals.listen_no_more()


class KeptSteps:
    """What a script wants to have again, as a participant. content: a dict of what JSON can hold."""

    def __init__(self, content):
        self.content = content

    def state(self):
        return State(numbers={"content": self.content})

    def load(self, state):
        self.content.clear()
        self.content.update(state.numbers["content"])
