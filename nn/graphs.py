"""CUDA graphs: what a GPU does in a function is recorded once, and from then on started by a single call.

Python needs longer to start the kernels of a small network than a GPU to run them. So a function of device arrays, such as the
forward pass of a training step, runs twice as it is, is then recorded, and is replayed afterwards: the GPU does the same
operations on the same memory, and no Python runs. Arguments are copied to where they were at the recording. `between` is for
what a graph can not hold, such as communication: the graph ends there, and another one begins behind it.

What differs from step to step must therefore lie in device memory: `upload` makes an array anew before each replay. Numbers
that a function reads from the device, by `number`, are read after it. A function that waits for the device without `between`
or `number`, or copies arrays without `upload`, is never recorded.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial, wraps
from typing import Any

from gridgrad.nn import device
from gridgrad.nn.device import Array, to_device, xp

MOST = 32  # the graphs that are kept, such as for minibatches of different sizes; what comes later runs as it is
PLAIN_RUNS = 2  # before a function is recorded: the first run allocates its arrays, the last one shows whether it waits


class Graphs:
    """Runs functions as graphs, where the device records them and they can be graphs.
    arrays(): all arrays that the functions use and that may be replaced by others later; a graph keeps those that it was
    recorded with. attributes(): the dicts of what the functions leave on the host for those that follow them."""

    def __init__(self, arrays: Callable[[], list[Array]] = list, attributes: Callable[[], Iterable[dict]] = list) -> None:
        self.arrays, self.attributes = arrays, attributes
        self.recorder: Any = None  # that of all its graphs
        self._known: dict[Any, Any] = {}  # {key: how often it ran, a Graph, or None where there can be none}
        # The newest function that was run without `follows`: its key, and its Graph if it has one.
        self._key: Any = None
        self._graph: Graph | None = None

    def run(self, function: Callable[..., Any], key: Any, *inputs: Array, follows: bool = False) -> Any:
        """function(*inputs). key: all else that the function depends on, apart from the contents of device memory.
        follows: it uses what the newest function without `follows` has left on the host, as a backward pass does of the forward
        pass. So it is replayed only behind the graph of that function with which it was recorded."""
        if not device.records_graphs():
            return function(*inputs)
        key = key, *((array.shape, array.dtype) for array in inputs)
        if follows:
            if self._graph and key not in self._graph.following:
                self._graph.following[key] = self._recorded(function, inputs)
            graph = self._graph and self._graph.following[key]
        else:
            self._key, found = key, self._known.get(key, 0)
            if found == PLAIN_RUNS:
                found = self._known[key] = self._recorded(function, inputs)
            elif found in range(PLAIN_RUNS) and (found or len(self._known) < MOST):
                self._known[key] = found + 1
            graph = self._graph = found if isinstance(found, Graph) else None
        if graph:
            return graph.replay(inputs)
        before = device.crossings()
        result = function(*inputs)
        if device.crossings() != before and self._known.get(self._key) == PLAIN_RUNS:
            self._known[self._key] = None
        return result

    def forget_newest(self) -> None:
        """Called where a function ran as it is, without `run`: what follows it must not be replayed behind an older graph."""
        self._key = self._graph = None

    def _recorded(self, function, inputs):
        """A Graph; None if the device refuses something in it. Then the function has left nothing on the host."""
        self.recorder = self.recorder or device.recorder()
        before = [(found, dict(found)) for found in self.attributes()]
        try:
            return Graph(self, function, inputs)
        except Exception:  # each library of the device has its own; a fault of the function itself shows when it runs as it is
            for found, attributes in before:
                found.clear()
                found.update(attributes)
            return None


class Graph:
    """What a function does, piece by piece, and all memory in which it does it."""

    def __init__(self, graphs, function, inputs):
        self.inputs, self.uploads, self.held, self.pieces = [array.copy() for array in inputs], [], [], []
        self.following: dict[Any, Graph | None] = {}  # {key: of a function that follows}
        device.recording, self.recorder = self, graphs.recorder
        try:
            with self.recorder:
                self.result = function(*self.inputs)
                self.pieces.append(self.recorder.end_piece())
        finally:
            device.recording = None
        self.held += graphs.arrays()
        self.attributes = [(found, dict(found)) for found in graphs.attributes()]

    def replay(self, inputs):
        for own, array in zip(self.inputs, inputs, strict=True):
            xp.copyto(own, array)
        for make, array in self.uploads:
            device.uncounted(partial(to_device, make(), array))
        for piece in self.pieces:
            piece()
        for found, recorded in self.attributes:
            found.update(recorded)
        return self.result.item() if isinstance(self.result, Number) else self.result


def between(function: Callable[[], Any]) -> Any:
    """Call a function that waits for the device, and return its result; where something is being recorded, it is called in each
    replay, and this returns None."""
    graph = device.recording
    if graph is None:
        return device.uncounted(function)
    graph.pieces += [graph.recorder.end_piece(), function]
    graph.recorder.begin_piece()


class Number:
    """A number on the device that is read after each replay."""

    def __init__(self, array):
        self.item = array.item


def number(array: Array) -> Any:
    """A 0-d array as a float. While a function is recorded it gets a Number, which it can only return."""
    return array.item() if device.recording is None else Number(array)


def upload(make: Callable[[], Any]) -> Any:
    """The host array make() on the device; of the function that is being recorded, anew before each replay."""
    host = make()
    if device.recording is None:
        return device.uncounted(partial(to_device, host))
    array = device.empty(host.size, host.dtype).reshape(host.shape)
    device.recording.uploads.append((make, array))
    return array


def hold(thing: Any) -> Any:
    """Have the graph that is being recorded, if any, keep something alive whose memory it uses; returns it."""
    if device.recording is not None:
        device.recording.held.append(thing)
    return thing


def constant(maxsize: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`lru_cache` for functions that make device arrays that nobody changes: a graph holds those that it uses."""

    def decorate(function):
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*arguments):
            found = cached(*arguments)
            return found if device.recording is None else hold(found)  # many layers call it in each pass

        call.cache_clear = cached.cache_clear
        return call

    return decorate
