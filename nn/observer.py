"""Observers: how traces, profiles and overlapped communication follow what a network does.

The methods of an observer that is registered with a network are called in training, not in evaluations: for every pass of
every layer, for the loss, the optimizer and the reader and, in a parallel network, for every collective.
"""

from functools import partial
from inspect import isfunction


class Observer:
    """The events of a run. Every method here does nothing; an observer overrides those that it needs."""

    hears_collectives = False  # whether the observer is told about communication, too
    hears_passes = False  # whether it overrides `begin`, `end` or `computed`; others are not told, which saves time
    hears_written = False  # whether it overrides `written`
    progress = None  # a function that layers call at progress points within their work; None for no progress points

    def __init_subclass__(cls):
        cls.hears_passes = any(getattr(cls, event) is not getattr(Observer, event) for event in ("begin", "end", "computed"))
        cls.hears_written = cls.written is not Observer.written

    # A pass is the work of one thing in one phase, in a Context or None: of a layer "forward", "gradients", "input_gradient" or
    # "backward" (both halves at once), of a loss "forward" or "backward", of an optimizer or an update protocol "step", of a
    # reader "load". Each thing has a `name`.

    def begin(self, thing, phase, context):
        """A pass begins. Passes can be nested: those of the layers in a branch lie within the pass of the branching layer."""

    def end(self, thing, phase, context):
        """The innermost open pass ends."""

    def computed(self, layer, phase, taken, result, context):
        """A pass of a layer has taken one array and returned another, or None. Called after `end`, not for nested passes."""

    def written(self, layer):
        """The gradients of a layer's parameters are final: this backward pass does not write them again."""

    def relocated(self, relocation):
        """A parallel network has other layers from now on (`parallel/training/relocation.py`). Collective."""

    # ----- a pipeline. instruction: of its schedule; as text, such as "2F0", it says what is computed or sent.

    def begin_instruction(self, instruction):
        """This rank begins an instruction. The passes of the layers that it runs lie within it."""

    def end_instruction(self, instruction):
        """This rank has carried out the instruction that it began last."""

    # ----- communication, if `hears_collectives`. layer: the name under which it is counted. bytes_sent: by this rank. start,
    # stop: times in seconds.

    def collective(self, group, layer, kind, bytes_sent, start, stop):
        """This rank spent the time from `start` to `stop` in a collective: in its first call, if it is non-blocking."""

    def advanced(self, group, layer, kind, bytes_sent, start, stop):
        """This rank spent the time from `start` to `stop` testing a non-blocking collective or waiting for it."""

    def flight(self, group, layer, kind, bytes_sent, start, stop):
        """A non-blocking collective was in flight from `start` to `stop`."""


EVENTS = [name for name, of in vars(Observer).items() if isfunction(of)]


class ObserverGroup(Observer):
    """Several observers that act as one: each event is told to all of them, in the order in which they were registered."""

    def __init__(self, observers):
        self.observers = observers
        self.hears_passes = any(observer.hears_passes for observer in observers)
        self.hears_written = any(observer.hears_written for observer in observers)
        for event in EVENTS:
            setattr(self, event, partial(self._tell, event))

    def _tell(self, event, *arguments):
        for observer in self.observers:
            getattr(observer, event)(*arguments)

    @property
    def progress(self):
        functions = [observer.progress for observer in self.observers if observer.progress]
        if len(functions) < 2:
            return functions[0] if functions else None
        return lambda: [function() for function in functions]


class Observable:
    """The base class of everything that can be observed: networks, and the communication of a grid."""

    observer: Observer | None = None  # the registered one, or an ObserverGroup if there are several
    _observers: tuple[Observer, ...] = ()

    def observe(self, observer: Observer) -> None:
        """Register an observer."""
        self._set_observers((*self._observers, observer))

    def forget(self, observer: Observer) -> None:
        """Remove an observer."""
        self._set_observers(tuple(other for other in self._observers if other is not observer))

    def _set_observers(self, observers):
        self._observers = observers
        self.observer = ObserverGroup(observers) if len(observers) > 1 else observers[0] if observers else None


def observed(observer, thing, phase, *arguments, context=None):
    """Call the method `phase` of a loss, an optimizer or a reader, as a pass that an observer, if any, is told about."""
    if observer is None or not observer.hears_passes:
        return getattr(thing, phase)(*arguments)
    observer.begin(thing, phase, context)
    result = getattr(thing, phase)(*arguments)
    observer.end(thing, phase, context)
    return result
