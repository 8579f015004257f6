"""Groups that compare each collective before it begins, to find ranks that do different things.

Ranks that enter different collectives, or the same one with buffers that do not fit together, wait for ever, crash, or go on
with wrong numbers. In a CheckedGroup each rank first tells the others what it is about to do and from where it was called.

A blocking collective begins when all have told the same. A non-blocking one begins at once, since ranks may begin those of
different groups in different orders; it is compared as soon as all have told, at the latest when it is waited for.
"""

import json
import sys
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.job import under_way
from gridgrad.parallel.job.run import Fault, raise_together

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONGEST = 150  # characters of the name of a layer and of a place in the source that are compared
ROOM = 2048, 48  # bytes of what a rank tells: at most, and more for each rank of the group
_checking = False
_begun: Counter[tuple] = Counter()  # {ranks: how many collectives this process has begun in all groups of exactly these ranks}


def compare_collectives(on: bool = True) -> None:
    """Compare the collectives of all groups of ranks that are made from now on, to find ranks that do different things.

    Call it before the grid is made. Where ranks contradict each other the job ends, with a line that says what was found.

    Parameters
    ----------
    on : bool
        Whether to compare them, or no longer.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import ProcessGrid, compare_collectives
    >>> compare_collectives()
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     print(type(grid.world).__name__)
    CheckedGroup
    >>> compare_collectives(False)
    """
    global _checking
    _checking = on


def make_group(comm, tally):
    """A Group of the ranks of `comm`: one that compares where `compare_collectives` says so. Collective."""
    return (CheckedGroup if _checking else Group)(comm, tally)


@dataclass(frozen=True)
class Call:
    """What one rank is about to do.

    kind, layer: as the tally counts it. unit: the dtype of the elements, or "bytes". elements: how many there are, if all ranks
    must have as many. sends, expects: how many elements go to each rank of the group and come from it, by rank; empty where
    `elements` says it all. number: how many collectives the rank has begun in groups of these ranks; where one is skipped, the
    next may look the same. caller, line: the file and the function from which it was called, and the line, which may differ
    between ranks with different parts to play.
    """

    kind: str
    layer: str
    unit: str
    elements: int | None
    sends: list
    expects: list
    number: int
    caller: str
    line: int

    def __str__(self):
        if self.elements is not None:
            much = f"{self.elements}"
        else:
            much = f"{sum(self.sends)} (to each rank {listed(self.sends)}; from each {listed(self.expects)})"
        return f"{self.kind} (number {self.number}) of '{self.layer}', {much} {self.unit}, in {self.caller}, line {self.line}"

    @property
    def common(self):
        """What must be the same on all ranks."""
        return self.kind, self.layer, self.unit, self.elements, self.number, self.caller


def listed(counts):
    """Counts in words, the first ones of many."""
    return " ".join(map(str, counts[:8])) + " .." * (len(counts) > 8)


def contradiction(calls):
    """Two positions in a list of Calls, one for each rank, that do not fit together; None if all do."""
    for place, call in enumerate(calls):
        if call.common != calls[0].common:
            return 0, place
    for sender, call in enumerate(calls):
        for receiver, count in enumerate(call.sends):
            if count != calls[receiver].expects[sender]:
                return sender, receiver
    return None


class Comparison:
    """One collective that is compared: this rank has told what it is about to do, and hears what the others are.

    group: the CheckedGroup. call: what this rank is about to do. done: whether it is over.
    """

    def __init__(self, group, call):
        self.group, self.layer, self.kind = group, call.layer, call.kind
        told = np.frombuffer(json.dumps(astuple(call), ensure_ascii=False).encode(errors="backslashreplace"), np.uint8)
        self.own, self.heard = (np.zeros((ranks, ROOM[0] + ROOM[1] * group.size), np.uint8) for ranks in (1, group.size))
        self.own[0, : told.size] = told
        self.request = group.apart.Iallgather(self.own, self.heard)

    @property
    def done(self):
        return self.request is None

    def test(self):
        """Compare if all ranks have told by now. Raises Fault, on all ranks, if two of them contradict each other."""
        if not self.done and self.request.Test():
            self._judge()
        return self.done

    def wait(self):
        """Wait until all ranks have told, and compare; see `test`."""
        if not self.done:
            under_way.enter(self.group, self.layer, f"{self.kind} (not all of them have come to a collective)")
            self.request.Wait()
            under_way.leave()
            self._judge()

    def _judge(self):
        self.request = None
        calls = [Call(*json.loads(told.tobytes().rstrip(b"\0"))) for told in self.heard]
        if found := contradiction(calls):
            said = "; ".join(f"rank {self.group.ranks[place]}: {calls[place]}" for place in dict.fromkeys(found))
            raise_together(self.group.rank, Fault(f"the ranks of a group do not enter the same collective: {said}"))


class ComparedTransfer:
    """A Transfer whose Comparison comes first; it has the methods and the times of the Transfer."""

    def __init__(self, transfer, comparison):
        self.transfer, self.comparison = transfer, comparison

    @property
    def done(self):
        return self.comparison.done and self.transfer.done

    @property
    def started(self):
        return self.transfer.started

    @property
    def stopped(self):
        return self.transfer.stopped

    def test(self):
        return self.comparison.test() and self.transfer.test()

    def wait(self):
        self.comparison.wait()
        self.transfer.wait()


class CheckedGroup(Group):
    """A Group that compares each collective before it begins or, if it does not block, while it is under way.

    Its collectives raise Fault, on all its ranks, if two ranks do not fit together.
    """

    def __init__(self, comm, tally):
        super().__init__(comm, tally)
        self.apart = comm.Dup()  # no message of a comparison is ever taken for one of a collective

    def free(self):
        self.apart.Free()
        super().free()

    def _tell(self, kind, layer, unit, elements=None, sends=(), expects=()):
        """The Comparison of what this rank is about to do. The arguments are as for `Group.counted`."""
        _begun[self.ranks] += 1
        counts = self._by_rank(sends), self._by_rank(expects)
        number = _begun[self.ranks]
        return Comparison(self, Call(kind, str(layer)[:LONGEST], str(unit), elements, *counts, number, *call_site()))

    def _by_rank(self, counts):
        """For each rank a number, a list. counts: numbers, one for all ranks, or arrays, of which its own does not count."""
        if not hasattr(counts, "__len__"):
            return [int(counts)] * self.size
        sizes = [count.nbytes if isinstance(count, np.ndarray) else int(count) for count in counts]
        return [n if rank != self.rank or not isinstance(counts[rank], np.ndarray) else 0 for rank, n in enumerate(sizes)]

    def counted(self, kind, array, layer, own=0, **told):
        if self.size > 1:
            self._tell(kind, layer, array.dtype, **told).wait()
        return super().counted(kind, array, layer, own)

    def started(self, kind, layer, sent, steps, messages=None, **told):
        if self.size == 1:
            return super().started(kind, layer, sent, steps, messages)
        comparison = self._tell(kind, layer, **told)
        return ComparedTransfer(super().started(kind, layer, sent, steps, messages), comparison)


def call_site():
    """(file and function, line) of the innermost caller outside of this folder, such as ("parallel/x.py, add_up", 40)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == HERE:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    place = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}, {frame.f_code.co_name}"
    return place[-LONGEST:], frame.f_lineno
