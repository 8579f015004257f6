"""The parameters that one rank serves, the three ways in which a server keeps workers together, and who serves what.

|     | class                  | a pushed gradient is applied    | a worker gets the parameters                                |
|-----|------------------------|---------------------------------|-------------------------------------------------------------|
| BSP | `BulkServerShard`      | with those of all other workers | when the gradients of all workers for its step are applied  |
| ASP | `ServerShard`          | at once                         | at once                                                     |
| SSP | `ServerShard`, `bound` | at once                         | when no worker is more than `bound` steps behind it         |

BSP is bulk synchronous (Valiant 1990), ASP asynchronous (Dean et al. 2012), SSP stale synchronous (Ho et al. 2013, section 3);
see also Eserol 2019, section 2.6.1. The *clock* of a worker is the number of gradients that it has pushed. With SSP a worker
with clock c sees all gradients that workers pushed before their clock c - bound; with bound 0 and plain SGD it equals BSP.

Where a server is spread over the workers, a function of OWNERSHIPS says who serves which parameter (Eserol 2019, section
5.2.3): (sizes, in the order of the network; number of servers) -> the owner of each. A parameter is never divided, so the
largest one bounds how even any choice can be: the first fully connected layer of VGG16 has 103 of its 138 million parameters.
"""

import math
from collections import Counter

from gridgrad.nn.device import xp
from gridgrad.nn.flat_parameters import FlatParameters


class ServerShard(FlatParameters):
    """The parameters that a rank serves; for its optimizer, which is set afterwards, they are the network. staleness: as in
    Protocol. leads: Counter of parameters sent, by how many steps their worker was ahead of the slowest.
    """

    asynchronous = True  # whether a worker takes the next share that is free, or its own share of each global minibatch

    def __init__(self, params, workers, step=0, bound=math.inf):
        super().__init__(params, xp.zeros_like(params))
        self.workers, self.bound, self.optimizer = workers, bound, None
        self.version, self.turns = 0, step * workers  # gradients applied, and the turns of which they are sums
        self.clocks, self.training = [0] * workers, set(range(workers))  # gradients pushed by each; who will push more
        self.staleness, self.leads = Counter(), Counter()

    def begin_at(self, step):
        """Go on after so many steps, in each of which every worker has pushed a gradient."""
        self.turns = step * self.workers
        if self.params.size:
            self.staleness[0] = self.turns

    def of_others(self, worker):
        """The number of applied gradients that other workers pushed: all that `worker` pushed are applied when it fetches."""
        return self.version - self.clocks[worker]

    def pushed(self, worker, gradient, of_others, turns):
        """Take a gradient, the sum of some turns. of_others: what `of_others` returned when its parameters were sent."""
        self.staleness[self.of_others(worker) - of_others] += 1
        self.clocks[worker] += 1
        self.take(worker, (gradient, turns))

    def take(self, worker, pushed):
        """Apply what a worker has pushed, (gradient, how many turns it sums), or keep it for later."""
        self.apply([pushed])

    def apply(self, pushed):
        """Update the parameters with the sum of some gradients. pushed: a list, see `take`."""
        (first, _), *others = pushed
        self.grads[...] = first
        for gradient, _ in others:
            xp.add(self.grads, gradient, out=self.grads)
        self.optimizer.step()
        self.version += len(pushed)
        self.turns += sum(turns for _, turns in pushed)

    def pass_by(self):
        """Keep in step with other servers that have applied the gradients of all workers, where nothing is served here."""
        self.optimizer.step()
        self.turns += self.workers

    def slowest(self):
        """The lowest clock of the workers that will push more."""
        return min((self.clocks[worker] for worker in self.training), default=max(self.clocks))

    def left(self, worker):
        """A worker will push no more."""
        self.training.discard(worker)

    def may_answer(self, worker):
        """Whether a worker may have the parameters now."""
        clock = self.clocks[worker]
        if not self.is_ready_for(clock):
            return False
        self.leads[clock - self.slowest()] += 1
        return True

    def is_ready_for(self, clock):
        """Whether all gradients are applied that a worker with this clock must see."""
        return self.slowest() >= clock - self.bound

    # ----- what an optimizer wants of a network

    @property
    def step(self):
        """How many global minibatches have been applied: there the optimizer evaluates its schedule."""
        return self.turns // self.workers

    @property
    def flat(self):
        return self

    def allocate(self):
        pass


class BulkServerShard(ServerShard):
    """The gradients of all workers are summed, in the order of the workers, and applied together."""

    asynchronous = False

    def __init__(self, params, workers, step=0):
        super().__init__(params, workers, step)
        self._waiting, self._rounds = {}, 0  # {worker: what it pushed}; how often that was applied

    def take(self, worker, pushed):
        self._waiting[worker] = pushed
        self._end_round()

    def left(self, worker):
        super().left(worker)
        self._end_round()

    def is_ready_for(self, clock):
        return self._rounds >= clock

    def _end_round(self):
        """Apply the gradients if those of all workers are here."""
        if self._waiting and self._waiting.keys() >= self.training:
            self.apply([self._waiting[worker] for worker in sorted(self._waiting)])
            self.turns += self.workers - len(self._waiting)  # those of workers that have left count as steps too
            self._waiting.clear()
            self._rounds += 1


def single(sizes, servers):
    """The first worker serves all parameters."""
    return (0,) * len(sizes)


def round_robin(sizes, servers):
    """Each parameter in turn goes to the next worker. Of an even number, half get all weights, the others all biases."""
    return tuple(index % servers for index in range(len(sizes)))


def greedy(sizes, servers):
    """Each parameter in turn goes to the first worker that serves the smallest sum of sizes: on VGG16 with 2 servers at most
    1.58 times the mean; Graham's LPT, the largest first, would have 1.49. With 16 servers both have 11.88.
    """
    loads, owners = [0] * servers, []
    for size in sizes:
        owners.append(loads.index(min(loads)))
        loads[owners[-1]] += size
    return tuple(owners)


OWNERSHIPS = {"single": single, "round-robin": round_robin, "greedy": greedy}
