"""Training steps of a script that can be ended at any time and started again."""

import gc
import json
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from inspect import CO_GENERATOR
from itertools import chain
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import MINUTES, Saver, Signals
from gridgrad.parallel.checkpoint.state import OptimizerState, State, states_of
from gridgrad.parallel.job.run import CHECKPOINTED, EndedEarly, UserError
from gridgrad.parallel.job.waiting import meet

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

MARK = "$"  # the key of an object that stands for what JSON does not have
LOST = {MARK: "lost"}  # stands for what could not be saved
DEEPEST = 100  # lists and dicts within each other
LONGEST_BITS = 14000  # of a whole number: Python writes no more than 4300 digits


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
    writes one after the step under way, and all ranks exit with status 75. All ranks may leave the loop in the same step, by
    `break` or `return`: it writes one then too, and the next start of the script goes on behind that step, so `kept` must say
    if it is to stop for good. After an exception there are the checkpoints that were whole by then.

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
        Whatever else the script wants back, the same on all ranks, which checkpoints contain too: numbers, also infinity and
        NaN, texts, truth values, None, and lists, tuples and dicts of them. A scalar of NumPy comes back as the number of
        Python that it equals. The dict is changed in place, before the first step. If it later gets what can not be saved, a
        line says so, and checkpoints are written without that entry, which begins anew then.

    Yields
    ------
    The number of each step, from 0 in a new training.

    Raises
    ------
    ValueError
        If a checkpoint is of another network or optimizer, if `kept` has what can not be saved or differs between the ranks, or
        if the body of the loop does not train.
    UserError
        If the last checkpoint can not be written, if the folder has checkpoints and none of them can be used, or if another
        training writes there.

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
    say = (lambda words: print(words, file=sys.stderr, flush=True)) if comm.rank == 0 else lambda words: None
    if kept is not None:
        participants["kept"] = KeptSteps(kept, say)
        participants["kept"].check(comm)
    minutes = checkpoint_minutes or (None if checkpoint_steps else MINUTES)
    signals, policy = Signals(), {"steps": checkpoint_steps, "minutes": minutes, "keep": keep}
    saver = Saver(comm, net, participants, checkpoint, **policy, signals=signals, say=say)
    try:
        if found := newest(comm, checkpoint, say):  # while no other job writes there
            found.restore(net, participants)
            saver.has(net.step, found.passed_over)
    except (UserError, ValueError):
        saver.close()
        raise
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
    except GeneratorExit:
        if not is_left_by_exception(sys._getframe(1)) and not MPI.Is_finalized():
            saver.save(net.step)
            with suppress(UserError):  # which has been said, and nobody would catch it here
                saver.close()
    except EndedEarly:
        saver.close()
        say(f"stopped by a signal after step {net.step}, with a checkpoint in {checkpoint}: start the script again to go on")
        sys.exit(CHECKPOINTED)
    finally:
        signals.listen_no_more()


def is_left_by_exception(frame):
    """Whether a loop in this frame, or in one that takes its items, is left by an exception, perhaps on this rank alone.
    Python does not tell the iterator so, but the exception has a traceback with the frame that it is passing through."""
    frames = [frame]
    while frames[-1].f_code.co_flags & CO_GENERATOR and frames[-1].f_back:
        frames.append(frames[-1].f_back)
    return any(type(found) is TracebackType and found.tb_frame in frames for found in gc.get_objects())


class KeptSteps:
    """What a script wants to have again, a dict, as a participant. say: called with a line about what is lost."""

    def __init__(self, content, say):
        self.content, self.say = content, say

    def check(self, comm):
        """ValueError, on all ranks, for what can not be saved on one of them, or is not the same. Collective."""
        own = self._saved()
        meet(comm, "what a script wants to keep")
        everyone, problems = zip(*comm.allgather(own))
        if problem := next(chain(*problems), None):
            raise ValueError(f"resumable_steps: {problem}")
        for rank, other in enumerate(everyone):
            for key in everyone[0] | other:
                if everyone[0].get(key, LOST) != other.get(key, LOST):
                    raise ValueError(f"resumable_steps: kept[{key!r}] on rank {rank} is not what it is on rank 0")

    def state(self):
        found, problems = self._saved()
        for problem in problems:
            self.say(f"warning: {problem}; it is left out of the checkpoint")
        return State(numbers={"content": object_of(found)})

    def load(self, state):
        found, given = from_json(state.numbers["content"]), dict(self.content)
        self.content.clear()
        self.content.update((key, value) for key, value in found.items() if value is not LOST)
        for key in [key for key in found if key not in self.content]:
            self.say(f"warning: kept[{key!r}] could not be saved in the checkpoint: it begins anew")
            self.content |= {key: given[key]} if key in given else {}

    def _saved(self):
        """({key: value as JSON holds it}, [what is wrong with an entry, in words]); LOST stands for such an entry."""
        found, problems = {}, []
        for key, value in self.content.items():
            try:
                to_json(key, f"the key {key!r} of kept")
                found[key] = LOST
                found[key] = to_json(value, f"kept[{key!r}]")
            except ValueError as error:
                problems.append(str(error))
        return found, problems


def to_json(value, where, depth=0):
    """A value as JSON holds it, from which `from_json` makes an equal one of the same type; NumPy's scalars become Python's.
    ValueError, which names the value as `where`, if it can not be saved."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, str) or kind is int and value.bit_length() <= LONGEST_BITS:
        return value
    if kind is float:
        return value if math.isfinite(value) else {MARK: str(value)}
    if depth == DEEPEST:
        raise ValueError(f"{where} has too many lists within each other to be saved")
    if kind in (list, tuple):
        items = [to_json(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value)]
        return items if kind is list else {MARK: "tuple", "of": items}
    if kind is dict:
        return object_of({key: to_json(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}, where, depth)
    what = "a number of too many digits" if kind is int else f"of the type {kind.__name__}"
    raise ValueError(f"{where} is {what}, which can not be saved: keep numbers, texts, and lists, tuples and dicts of them")


def object_of(items, where="kept", depth=0):
    """A dict of values that JSON holds already, as JSON holds it: only keys that are texts remain keys."""
    if all(type(key) is str and key != MARK for key in items):
        return items
    return {MARK: "dict", "of": [[to_json(key, f"a key of {where}", depth + 1), value] for key, value in items.items()]}


def from_json(value):
    """What `to_json` was given."""
    return json.loads(json.dumps(value), object_hook=meaning)


def meaning(held):
    """What an object of JSON stands for; what is within it has its meaning already."""
    kind = held.get(MARK)
    if kind in ("tuple", "dict"):
        return (tuple if kind == "tuple" else dict)(held["of"])
    return held if kind is None else LOST if held == LOST else float(kind)
