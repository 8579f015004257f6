"""The spans of time in which a rank is busy with passes and collectives: the base of traces, and what a profile adds up."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gridgrad.nn import device
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.group import Group

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

METHODS = "forward", "gradients", "input_gradient", "backward"  # the phases of a layer's passes
OTHERS = "loss", "optimizer", "protocol", "reader"  # the names of those whose passes are not a layer's


class SpanObserver(Observer):
    """A context manager: while it is open, `record` is called with (what, start, stop, inner, step) of each pass of a network.
    what: (name, kind, phase), such as ("0", "Conv2d", "forward"). inner: the seconds in spans and collectives within it."""

    # A subclass may have a `timer` of its own, and then observe a Sequential. Where it overrides `collective` or `advanced`,
    # it calls those of this class too. On a GPU each pass waits for the computations that it started.

    end_step: float = math.inf  # the first step that is not recorded any more
    record: Callable[[tuple], None]
    hears_collectives = True

    def __init__(self, net):
        self.net = net
        self._open: list[tuple[float, float]] = []  # of each span under way: its start, and `_inner` of the span around it
        self._inner = 0.0  # seconds of the spans and collectives that ended within the innermost span under way

    def __enter__(self):
        self.clock = self.timer()
        self.net.observe(self)
        return self

    def __exit__(self, *exception):
        self.net.forget(self)
        self._open.clear()
        self._inner = 0.0

    def timer(self) -> Callable[[], float]:
        """The function that tells the time in seconds. It is asked for on entering: a simulation has a clock of its own."""
        return self.net.grid.tally.clock.now

    def begin(self, thing: Any, phase: str, context: Any) -> None:
        self._open.append((self.clock(), self._inner))
        self._inner = 0.0

    def end(self, thing: Any, phase: str, context: Any) -> None:
        device.synchronise()
        stop = self.clock()
        start, around = self._open.pop()
        step = self.net.step
        if step < self.end_step:
            self.record(((thing.name, type(thing).__name__, phase), start, stop, self._inner, step))
        self._inner = around + stop - start

    def collective(self, group: Group, layer: str, kind: str, bytes_sent: int, start: float, stop: float) -> None:
        self._inner += stop - start

    advanced = collective


class Profile(SpanObserver):
    """Adds up, while it is open, the seconds that this rank computes in each layer, without the communication.

    The layers in the branches of a layer, such as a Residual, have rows of their own, and its row has only the rest.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.

    Attributes
    ----------
    seconds
        {(layer, kind, phase): seconds}.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, ReLU, Sequential
    >>> from gridgrad.parallel import Profile, parallelize
    >>> net = parallelize(Sequential([Linear(3, 4), ReLU(), Linear(4, 2)]), {"batch": MPI.COMM_WORLD.size})
    >>> with Profile(net) as profile:
    ...     value = net.learn(np.ones((4, 3)), np.zeros((4, 2)), MSE(), SGD(net, lr=0.1))
    >>> rows = profile.rows(steps=1)
    >>> rows is None or [(row["layer"], row["kind"]) for row in rows] == [("0", "Linear"), ("1", "ReLU"), ("2", "Linear")]
    True
    >>> net.grid.free()
    """

    def __init__(self, net: "ParallelSequential") -> None:
        super().__init__(net)
        self.seconds: dict[tuple[str, str, str], float] = defaultdict(float)

    def record(self, span: tuple) -> None:
        """Called by the network at the end of each pass: see SpanObserver."""
        what, start, stop, inner, _ = span
        if what[0] not in OTHERS:
            self.seconds[what] += stop - start - inner

    def rows(self, steps: int) -> list[dict[str, Any]] | None:
        """The profile of all ranks: a list of dicts, one for each layer, on rank 0; None elsewhere. Collective.
        Each has the keys "layer" (its name), "kind" (its class, such as "Conv2d") and "forward", "gradients", "input_gradient"
        and "backward": seconds a step, the mean over the ranks. "backward" is for layers that compute both gradients at once.
        The layers are in the order in which they ran first. steps: the number of training steps that were observed."""
        everyone = self.net.grid.gather(dict(self.seconds))
        if everyone is None:
            return None
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for seconds in everyone:
            for (layer, kind, method), value in seconds.items():
                row = rows.setdefault((layer, kind), {"layer": layer, "kind": kind, **dict.fromkeys(METHODS, 0.0)})
                row[method] += value / (steps * len(everyone))
        return list(rows.values())
