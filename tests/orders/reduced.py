"""Which orders of events have to be tried, so that nothing that any order can do is missed.

This is optimal dynamic partial-order reduction (Abdulla, Aronis, Jonsson, Sagonas 2014, Algorithm 2; Flanagan and Godefroid
2005): orders that differ only by exchanging neighbours that do not depend on each other are tried once. After each complete
execution its *races* are found: pairs of events that depend on each other, with nothing between them that links them. For each
race a sequence in which the second event comes without the first one is noted at the state before the first one, in a *wakeup
tree*, to be tried later. *Sleep sets* remember what was tried before.

Two events depend on each other if one has made the other possible, if they are of the same action, or if one has written what
the other has read or written. Events of one actor that depend on each other only by what its own objects read and wrote are
exchanged all the same if that changes nothing: it is known from other executions that in the other order each does and sends
the same, and the actor is in the same state behind both. Two workers that say that they are done are such a pair, while a third
one is not done.
"""

from dataclasses import dataclass, field, replace

from tests.orders.known import Known
from tests.orders.machine import DIE, GO


class Redundant(Exception):
    """Raised in an execution that shows nothing that others do not show."""


@dataclass
class Step:
    """What is known of an event. accesses: four bit masks, (reads, writes, own_reads, own_writes). actor, label: see Event.
    origin: the position of the state in which it was tried. met: whether events of its actor that came since depend on it."""

    action: tuple
    accesses: tuple = (0, 0, 0, 0)
    actor: object = None
    label: tuple = None
    origin: int = 0
    met: bool = False


@dataclass
class Branch:
    """An event in a wakeup tree, with what is to be tried behind it."""

    step: Step
    branches: list = field(default_factory=list)


@dataclass
class Node:
    """A state on the way of the current execution, and the event that was chosen in it.

    actions: that are possible. states: of the watched actors. sleep: {action: Step} of what was tried here or before. asleep:
    those of them that need not be tried here. branches: the wakeup tree; its first branch is under way. is_free: whether
    anything may be tried here, since no sequence led further. tried: how many were. forks: lists of actions of which all are
    tried if one is. step: the event. opens, closes: see Event. past: a bit mask of the events that happen before it.
    races: [(position of an earlier event, what says whether both may be exchanged, whether they depend on each other by more
    than the objects of an actor)].
    """

    actions: list
    states: dict
    sleep: dict
    branches: list
    is_free: bool
    forks: list
    asleep: set = field(default_factory=set)
    tried: int = 0
    step: Step = None
    opens: bool = False
    closes: bool = False
    past: int = 0
    races: list = field(default_factory=list)


