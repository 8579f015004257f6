"""Gossip: workers average with one other worker at a time, and no step waits for all of them."""

from gridgrad.nn.device import to_device, xp
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.traffic import UPDATE, Message, Traffic, WorkOfStep

HALF = "half"  # the kind of its messages


class SGP(Protocol):
    """Stochastic gradient push (Assran, Loizou, Ballas, Rabbat 2019, Algorithm 1) on the directed exponential graph.

    Worker w keeps x_w and a weight a_w, at first its parameters and 1, and trains at z_w = x_w / a_w. In step t of W workers:

        x_w <- x_w - (what the optimizer subtracts at z_w);
        (x_w, a_w) <- half of it + the half that worker w - 2^(t mod L) has sent;   z_w <- x_w / a_w

    with L = ceil(log2 W), and the numbers of workers modulo W. The other half goes to worker w + 2^(t mod L). A worker waits
    only for the message of the same step from that one other worker. One from a later step may come before it is needed. At the
    end all workers take the exact mean, sum x_w / sum a_w.

    The workers' steps count alike, however many samples their shares have; one without samples only gossips. The arguments are
    those of Protocol.
    """

    own_numbers = ("weight",)

    def __init__(self, net, workers, make_optimizer):
        super().__init__(net, workers, make_optimizer)
        self.x, self.weight = self.counted.pack(net.params), 1.0
        self._arrived = {}  # {step: what was sent in it}
        workers.handle(HALF, self._keep)

    @staticmethod
    def traffic(served, **values):
        elements, workers = sum(served), len(served)
        halves = [Message(worker, (worker + 1) % workers, elements) for worker in range(workers)]
        mixing = 6  # find and add what the step has changed, halve, add what arrives, divide by the weight
        return Traffic([WorkOfStep([elements] * workers, operations) for operations in (UPDATE, mixing)], rounds=[halves])

    def own_arrays(self):
        return {"x": self.x}

    def after_step(self):
        """Add what the local step has changed, and exchange halves."""
        workers, step = self.workers, self.turn.step
        if workers.size == 1:
            return
        if self.turn.samples:
            self.x += self.counted.pack(self.net.params) - self.x / self.weight  # which were the parameters before
        hop = 2 ** (step % (workers.size - 1).bit_length())
        half = self._with_weight() / 2
        workers.send((workers.rank + hop) % workers.size, HALF, [step], half)
        workers.wait_until(lambda: step in self._arrived)
        workers.meet_inside()
        self._take(half + self._arrived.pop(step))

    def finish(self):
        if self.workers.size > 1:
            self.workers.wait_until(lambda: self.workers.all_sent)
            self.workers.meet_inside()
            total = self._with_weight()
            self.workers.all_reduce(total)
            self._take(total / self.workers.size)
        super().finish()

    def _keep(self, source, numbers, content):
        self._arrived[numbers[0]] = to_device(content.view(self.x.dtype))

    def _with_weight(self):
        return xp.concatenate([self.x, xp.full(1, self.weight, self.x.dtype)])

    def _take(self, both):
        """Go on from an x and its weight."""
        self.x, self.weight = both[:-1], float(both[-1])
        self.replace(self.x / self.weight)
