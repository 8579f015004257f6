"""CUDA graphs: what a GPU does in a function is recorded once, and from then on started by a single call.

Python needs longer to start the kernels of a small network than a GPU to run them. So a function of device arrays, such as both
passes of a training step, runs twice as it is, is then recorded, and is replayed afterwards: the GPU does the same operations
on the same memory, and no Python runs. Arguments are copied to where they were at the recording. `between` is for what a graph
can not hold, such as communication: the graph ends there, and another one begins behind it.

What differs from step to step must therefore lie in device memory: `upload` makes an array anew before each replay. Numbers
that a function reads from the device, by `number`, are read after it. A function that waits for the device without `between`
or `number`, or copies arrays without `upload`, is never recorded: its second run shows that.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from gridgrad.nn import device
from gridgrad.nn.device import Array, xp

MOST = 32  # the graphs that are kept, such as for minibatches of different sizes; what comes later runs as it is
now: "Graph | None" = None  # what is being recorded


class Graphs:
    """Runs functions on a device that `records_graphs`, as graphs where possible. arrays(): all arrays that the functions use
    and that may be replaced by others later; a graph keeps those that it was recorded with."""

    def __init__(self, arrays: Callable[[], list[Array]] = list) -> None:
        self._arrays = arrays
        self._known: dict[Any, Any] = {}  # {key: how often it ran, a Graph, or None where there can be none}

    def run(self, function: Callable[..., Any], key: Any, *inputs: Array) -> Any:
        """function(*inputs). key: all else that the function depends on, apart from the contents of device memory."""
        key = key, *((array.shape, array.dtype) for array in inputs)
        if key not in self._known and len(self._known) == MOST:
            return function(*inputs)
        found = self._known.get(key, 0)
        if found == 2:
            found = self._known[key] = _recorded(function, inputs, self._arrays)
        if isinstance(found, Graph):
            return found.replay(inputs)
        before = device.crossings()
        result = function(*inputs)
        if found is not None:
            crosses = found == 1 and device.crossings() != before
            self._known[key] = None if crosses else found + 1
        return result


class Graph:
    """What a function does, piece by piece, and all memory in which it does it."""

    def __init__(self, function, inputs, arrays):
        global now
        self.inputs, self.uploads, self.held, self.pieces = [array.copy() for array in inputs], [], [], []
        now = self
        try:
            with device.recording() as self.recording:
                self.result = function(*self.inputs)
                self.pieces.append(self.recording.end_piece())
        finally:
            now = None
        self.held += arrays()

    def replay(self, inputs):
        for own, array in zip(self.inputs, inputs, strict=True):
            xp.copyto(own, array)
        for make, array in self.uploads:
            device.send(make(), array)
        for piece in self.pieces:
            piece()
        return self.result.item() if isinstance(self.result, Number) else self.result


def between(function: Callable[[], Any]) -> Any:
    """Call a function that waits for the device, and return its result; where something is being recorded, it is called in each
    replay, and this returns None."""
    if now is None:
        with device.uncounted():
            return function()
    now.pieces += [now.recording.end_piece(), function]
    now.recording.begin_piece()


class Number:
    """A number on the device that is read after each replay."""

    def __init__(self, array):
        self.item = array.item


def _recorded(function, inputs, arrays):
    """A Graph; None if the device refuses something in it."""
    try:
        return Graph(function, inputs, arrays)
    except Exception:  # each library of the device has its own; a fault of the function itself shows when it runs as it is
        return None


def number(array: Array) -> Any:
    """A 0-d array as a float. While a function is recorded it gets a Number, which it can only return."""
    return array.item() if now is None else Number(array)


def upload(make: Callable[[], Any]) -> Any:
    """The host array make() on the device; of the function that is being recorded, anew before each replay."""
    if now is None:
        return device.send(make())
    host = make()
    now.uploads.append((make, device.empty(host.size, host.dtype).reshape(host.shape)))
    return now.uploads[-1][1]


def constant(maxsize: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`lru_cache` for functions that make device arrays that nobody changes: a graph holds those that it uses."""

    def decorate(function):
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*arguments):
            found = cached(*arguments)
            if now is not None:
                now.held.append(found)
            return found

        call.cache_clear = cached.cache_clear
        return call

    return decorate
