"""The one hook by which a trace, a profile, virtual time or overlapping communication observe a network.

An observer is registered with a network (`net.observe(observer)`, or `with net.observed_by(observer):`) and is then told of
every pass of every layer in training, of the loss, the optimizer and the reader in a training step and, where there is
communication, of every collective. Nothing is told of evaluations.
"""

from contextlib import contextmanager


class Observer:
    """What can be told about a run. Every method does nothing here: an observer overrides those that concern it.

    A *pass* is the work of one thing in one phase. thing: a layer, a loss, an optimizer or a reader, each with a `name`.
    phase: "forward", "gradients", "input_gradient" or "backward" (both halves of it at once) of a layer; "forward" or
    "backward" of a loss, "step" of an optimizer, "load" of a reader. context: that of the pass, None where there is none.
    """

    hears_collectives = False  # whether it is told of communication, too
    progress = None  # a function to be called at progress points within the work of a layer; None: no such points

    def begin(self, thing, phase, context):
        """A pass begins. Passes may lie within others: those of the layers in a branch within that of the whole."""

    def end(self, thing, phase, context, share=1.0):
        """The pass that began last ends. share: of the phase's work, where a layer does it in several passes."""

    def worked(self, thing, phase, context, share):
        """Within the pass that began last, this share of its work is done: told before a layer waits for communication."""

    def written(self, layer):
        """The gradients of the parameters of a layer are final: nobody writes them again in this backward pass."""

    def parameters_changed(self, where):
        """An optimizer has updated the slice `where` of the flat parameters."""

    # ----- communication, where `hears_collectives`

    def collective(self, group, layer, kind, bytes_sent, start, stop):
        """This rank was in a collective, named `layer`, between two times; of one that does not block: in its beginning."""

    def advanced(self, group, layer, kind, bytes_sent, start, stop):
        """This rank tested a collective that does not block, or waited for it."""

    def flight(self, group, layer, kind, bytes_sent, start, stop):
        """A collective that does not block was under way between two times."""


class Several(Observer):
    """Several observers as one, told in the order in which they were registered."""

    def __init__(self, observers):
        self.observers = observers

    @property
    def progress(self):
        functions = [function for function in (observer.progress for observer in self.observers) if function]
        if len(functions) < 2:
            return functions[0] if functions else None
        return lambda: [function() for function in functions]

    def begin(self, thing, phase, context):
        for observer in self.observers:
            observer.begin(thing, phase, context)

    def end(self, thing, phase, context, share=1.0):
        for observer in self.observers:
            observer.end(thing, phase, context, share)

    def worked(self, thing, phase, context, share):
        for observer in self.observers:
            observer.worked(thing, phase, context, share)

    def written(self, layer):
        for observer in self.observers:
            observer.written(layer)

    def parameters_changed(self, where):
        for observer in self.observers:
            observer.parameters_changed(where)

    def collective(self, *told):
        for observer in self.observers:
            observer.collective(*told)

    def advanced(self, *told):
        for observer in self.observers:
            observer.advanced(*told)

    def flight(self, *told):
        for observer in self.observers:
            observer.flight(*told)


class Observed:
    """What can be observed: a network, or the communication of a grid.

    observer: None while there is no observer; one, or several as one.
    """

    observer = None
    _observers = ()

    def observe(self, observer):
        """Tell `observer` from now on."""
        self._set_observers((*self._observers, observer))

    def forget(self, observer):
        """Do not tell it any longer."""
        self._set_observers(tuple(other for other in self._observers if other is not observer))

    @contextmanager
    def observed_by(self, observer):
        """Within, `observer` is told."""
        self.observe(observer)
        try:
            yield observer
        finally:
            self.forget(observer)

    def _set_observers(self, observers):
        self._observers = observers
        self.observer = Several(observers) if len(observers) > 1 else observers[0] if observers else None


def observed(observer, thing, phase, *arguments, context=None):
    """Call the method `phase` of a loss, an optimizer or a reader; the observer, if there is one, is told of it as a pass."""
    if observer is None:
        return getattr(thing, phase)(*arguments)
    observer.begin(thing, phase, context)
    result = getattr(thing, phase)(*arguments)
    observer.end(thing, phase, context)
    return result
