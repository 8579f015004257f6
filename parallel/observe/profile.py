"""Where the time of a step goes, layer by layer."""

from collections import defaultdict

from gridgrad.parallel.observe.span_observer import METHODS, SpanObserver

OTHERS = "loss", "optimizer", "protocol", "reader"  # the names of those whose passes are not a layer's


class Profile(SpanObserver):
    """Adds up, while it is open, the seconds that this rank computes in each layer, without the communication.

        with Profile(net) as profile:
            ...
        rows = profile.rows(steps)

    The layers in the branches of a layer, such as a Residual, have rows of their own, and its row has only the rest.
    seconds: {(layer, kind, phase): seconds}.
    """

    def __init__(self, net):
        super().__init__(net)
        self.seconds = defaultdict(float)

    def record(self, span):
        what, start, stop, inner, _ = span
        if what[0] not in OTHERS:
            self.seconds[what] += stop - start - inner

    def rows(self, steps):
        """The profile of all ranks: a list of dicts, one for each layer, on rank 0; None elsewhere. Collective.

        Each has the keys "layer" (its name), "kind" (its class, such as "Conv2d") and "forward", "gradients", "input_gradient"
        and "backward": seconds a step, the mean over the ranks. "backward" is for layers that compute both gradients at once.
        The layers are in the order in which they ran first. steps: the number of training steps that were observed.
        """
        everyone = self.net.grid.gather(dict(self.seconds))
        if everyone is None:
            return None
        rows = {}
        for seconds in everyone:
            for (layer, kind, method), value in seconds.items():
                row = rows.setdefault((layer, kind), {"layer": layer, "kind": kind, **dict.fromkeys(METHODS, 0.0)})
                row[method] += value / (steps * len(everyone))
        return list(rows.values())
