"""The part of MPI that protocols, pipelines and checkpoints call, among the actors of a Machine, which are its ranks.

What MPI leaves open is chosen by the control of the machine: in which order the messages of several ranks are found, at which
look they are found, when a message that was announced is written to its buffer, when a sum that nobody waits for yet is there,
and when a rank dies. Messages from one rank to another with one tag stay in order.
"""

import pickle
from collections import Counter, defaultdict, deque
from functools import partial
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from tests.orders.machine import DIE, GO, HANDLE, Pause, Violation
from tests.orders.transfers import DONE, Meeting, Message, Receive, Sending, Summing, Until

LEARN, NOTICE, MOVE, COMPLETE = "learn", "notice", "move", "complete"


class Failed(MPI.Exception):
    """What an MPI library with ULFM raises where it is called and another rank has died."""

    def __init__(self):
        super().__init__(MPI.ERR_OTHER)


class World:
    """What the communicators of all ranks have in common.

    size: ranks. is_eager: whether a message leaves when it is sent; else it leaves when it arrives. mortal: the rank that may
    die, or None; dead: whether it has; died: the number of the event; aware: the ranks that know of it.
    """

    def __init__(self, size, is_eager=True, mortal=None):
        self.size, self.is_eager, self.mortal = size, is_eager, mortal

    def begin(self, machine):
        """Another execution begins. machine: its actors are called by their ranks, 0 to size - 1."""
        self.machine, self.dead, self.died, self.aware = machine, False, None, set()
        self.mail = defaultdict(deque)  # {(communicator, source, target, tag): messages that nobody has taken}
        self.announced = defaultdict(deque)  # likewise: receives that have no message yet
        self.meetings, self._counts, self.met = {}, Counter(), Counter()
        self._memory = {}  # {address: [a location, the rank that has sent from there, the array, its content]}
        machine.deaths, machine.missed, machine.after = self._deaths, self._missed, self._note_changes

    def comm(self, rank):
        """The communicator of all ranks, as one of them sees it."""
        return Comm(self, ("world",), range(self.size), rank)

    def place(self, kind, key):
        """A location that nothing else has. key: of the messages of one rank to another with one tag."""
        self._counts[kind, key] += 1
        return kind, *key, self._counts[kind, key]

    def memory(self, array, rank, place):
        """The location of the memory of an array that a rank sends. place: of the message."""
        known = self._memory.setdefault(array.__array_interface__["data"][0], [("memory", *place), rank, None, None])
        known[2:] = array, array.tobytes()
        return known[0]

    def _note_changes(self, event, actor):
        """Note in which memory, from which messages were sent, an event has written something."""
        for known in self._memory.values():
            location, rank, array, before = known
            if rank == actor.name and (now := array.tobytes()) != before:
                event.writes.add(location)
                known[3] = now

    def _is_mortal(self):
        """Whether a rank may die now: not before the start, and not when it has ended."""
        return self.mortal is not None and not self.dead and self.machine.actors[self.mortal].pause is not None

    def _deaths(self):
        return {(DIE, self.mortal): self._die} if self._is_mortal() else {}

    def _die(self):
        machine = self.machine
        self.dead, self.died = True, machine.number
        machine.actors[self.mortal].alive = False
        machine.event.writes.add(("life", self.mortal))
        machine.event.words.append(f"rank {self.mortal} dies")

    def _missed(self):
        """What was not possible any more when ranks had ended: see Machine."""
        found = []
        for (_, source, target, _), messages in self.mail.items():
            if messages and self.machine.actors[target].alive:
                found.append(((HANDLE, target, source), (messages[0].event,)))
        if self.dead:
            unaware = set(range(self.size)) - {self.mortal} - self.aware
            found += [((LEARN, rank), (self.died,)) for rank in sorted(unaware)]
        elif self.mortal is not None:
            found.append(((DIE, self.mortal), ()))
        return found


class Probe(Pause):
    """A look for messages."""

    is_open = True

    def __init__(self, comm):
        self.comm, self.words = comm, comm.waits_for

    def actions(self, actor):
        comm = self.comm
        found = [(GO, actor)] if comm.may_go() else []
        found += [(HANDLE, actor, source) for source in comm.sources()]
        return found + [(LEARN, actor)] if comm.may_learn() else found

    def causes(self, action):
        comm = self.comm
        if action[0] == GO:
            left = [one.left_at for one in comm.sent if one.left] if comm.asks_whether_left else ()
            return {*comm.could_go, *left}
        return (comm.world.died,) if action[0] == LEARN else (comm.mail(action[2])[0].event,)


class MayFail(Pause):
    """In a call in which it may turn out that a rank has died. action: with which it does. words: say where that is."""

    is_fork = True

    def __init__(self, action, words, within):
        self.action, self.words, self.within = action, words, within

    def actions(self, actor):
        return [(GO, actor), (self.action, actor)]


