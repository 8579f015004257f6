"""Actors that run in one process, one at a time, in an order that is chosen from outside.

An actor, such as a rank of a job, is a greenlet, which runs only when it is its turn. It runs up to a *pause*, such as a look
for messages or a wait in a collective. What happens from one pause to the next is one *event*. Which events may come next is
asked of all pauses, and a control chooses one of them. So an execution is a list of choices, and the same choices give the same
execution again.

An event is named by its *action*, a tuple: ("go", actor) lets an actor go on, ("handle", actor, source) lets it handle the next
message of another one. Others happen beside the actors, such as ("die", actor).
"""

from greenlet import getcurrent, greenlet

GO, HANDLE, DIE = "go", "handle", "die"


class Stopped(BaseException):
    """Raised where an actor pauses when the execution is over. It is no Exception, so that nobody handles it by mistake."""


class Violation(Exception):
    """What must not happen in any order has happened. The message says what, in one line."""


class Pause:
    """Where an actor waits until it may go on.

    is_open: whether it handles messages meanwhile. is_fork: whether each of its actions is a possible outcome of one call.
    words: what it waits for. within: what tells it from other pauses of an actor that is otherwise in the same state.
    """

    is_open, is_fork, words, within = False, False, "its turn", None

    def actions(self, actor):
        """The actions that may end the pause now: a list. actor: its name."""
        return [(GO, actor)]

    def causes(self, action):
        """The numbers of the events without which the action would not be possible."""
        return ()


class Start(Pause):
    """Until all actors have come here: then what is explored begins."""

    words = "the others to start"

    def __init__(self, machine):
        self.machine = machine

    def actions(self, actor):
        return [(GO, actor)] if self.machine.exploring else []


class Event:
    """What happens from one pause of an actor to the next, or beside the actors.

    causes: the numbers of earlier events that have made it possible. reads, writes: what others may write or read too; sets of
    locations, which are tuples. own_reads, own_writes: likewise, of the objects of its actor alone. opens, closes: whether from
    now on its actor handles messages, or no longer.
    actor: its name, if its objects are watched, see `watch.py`. label: the action, with the content of the message and what
    else it has observed of others. state: a number for the state of the actor afterwards. effects: what it has sent. may_go:
    whether the actor can go on afterwards.
    words: what happened, for people.
    """

    def __init__(self, action):
        self.action, self.causes, self.words = action, set(), []
        self.reads, self.writes, self.own_reads, self.own_writes = set(), set(), set(), set()
        self.opens = self.closes = False
        self.actor, self.label, self.state, self.effects, self.may_go = None, action, None, [], False

    def observe(self, location, value):
        """What it does depends on the value that is at a location now."""
        self.reads.add(location)
        self.label = *self.label, value


class Actor:
    """name: in actions. pause: where it has paused; None when it has ended. action: with which it goes on. alive: it has not
    died. gone: how often it went on by ("go", name). watch: a Watch of its objects, or None. turn: its greenlet."""

    def __init__(self, machine, name, function):
        self.machine, self.name, self._function = machine, name, function
        self.pause, self.action, self.alive, self.gone, self.watch = None, None, True, 0, None
        self.turn = greenlet(self._play, machine.turn)

    def _play(self):
        try:
            if not self.machine.stopping:
                self._function()
        except Stopped:
            pass
        except BaseException as error:
            self.machine.fail(error, self)
        self.pause = None

    def wait(self, pause):
        """Pause, and return the action with which the actor goes on."""
        if self.machine.stopping:
            raise Stopped
        self.pause = pause
        self.machine.turn.switch()
        if self.machine.stopping:
            raise Stopped
        return self.action

    def actions(self):
        """What it can do now."""
        return self.pause.actions(self.name) if self.pause is not None and self.alive else ()

    def state(self):
        """A number that is another one in each state of this actor that differs in what is watched."""
        place = self.pause and (type(self.pause).__name__, self.pause.words, self.pause.within)
        return hash((self.gone, place, self.watch.identity()))

    def __str__(self):
        return f"rank {self.name}" if isinstance(self.name, int) else str(self.name)


