"""Executions of a case in all orders, or in those that suffice."""

from dataclasses import dataclass, field

from tests.orders.machine import Machine, Violation
from tests.orders.reduced import Reduced, Redundant

PATIENCE = 300  # executions without anything new


class BruteForce:
    """The control of one execution after another, which tries everything that is possible in every state."""

    states = {}

    def __init__(self):
        self._nodes, self._place = [], 0  # [actions, the position of the one that is tried]

    def begin(self):
        self._place = 0

    def is_new(self, number):
        return False

    is_first = is_new

    def choose(self, actions, states, forks):
        if self._place == len(self._nodes):
            self._nodes.append([actions, 0])
        known, position = self._nodes[self._place]
        if known != actions:
            raise RuntimeError(f"not the same execution again: {actions} are possible instead of {known}")
        self._place += 1
        return actions[position]

    def done(self, event):
        pass

    def end(self, missed):
        pass

    def go_back(self):
        while self._nodes:
            self._nodes[-1][1] += 1
            if self._nodes[-1][1] < len(self._nodes[-1][0]):
                return True
            self._nodes.pop()
        return False


@dataclass
class Explored:
    """orders: how many executions were complete. redundant: how many were ended early. ends: whether all that have to be tried
    were. results, violations: {what an execution has led to: choices with which it does}."""

    orders: int = 0
    redundant: int = 0
    ends: bool = False
    results: dict = field(default_factory=dict)
    violations: dict = field(default_factory=dict)


def explore(case, control=None, most=None):
    """Execute a case in all orders that suffice, or as another control says; returns an Explored.

    case: has `execute(machine)`, which returns something hashable and raises Violation. most: end after so many executions.
    """
    if control is None:
        learning = Reduced()
        learn(case, learning)
        control = Reduced(learning.known.told())
    found = Explored()
    while True:
        control.begin()
        machine = Machine(control)
        try:
            found.results.setdefault(case.execute(machine), machine.choices)
        except Redundant:
            found.redundant += 1
        except Violation as violation:
            found.orders += 1
            found.violations.setdefault(str(violation), machine.choices)
            control.end(machine.missed())
        else:
            found.orders += 1
            control.end(machine.missed())
        if not control.go_back():
            found.ends = True
            return found
        if most is not None and found.orders + found.redundant >= most:
            return found


def learn(case, control):
    """Execute a case until that teaches nothing new of what its actors do in which state."""
    while control.known.idle < PATIENCE:
        control.begin()
        control.known.idle += 1
        machine = Machine(control)
        try:
            case.execute(machine)
        except Redundant:
            pass
        except Violation:
            control.end(machine.missed())
        else:
            control.end(machine.missed())
        if not control.go_back():
            return
