"""One order again, with what happens in it, step by step."""

from tests.orders.machine import GO, HANDLE, Machine, Violation


class Replay:
    """The control of one execution.

    case: what is executed. choices: the positions of what is chosen, where there is more than one possibility; behind them the
    first one is taken. say: called with each line about what happens.
    """

    states = {}

    def __init__(self, case, choices, say):
        self._case, self._choices, self._say, self._number, self._before = case, list(choices), say, 0, {}

    def is_new(self, number):
        return True

    def is_first(self, number):
        return False

    def choose(self, actions, states, forks):
        """What the next choice says. ValueError if there are not so many possibilities."""
        if not self._before:
            self._before = {name: self._described(actor) for name, actor in self.machine.actors.items()}
        position = self._choices.pop(0) if self._choices and len(actions) > 1 else 0
        if not 0 <= position < len(actions):
            raise ValueError(f"there is no choice {position} in step {self._number + 1}: there are 0 to {len(actions) - 1}")
        self._of = f" (choice {position} of {len(actions)})" if len(actions) > 1 else ""
        return actions[position]

    def _described(self, actor):
        return actor.watch.described() if actor.watch else {}

    def done(self, event):
        """Say what an event was, and what it has changed."""
        self._number += 1
        actor = self.machine.acting
        words = [self._named(event), *event.words, *self._case.words(event)]
        if actor is not None:
            now, before = self._described(actor), self._before.get(actor.name, {})
            for place, value in now.items():
                if before.get(place, "nothing") != value:
                    words.append(f"{'.'.join(place)}: {before.get(place, 'nothing')} -> {value}")
            self._before[actor.name] = now
            words.append(f"{actor} has ended" if actor.pause is None else f"{actor} waits for {actor.pause.words}")
        self._say(f"{self._number:4}. {words[0]}{self._of}")
        for line in words[1:]:
            self._say(f"        {line}")

    def _named(self, event):
        kind, *rest = event.action
        actor = self.machine.actors.get(rest[0]) if rest else None
        if kind == GO:
            return f"{actor} goes on"
        if kind == HANDLE:
            return f"{actor} handles a message of rank {rest[1]}"
        return f"{kind} {' '.join(map(str, rest))}"


def replay(case, choices, say):
    """Execute a case in one order. Returns what it leads to, or the Violation."""
    control = Replay(case, choices, say)
    machine = control.machine = Machine(control)
    try:
        return case.execute(machine)
    except Violation as violation:
        return violation