class Machine:
    """An execution. control: chooses, see `explore.py`.

    actors: {name: Actor}. event, number: of the event under way. acting: the actor whose event it is, or None. exploring:
    whether all actors have come to the start. beside: {action: function} of what may happen beside the actors. deaths: a
    function that returns the same of deaths, which never are a way out of a deadlock. missed: a function that returns
    [(action, causes)] of what was never possible because its actor no longer handled messages, or had ended. ended: a line
    about why the job ends although not all actors have ended; None if it does not. states: {name of a watched actor: its
    state}. choices: the positions of what was chosen among what was possible, where there was more than one possibility.
    after: called with each Event and Actor when it is over. turn: the greenlet in which it was made and runs. Actors
    switch back to it when they pause or end.
    """

    def __init__(self, control):
        self.control, self.stopping, self.exploring, self.ended, self._failure = control, False, False, None, None
        self.actors, self.beside, self.deaths, self.number, self.event = {}, {}, dict, -1, None
        self.states, self.choices, self.missed, self._last, self.acting = {}, [], list, None, None
        self.after = lambda event, actor: None
        self.turn = getcurrent()

    def add(self, name, function, pause=None):
        """A new actor, which begins when it is its turn. pause: where it is before that."""
        self.actors[name] = Actor(self, name, function)
        self.actors[name].pause = pause or Pause()

    def start(self, name):
        """Called by an actor: wait for all others. Until then they go on one after another, and nothing is explored."""
        self.actors[name].wait(Start(self))

    def run(self):
        """Let everything happen. Raises what an actor raises, and Violation for a deadlock."""
        try:
            while self._failure is None and (following := self._next()):
                following.turn.switch()
            if self.event is not None:
                self._end_event()
        except BaseException as error:
            self._failure = self._failure or error
        self.stopping = True
        for actor in list(self.actors.values()):
            if actor.pause is not None:
                actor.turn.switch()
        if self._failure is not None:
            raise self._failure

    def fail(self, error, actor):
        """End the execution with what an actor has raised."""
        if self._failure is None:
            if isinstance(error, Exception) and not isinstance(error, Violation):
                violation = Violation(f"{actor} fails: {type(error).__name__}: {error}")
                violation.__cause__, error = error, violation
            self._failure = error

    def _next(self):
        """The actor that goes on next; None at the end. What happens beside the actors is done here."""
        while True:
            if self.event is not None:
                self._end_event()
            if not self.exploring and (following := self._next_before_start()):
                return following
            deaths = self.deaths()
            actions = [action for actor in self._in_turn() for action in actor.actions()] + list(self.beside)
            if not actions:
                self._check_ended()
            actions += deaths
            if not actions:
                return None
            forks = [actor.actions() for actor in self.actors.values() if actor.alive and actor.pause and actor.pause.is_fork]
            action = self.control.choose(actions, self.states, forks)
            if len(actions) > 1:
                self.choices.append(actions.index(action))
            done = self.beside.pop(action, None) or deaths.get(action)
            actor = self.acting = None if done else self.actors[action[1]]
            self._begin_event(action, actor)
            if not done:
                actor.action = action
                return actor
            done()

    def _next_before_start(self):
        """The actor that goes on before all have come to the start; None if all have."""
        for actor in self.actors.values():
            if found := actor.actions():
                (actor.action,) = found
                return actor
        if late := [actor for actor in self.actors.values() if not isinstance(actor.pause, Start)]:
            raise Violation(f"{late[0]} does not come to the start, but waits for {late[0].pause and late[0].pause.words}")
        self.exploring = True
        for actor in self.actors.values():
            if actor.watch:
                actor.watch.begin_anew()
                self.states[actor.name] = actor.state()
        return None

    def _begin_event(self, action, actor):
        self.number += 1
        event = self.event = Event(action)
        if self.control.is_first(self.number):  # what came before is known from earlier executions
            self.states = dict(self.control.states)
            for other in self.actors.values():
                if other.watch:
                    other.watch.begin_anew()
        if actor is None:
            return
        self._was_open, self._last = actor.pause.is_open, actor
        actor.gone += action[0] == GO
        event.causes.update(actor.pause.causes(action))
        if action[0] == GO or actor.pause.is_fork:
            event.writes.add(("turn", actor.name))
        if actor.watch and self.control.is_new(self.number):
            event.actor = actor.name
            actor.watch.begin()
            actor.pause.actions(actor.name)  # the event depends on what this reads, too

    def _end_event(self):
        event, actor = self.event, self.acting
        if actor is not None:
            pause = actor.pause
            self.after(event, actor)
            if event.effects or event.writes - {
                ("turn", actor.name)
            }:  # else nobody sees whether it came before the actor's death
                event.reads.add(("life", actor.name))
            is_open = pause is not None and pause.is_open
            event.opens, event.closes = is_open > self._was_open, is_open < self._was_open
            (event.writes if event.opens or event.closes else event.reads).add(("door", actor.name))
            if event.actor is not None:
                event.own_reads, event.own_writes = actor.watch.end(event.action[0] == HANDLE)
                event.state = self.states[actor.name] = actor.state()
        self.event = None
        event.may_go = actor is not None and any(action[0] == GO for action in actor.actions())
        self.control.done(event)

    def _in_turn(self):
        """The actors, the one that acted last first."""
        if self._last is None:
            return self.actors.values()
        return [self._last, *(actor for actor in self.actors.values() if actor is not self._last)]

    def _check_ended(self):
        """Raise Violation, as nobody can go on, if not all have ended."""
        waiting = [actor for actor in self.actors.values() if actor.pause is not None and actor.alive]
        if waiting and self.ended is None:
            raise Violation("deadlock: " + "; ".join(f"{actor} waits for {actor.pause.words}" for actor in waiting))
