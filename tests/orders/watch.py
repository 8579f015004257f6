"""What an event reads and writes of the objects of its actor, so that it is known which events do not depend on each other.

The objects of an actor, such as its protocol, are during an event of a class of the same name that notes which attributes are
read. What was written is found by comparing all attributes before and after, so it counts however it was written. An attribute
that holds a container is read and written as a whole.
"""

from dataclasses import fields, is_dataclass

import numpy as np

PLAIN = {int, float, bool, str, bytes, type(None), np.float64, np.int64}
TOUCHED = "_touched"  # the attribute that leads from an object to its Watch
_classes = {}  # {class: the class of the same name that notes what is read}


def content(value):
    """What can be compared and hashed of a value that is data; None for anything else, such as a function or a network."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind not in READERS:
        READERS[kind] = reader_of(kind)
    return READERS[kind](value)


def reader_of(kind):
    """The function that returns the content of a value of a class that is not in READERS."""
    if issubclass(kind, dict):
        return READERS[dict]
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
        return lambda value: tuple(content(getattr(value, name)) for name in names)
    return lambda value: None


READERS = {
    np.ndarray: lambda value: (value.shape, value.tobytes()),
    list: lambda value: tuple(map(content, value)),
    tuple: lambda value: tuple(map(content, value)),
    set: frozenset,
    frozenset: frozenset,
    dict: lambda value: tuple((key, content(one)) for key, one in value.items()),
}


def shown(value):
    """A value that is data, in words."""
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


class Watch:
    """The watched objects of one actor, and other values of it that belong to its state."""

    def __init__(self):
        self._objects, self._values, self._touched, self._known = {}, {}, set(), {}

    def add(self, name, one):
        """Watch the attributes of an object. name: of the object."""
        kind = type(one)
        if kind not in _classes:
            _classes[kind] = type(kind.__name__, (kind,), {"__getattribute__": _get, "__module__": kind.__module__})
        self._objects[name] = one, kind, _classes[kind]
        vars(one)[TOUCHED] = self._touched, name

    def add_value(self, name, function):
        """Watch what a function returns, of which it is only known that no message is handled with it. name: of the value."""
        self._values[name] = function

    def begin_anew(self):
        """Nothing is known of the values so far."""
        self._known = self._contents()

    def begin(self):
        """An event begins."""
        self._touched.clear()
        for one, _, watched in self._objects.values():
            one.__class__ = watched

    def end(self, handled):
        """(what was read, what was written) since `begin`, as sets of (object, attribute).

        handled: whether the event was to handle a message.
        """
        for one, kind, _ in self._objects.values():
            one.__class__ = kind
        touched, known, now = set(self._touched), self._known, self._contents()
        written = {place for place, value in now.items() if place not in known or known[place] != value}
        self._known = now
        if not handled:
            touched.update(self._values)
        return touched, written

    def identity(self):
        """What identifies all values, as they were when an event ended last."""
        return frozenset(self._known.items())

    def _contents(self):
        found = {}
        for name, (one, *_) in self._objects.items():
            for attribute, value in vars(one).items():
                if attribute != TOUCHED:
                    found[name, attribute] = content(value)
        for name, function in self._values.items():
            found[name] = content(function())
        return found

    def described(self):
        """{(object, attribute): its value in words} of all that is data."""
        found = {}
        for name, (one, *_) in self._objects.items():
            for attribute, value in vars(one).items():
                if attribute != TOUCHED and content(value) is not None:
                    found[name, attribute] = shown(value)
        return found | {(name,): shown(function()) for name, function in self._values.items()}


def _get(self, attribute):
    """The `__getattribute__` of a watched object."""
    own = object.__getattribute__(self, "__dict__")
    if attribute in own:
        touched, name = own[TOUCHED]
        touched.add((name, attribute))
        return own[attribute]
    return object.__getattribute__(self, attribute)
