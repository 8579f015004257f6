"""Where the time of a step goes, layer by layer."""

from collections import defaultdict

from parallel.observe.span_observer import METHODS, SpanObserver

OTHERS = "loss", "optimizer", "reader"  # what spans tell of besides layers


class Profile(SpanObserver):
    """While it is open, adds up the seconds that training spends in each layer, without the communication within.

        with Profile(net) as profile:
            ...
        rows = profile.rows(steps)

    What lies in the branches of a layer counts there, what it does with them itself counts for it.
    """

    def __init__(self, net):
        super().__init__(net)
        self.seconds = defaultdict(float)

    def tell(self, span):
        what, start, stop, inner, _ = span
        if what[0] not in OTHERS:
            self.seconds[what] += stop - start - inner

    def rows(self, steps):
        """On rank 0 a dict for each layer, in the order in which they run: its name, its kind, such as "Conv2d", and the
        seconds a step, mean over the ranks, of forward, gradients, input_gradient and backward (both halves where the
        layer computes them at once). None elsewhere. Collective.

        steps: how many there were.
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
