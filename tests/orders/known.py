"""What actors do in which of their states, learned from one execution after another."""

from tests.orders.machine import GO


class Known:
    """What actors have done in which of their states, in all executions so far."""

    def __init__(self):
        self._after, self._may_go = {}, {}
        self._told, self._told_may_go, self.idle = self._after, self._may_go, 0

    def told(self):
        """The same, which from now on tells only what it knows now."""
        found = Known()
        found._after, found._may_go = self._after, self._may_go
        found._told, found._told_may_go = dict(self._after), dict(self._may_go)
        return found

    def note(self, state, event):
        """Note an event of a watched actor. state: of the actor before it. RuntimeError if it did something else before."""
        key, value = (event.actor, state, event.label), (event.state, tuple(event.effects))
        self.idle = 0 if key not in self._after else self.idle
        if self._after.setdefault(key, value) != value:
            raise RuntimeError(f"{event.action} does not depend on what is watched alone: {self._after[key]} and {value}")
        place = event.actor, event.state
        self._may_go[place] = self._may_go.get(place, False) or event.may_go

    def _walk(self, actor, state, labels):
        """(the state of an actor after some events, the effects of each); None if that is not known."""
        effects = []
        for label in labels:
            found = self._told.get((actor, state, label))
            if found is None:
                return None
            state, effect = found
            effects.append(effect)
        return state, effects

    def is_same(self, actor, state, first, then):
        """Whether it is known that all is the same if an event does not come before some others, but behind them."""
        one, other = self._walk(actor, state, [first, *then]), self._walk(actor, state, [*then, first])
        return None not in (one, other) and one[0] == other[0] and one[1] == [*other[1][-1:], *other[1][:-1]]

    def is_impossible(self, actor, state, first, then):
        """Whether it is known that the last of some events is not possible without the first one."""
        found = self._walk(actor, state, then[:-1]) if then[-1][0] == GO else None
        return found is not None and self._told_may_go.get((actor, found[0])) is False
