"""Where the time of a step goes, layer by layer."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gridgrad.parallel.observe.span_observer import METHODS, SpanObserver

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

OTHERS = "loss", "optimizer", "protocol", "reader"  # the names of those whose passes are not a layer's


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
        The layers are in the order in which they ran first. steps: the number of training steps that were observed.
        """
        everyone = self.net.grid.gather(dict(self.seconds))
        if everyone is None:
            return None
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for seconds in everyone:
            for (layer, kind, method), value in seconds.items():
                row = rows.setdefault((layer, kind), {"layer": layer, "kind": kind, **dict.fromkeys(METHODS, 0.0)})
                row[method] += value / (steps * len(everyone))
        return list(rows.values())