class Reduced:
    """The control of one execution after another. states: of the watched actors in the first state that is new."""

    def __init__(self, known=None):
        self.nodes, self._bits, self._place, self._new = [], {}, 0, 0
        self.known = known or Known()

    # ----- while an execution runs

    def begin(self):
        """An execution begins."""
        self._place, self._new = 0, max(len(self.nodes) - 1, 0)

    def is_new(self, number):
        """Whether the event with this number was not executed before in this state."""
        return number >= self._new

    def is_first(self, number):
        """Whether it is the first such event."""
        return number == self._new

    @property
    def states(self):
        return self.nodes[self._new].states

    def choose(self, actions, states, forks):
        """One of the possible actions. Raises Redundant if none has to be tried. forks: lists of actions that are outcomes."""
        if self._place == len(self.nodes):
            self.nodes.append(self._node(actions, states, forks))
        node = self.nodes[self._place]
        if node.actions != actions:
            raise RuntimeError(f"not the same execution again: {actions} are possible instead of {node.actions}")
        return node.step.action

    def _node(self, actions, states, forks):
        sleep, branches = {}, []
        if self.nodes:
            last = self.nodes[-1]
            branches = last.branches[0].branches
            for action, one in last.sleep.items():
                if action != last.step.action and not depend(one, last.step):
                    sleep[action] = replace(one, met=one.met or depend_within(one, last.step))
        node = Node(actions, dict(states), sleep, branches, not branches, forks)
        node.asleep = {action for action, one in sleep.items() if self._is_asleep(one, len(self.nodes))}
        if not self._take(node):
            raise Redundant
        return node

    def _take(self, node):
        """Choose what is tried next in a state; returns whether there is anything."""
        while node.branches:
            action = node.branches[0].step.action
            if action in node.actions and action not in node.asleep:
                return self._choose(node, action)
            node.branches.pop(0)
        if node.is_free and not node.tried:
            for action in node.actions:
                if action not in node.asleep:
                    node.branches.append(Branch(Step(action)))
                    return self._choose(node, action)
        return False

    @staticmethod
    def _choose(node, action):
        """Choose the action of the first branch of a node; the other outcomes, where there are some, come later."""
        node.step = Step(action)
        for fork in node.forks:
            for other in fork if action in fork else ():
                if other not in node.asleep and all(branch.step.action != other for branch in node.branches):
                    node.branches.append(Branch(Step(other)))
        return True

    def _is_asleep(self, one, place):
        """Whether something that was tried need not be tried in the state at a position."""
        if not one.met:
            return True
        since = [node.step.label for node in self.nodes[one.origin : place] if node.step.actor == one.actor]
        return self.known.is_same(one.actor, self.nodes[one.origin].states[one.actor], one.label, since)

    def done(self, event):
        """Called after each event. Raises Redundant if it turns out to be one that need not have been tried."""
        place, self._place = self._place, self._place + 1
        if place < self._new:
            return
        node, step = self.nodes[place], self.nodes[place].step
        own = [{(event.actor, one) for one in found} for found in (event.own_reads, event.own_writes)]
        step.accesses = tuple(map(self._mask, (event.reads, event.writes, *own)))
        step.actor, step.label, step.origin = event.actor, event.label, place
        node.branches[0].step, node.opens, node.closes = step, event.opens, event.closes
        if event.actor is not None:
            self.known.note(node.states[event.actor], event)
        if step.action in node.sleep and self._is_asleep(node.sleep[step.action], place):
            node.asleep.add(step.action)
            node.branches.pop(0)
            raise Redundant
        self._find_races(place, event.causes)

    def _mask(self, locations):
        mask = 0
        for location in locations:
            mask |= 1 << self._bits.setdefault(location, len(self._bits))
        return mask

    def _find_races(self, place, causes):
        """Note the events that happen before the one at a position, and which of them are in a race with it."""
        nodes, node, past = self.nodes, self.nodes[place], 0
        for cause in causes:
            past |= nodes[cause].past | 1 << cause
        for other in range(place - 1, -1, -1):
            if nodes[other].step.action == node.step.action:
                past |= nodes[other].past | 1 << other
                break
        node.races = []
        for other in range(place - 1, -1, -1):
            if past >> other & 1:
                continue
            earlier = nodes[other].step
            if nodes[other].opens and self._is_behind(node.step.action, earlier):
                closer = self._closer(earlier.action[1], other)
                if closer is not None and not past >> closer & 1:
                    node.races.append((closer, None, True))
                past |= nodes[other].past | 1 << other
                continue
            strictly = depend(earlier, node.step)
            if not strictly and not depend_within(earlier, node.step):
                continue
            exchange = self._exchange(other, place) if earlier.actor == node.step.actor else None
            if not strictly and self.known.is_same(*exchange):
                continue
            if exchange is None or not self.known.is_impossible(*exchange):
                node.races.append((other, exchange, strictly))
            past |= nodes[other].past | 1 << other
        node.past = past

    @staticmethod
    def _is_behind(action, step):
        """Whether a step lets its actor handle messages again, and the action is one of that actor, impossible before."""
        return action[0] != GO and step.action[0] == GO and action[1] == step.action[1]

    def _closer(self, actor, end):
        """The position of the last event before another one with which an actor has ceased to handle messages, or None."""
        for place in range(end - 1, -1, -1):
            if self.nodes[place].closes and self.nodes[place].step.action[1] == actor:
                return place
        return None

    def _exchange(self, first, second):
        """What says whether two events of one actor can be exchanged: see `Known.is_same`."""
        one, two = self.nodes[first], self.nodes[second]
        between = [
            node.step.label
            for node in self.nodes[first + 1 : second]
            if node.step.actor == one.step.actor and not node.past >> first & 1
        ]
        return one.step.actor, one.states.get(one.step.actor), one.step.label, [*between, two.step.label]

    # ----- between executions

    def end(self, missed):
        """The execution is complete: note what must be tried because of its races.

        missed: [(action, causes)] of what was not possible any more, but is if it comes before its actor closes or ends.
        """
        for action, causes in missed:
            past = 0
            for cause in causes:
                past |= self.nodes[cause].past | 1 << cause
            life, door = (self._mask([(kind, action[1])]) for kind in ("life", "door"))
            if action[0] == DIE:
                step, seen = Step(action, (0, life, 0, 0)), 0
                for place in range(len(self.nodes) - 1, -1, -1):
                    if not seen >> place & 1 and depend(self.nodes[place].step, step):
                        self._reverse(place, past, step)
                        seen |= self.nodes[place].past | 1 << place
                continue
            closer = self._closer(action[1], len(self.nodes))
            if closer is not None and not past >> closer & 1:
                self._reverse(closer, past, Step(action, (life | door, 0, 0, 0)))
        for node in self.nodes:
            for first, exchange, strictly in node.races:
                known = exchange is not None and (
                    not strictly and self.known.is_same(*exchange) or self.known.is_impossible(*exchange)
                )
                if not known:
                    self._reverse(first, node.past, node.step)

    def _reverse(self, first, past, step):
        """Note that an event is to be tried without an earlier one: insert a sequence into the wakeup tree before that.

        first: the position of the earlier event. past, step: of the other.
        """
        before, sequence = self.nodes[first], []
        for place, node in enumerate(self.nodes[first + 1 :], first + 1):
            if node.step is not step and not node.past >> first & 1:
                sequence.append((1 << place, node.past, node.step))
        sequence.append((0, past, step))
        if any(may_begin(before.sleep[action], sequence) for action in before.asleep):
            return
        branches = before.branches
        while True:
            for branch in branches:
                if may_begin(branch.step, sequence):
                    sequence = without_first(branch.step.action, sequence)
                    break
            else:
                break
            branches = branch.branches
            if not branches:
                return
        for _, _, step in sequence:
            branches.append(Branch(step))
            branches = branches[-1].branches

    def go_back(self):
        """Prepare the next execution; returns whether there is one."""
        nodes = self.nodes
        while nodes:
            node = nodes[-1]
            if node.step.action not in node.asleep:
                node.tried += 1
                node.sleep[node.step.action] = node.step
                node.asleep.add(node.step.action)
                node.branches.pop(0)
            if self._take(node):
                return True
            nodes.pop()
        return False


def depend(one, other):
    """Whether two Steps depend on each other by what all actors share."""
    (reads, writes, *_), (other_reads, other_writes, *_) = one.accesses, other.accesses
    return bool(writes & (other_reads | other_writes) or reads & other_writes)


def depend_within(one, other):
    """Whether two Steps of an actor depend on each other by what its own objects have."""
    (*_, reads, writes), (*_, other_reads, other_writes) = one.accesses, other.accesses
    return bool(writes & (other_reads | other_writes) or reads & other_writes)


def may_begin(step, sequence):
    """Whether an event may come before all others of a sequence, of which it may be one. sequence: [(bit, past, Step)]."""
    seen = 0
    for bit, past, other in sequence:
        if other.action == step.action:
            return not past & seen
        seen |= bit
    return not any(depend(step, other) or depend_within(step, other) for _, _, other in sequence)


def without_first(action, sequence):
    """A sequence without the first event of an action, if there is one."""
    for place, (_, _, step) in enumerate(sequence):
        if step.action == action:
            return sequence[:place] + sequence[place + 1 :]
    return sequence