class Ranks:
    """Stands for an MPI group."""

    def __init__(self, members):
        self.members = list(members)

    def Translate_ranks(self, ranks, other):
        return [self.members[rank] for rank in ranks]

    def Free(self):
        pass


class Comm:
    """A communicator as one rank sees it. name: the same for all. members: the ranks of the world that belong to it.

    waits_for: for what the rank waits beside messages, in words. sent: its messages, unless they leave at once. is_tidying:
    whether it asks only in order to forget them if they have left; asks_whether_left: whether it waits for that.
    """

    def __init__(self, world, name, members, rank, sizes=None):
        self.world, self.name, self.members, self.rank = world, name, list(members), rank
        self.size, self.own, self.sizes = len(self.members), self.members[rank], sizes
        self.group = Ranks(self.members)
        self._found, self._noticed, self.sent, self.is_tidying = None, False, [], False
        self.wait_for(None)

    # ----- waiting

    @property
    def machine(self):
        return self.world.machine

    @property
    def actor(self):
        return self.machine.actors[self.own]

    def wait(self, pause):
        return self.actor.wait(pause)

    def wait_for(self, condition, words="its next step"):
        """From now on the rank looks for messages until condition() is true; None: as long as it likes."""
        self.condition, self.waits_for, self.could_go = condition, words, ()
        self._could_go, self.asks_whether_left = True, False

    def may_go(self):
        return self.condition is None or self.condition()

    # ----- messages from point to point

    def mail(self, source):
        return self.world.mail[self.name, self.members[source], self.own, self._tag]

    def sources(self):
        """The ranks of which there are messages that nobody has taken."""
        return [source for source in range(self.size) if self.mail(source)]

    def Isend(self, array, to, tag):
        world, machine, target = self.world, self.machine, self.members[to]
        key, words, within = (self.name, self.own, target, tag), f"leave to send to rank {target}", array.tobytes()
        if world.mortal == self.own or not world.is_eager:  # here it may die, and other messages may leave
            self.wait(Until(lambda: True, words, within=within))
        if world.mortal == target and self.own not in self.world.aware:
            machine.event.observe(("life", target), world.dead)
            if world.dead:
                if self.wait(MayFail(NOTICE, words, within))[0] == NOTICE:
                    self._noticed = True
                    raise Failed
                return DONE
        message = Message(world, array, key)
        machine.event.writes.add(("mail", *key))
        machine.event.effects.append((key, message.content.tobytes()))
        if world.announced[key]:
            self._pair(key, message, world.announced[key].popleft())
        else:
            world.mail[key].append(message)
        if message.left:
            return DONE
        self.sent.append(message)
        return Sending(self, message)

    def check_left(self):
        """Violation if a message of this rank has not left."""
        if any(not message.left for message in self.sent):
            raise Violation(f"rank {self.own} goes on before all its messages have left")

    def Irecv(self, buffer, source, tag):
        key = self.name, self.members[source], self.own, tag
        receive = Receive(self, buffer, key)
        if self.world.mail[key]:
            self._pair(key, self.world.mail[key].popleft(), receive)
        else:
            self.world.announced[key].append(receive)
        return receive

    def _pair(self, key, message, receive):
        """There is a message, and memory for it: from now on it may arrive."""
        self.machine.beside[MOVE, *key, receive.place[-1]] = partial(receive.move, message)

    def Improbe(self, source, tag, status):
        """A look for a message of any rank: one that it finds, or None. It finds at most one until it has found none."""
        self._tag = tag
        if self._noticed:  # first the rank does what it does when another one has died
            self._noticed = False
            return None
        if self._found:
            found, self._found = self._found, None
            if found[2] == self.world.mortal:  # if it turns out now, the message does not count any more
                self.machine.event.observe(("life", found[2]), self.world.dead)
                if self.world.dead and self.wait(MayFail(LEARN, "a second look for messages", found))[0] == LEARN:
                    self._learn()
            return None
        event, self.machine.event = self.machine.event, None
        may_go, self.machine.event = self.may_go(), event
        if may_go and not self._could_go:
            self.could_go = (self.machine.number,)
        self._could_go = may_go
        action = self.wait(Probe(self))
        if action[0] == GO:
            return None
        if action[0] == LEARN:
            self._learn()
        message = self.mail(action[2]).popleft()
        message.leave(self.machine)
        self.machine.event.label = self._found = (*action, message.content.tobytes())
        self.machine.event.reads.add(("found", action[2], self.own))
        status.Set_source(action[2])
        status.Set_elements(MPI.BYTE, message.content.size)
        return message

    # ----- deaths

    def _learn(self):
        """It turns out that a rank has died, of which no message will be found any more."""
        self.machine.event.writes.add(("found", self.world.mortal, self.own))
        self.machine.event.words.append(f"rank {self.own} learns that rank {self.world.mortal} has died")
        raise Failed

    def may_learn(self):
        """Whether a rank has died of which this one does not know."""
        return self.world.dead and self.own not in self.world.aware

    def failed(self):
        """The ranks that this one knows to have died from now on."""
        self.world.aware.add(self.own)
        for (name, source, target, _), messages in self.world.mail.items():
            if (name, source, target) == (self.name, self.world.mortal, self.own):
                messages.clear()
        return {self.world.mortal}

    # ----- collectives

    def _come(self, kind, value):
        """Come to the next collective; returns its Meeting. Violation if another rank has come to another one."""
        number = self.world.met[self.name, self.rank]
        self.world.met[self.name, self.rank] += 1
        words = f"{kind} {number}" + (f" of {len(self.members)} ranks" if self.size < self.world.size else "")
        meeting = self.world.meetings.setdefault((self.name, number), Meeting(words, self.own))
        if meeting.words != words:
            raise Violation(f"rank {self.own} comes to {words}, but rank {meeting.first} to {meeting.words}")
        meeting.values[self.rank], meeting.events[self.rank] = value, self.machine.number
        if self.machine.event is not None:
            self.machine.event.effects.append((words, content_of([value])))
        return meeting

    def _meet(self, kind, value, ranks=None):
        """Come to a collective and wait for some ranks, by default all; returns its Meeting."""
        return self._wait_for(self._come(kind, value), range(self.size) if ranks is None else ranks)

    def _wait_for(self, meeting, ranks):
        """Wait until some ranks have come to a Meeting, and return it."""

        def has_failed():
            """It fails if a rank dies before all have come to it, as with Open MPI."""
            return any(map(self._is_lost, ranks)) and any(rank not in meeting.values for rank in ranks)

        def is_possible():
            return has_failed() or all(rank in meeting.values for rank in ranks)

        def causes():
            return [self.world.died] if has_failed() else [meeting.events[rank] for rank in ranks]

        if any(rank != self.rank for rank in ranks):
            self.wait(Until(is_possible, f"others in {meeting.words}", causes if self.machine.exploring else tuple))
        if any(rank not in meeting.values for rank in ranks):
            raise Failed
        if self.machine.event is not None:  # what the rank does next depends on what others have brought
            self.machine.event.label = *self.machine.event.label, content_of([meeting.values[rank] for rank in ranks])
        return meeting

    def _is_lost(self, rank):
        return self.world.dead and self.members[rank] == self.world.mortal

    def allgather(self, value):
        meeting = self._meet("all-gather", value)
        return [meeting.values[rank] for rank in range(self.size)]

    def allreduce(self, value, op):
        assert op == MPI.LOR, "another operation is not used so far"
        return any(self.allgather(value))

    def gather(self, value, root=0):
        meeting = self._meet("gather", value, range(self.size) if self.rank == root else ())
        return [meeting.values[rank] for rank in range(self.size)] if self.rank == root else None

    def bcast(self, value=None, root=0):
        return self._meet("broadcast", value if self.rank == root else None, [root]).values[root]

    def Barrier(self):
        self._meet("barrier", None)

    def Ibarrier(self):
        """Its `Test` waits, because ranks ask again and again until it is true, and do nothing else meanwhile."""
        meeting = self._come("barrier", None)
        return SimpleNamespace(Test=lambda: bool(self._wait_for(meeting, range(self.size))))

    def Bcast(self, array, root=0):
        found = self._meet("broadcast", array.copy() if self.rank == root else None, [root]).values[root]
        array[...] = found

    def Allreduce(self, where, array, op):
        array[...] = self._meet("all-reduce", array.copy()).reduction(op)

    def Iallreduce(self, given, array, op):
        meeting = self._come("all-reduce", (array if given is MPI.IN_PLACE else given).copy())
        request = Summing(self, meeting, array, op)
        meeting.requests.append(request)
        if len(meeting.requests) == self.size:  # from now on it may be complete
            for one in meeting.requests:
                self.machine.beside[COMPLETE, one.comm.own, meeting.words] = one.complete
        return request

    # ----- communicators

    def Dup(self):
        return self.Split(0)

    def Split(self, color=0, key=0):
        everyone = self.allgather(color)
        if color == MPI.UNDEFINED:
            return MPI.COMM_NULL
        members = [self.members[rank] for rank, other in enumerate(everyone) if other == color]
        return Comm(self.world, (*self.name, self.world.met[self.name, self.rank], color), members, members.index(self.own))

    def Split_type(self, kind):
        return self.Split(0)

    def Create_cart(self, sizes, reorder):
        comm = self.Split(0)
        comm.sizes = list(sizes)
        return comm

    def Get_coords(self, rank):
        return [int(place) for place in np.unravel_index(rank, self.sizes)]

    def Sub(self, remain):
        fixed = [place for place, remains in zip(self.Get_coords(self.rank), remain, strict=True) if not remains]
        return self.Split(tuple(fixed))

    def Free(self):
        pass


def content_of(values):
    """Bytes that are the same for the same values."""
    return b"".join(value.tobytes() if isinstance(value, np.ndarray) else pickle.dumps(value) for value in values)
