"""What must hold at the end of every execution of an update protocol.

Each function gets a case of `protocols.py` that has been executed, and raises Violation.
"""

import math

import numpy as np

from gridgrad.parallel.protocols.server import BulkServerShard, Downpour, ParameterServer
from tests.orders.machine import Violation

BASE = 4  # of the number that says which gradients were applied


def judge(case):
    """What an execution leads to; Violation if it does not keep a promise."""
    if case.machine.ended is not None:
        check_end(case)
        return (case.machine.ended,)
    survivors = [rank for rank in range(case.size) if case.machine.actors[rank].alive]
    check_equal(case, survivors)
    first = case.protocols[0]
    if isinstance(first, ParameterServer):
        check_counts(case, survivors)
        check_shares(case)
        if not isinstance(first, Downpour):
            check_staleness(case)
            check_bound(case)
    if case.held:
        held = sorted(sample for found in case.held.values() for sample in found)
        if held != list(range(case.batch or case.size)):
            raise Violation(f"after samples have moved, the workers have {held}")
    if case.mortal is None:
        check_all_handled(case)
    return tuple(np.round(case.nets[0].params, 9).tolist())


def check_end(case):
    """The job ends because of a death only where all had said that they were done, and nobody thinks that one is missing."""
    if len(case.protocols[0].done) < case.size:
        raise Violation(f"{case.machine.ended}, although training goes on")
    for rank, protocol in enumerate(case.protocols):
        if protocol.lost and case.machine.actors[rank].alive:
            raise Violation(f"{case.machine.ended}, although rank {rank} knows that it has died and goes on")


def check_equal(case, survivors):
    """All workers end with equal parameters."""
    for rank in survivors[1:]:
        if not np.array_equal(case.nets[rank].params, case.nets[survivors[0]].params):
            params = [case.nets[one].params.tolist() for one in (survivors[0], rank)]
            raise Violation(f"ranks {survivors[0]} and {rank} end with other parameters: {params[0]} and {params[1]}")


def check_counts(case, survivors):
    """Every gradient of a survivor is applied once, to every parameter, and none of a dead one more than once."""
    due = {number for rank in survivors for number in case.notes[rank].turns}
    for rank in survivors:
        protocol, notes = case.protocols[rank], case.notes[rank]
        if not protocol.shard.params.size:
            continue
        if missing := due - notes.applied:
            raise Violation(f"the gradient of turn {min(missing)} is not applied")
        shard, pushes = protocol.shard, sum(protocol.shard.clocks)
        counted = sum(shard.staleness.values())
        if not shard.version == pushes == counted:
            raise Violation(
                f"rank {rank} counts {shard.version} gradients applied, {pushes} pushed, and {counted} by staleness"
            )
    expected = sum(float(BASE) ** number for number in case.notes[0].applied)
    for place in case.counters:
        if abs(case.nets[0].params[place] + expected) > 0.5:
            raise Violation(f"the sum of the gradients that were applied is {-case.nets[0].params[place]}, not {expected}")


def check_shares(case):
    """No share of a minibatch is trained on twice; each one that has samples is, unless it was lost with a dead worker."""
    turns = [number for notes in case.notes for number in notes.turns]
    if len(turns) != len(set(turns)):
        raise Violation(f"a share is trained on twice: {sorted(turns)}")
    with_samples = {
        step * case.size + share
        for step in range(case.steps) for share in range(case.size) if share < (case.batch or case.size)
    }  # fmt: skip
    if not case.world.dead and set(turns) != with_samples:
        raise Violation(f"shares {sorted(with_samples - set(turns))} are not trained on")


def check_staleness(case):
    """The staleness that the servers report is that which the parameters show."""
    for rank, protocol in enumerate(case.protocols):
        if case.machine.actors[rank].alive and protocol.shard.params.size:
            found = +protocol.shard.staleness
            empty = sum(found.values()) - sum(case.notes[rank].staleness.values())  # gradients of shares without samples
            expected = case.notes[rank].staleness.copy()
            expected[0] += empty
            if found != +expected:
                raise Violation(f"rank {rank} reports the staleness {dict(found)}, but it is {dict(+expected)}")


def check_bound(case):
    """A worker begins a turn only with parameters that have all gradients that it must have."""
    shard = case.protocols[0].shard
    bound = 0 if isinstance(shard, BulkServerShard) else shard.bound
    if bound == math.inf:
        return
    for rank, notes in enumerate(case.notes):
        for clock, seen in enumerate(notes.seen):
            for other, theirs in enumerate(case.notes):
                due = theirs.turns[: max(0, clock - bound)] if case.machine.actors[other].alive else ()
                for place in seen:
                    if missing := set(due) - place:
                        raise Violation(
                            f"rank {rank} begins its turn {clock} without the gradient {min(missing)} of rank {other}"
                        )


def check_all_handled(case):
    """No message is left when all have ended."""
    for (_, source, target, _), messages in case.world.mail.items():
        if messages:
            raise Violation(f"rank {target} ends although rank {source} has sent it a message")
