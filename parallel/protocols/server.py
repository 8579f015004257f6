"""Parameter servers: workers push gradients to the ranks that serve parameters, and fetch what these have become.

Each rank is a worker, and also serves some of the parameters (Eserol 2019, section 5.2.3, "distributed parameter server"; Li et
al. 2014); a single server is the first worker, which owns all of them. Ranks of a worker push the gradients of their own blocks
to the ranks with the same blocks elsewhere. With a single server and workers of one rank, the others go on if any worker except
the first one dies and the MPI library lets them. Shares that it had only drawn are lost, those that it had pushed are kept.

A server keeps workers together in one of three ways:

|     | class                  | a pushed gradient is applied    | a worker gets the parameters                                |
|-----|------------------------|---------------------------------|-------------------------------------------------------------|
| BSP | `BulkServerShard`      | with those of all other workers | when the gradients of all workers for its step are applied  |
| ASP | `ServerShard`          | at once                         | at once                                                     |
| SSP | `ServerShard`, `bound` | at once                         | when no worker is more than `bound` steps behind it         |

BSP is bulk synchronous (Valiant 1990), ASP asynchronous (Dean et al. 2012), SSP stale synchronous (Ho et al. 2013, section 3);
see also Eserol 2019, section 2.6.1. The *clock* of a worker is the number of gradients that it has pushed. With SSP a worker
with clock c sees all gradients that workers pushed before their clock c - bound; with bound 0 and plain SGD it equals BSP.
"""

import math
from collections import Counter
from functools import partial, partialmethod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.layer import FlatParameters
from gridgrad.nn.optimizers import SGD
from gridgrad.parallel.checkpoint.state import OptimizerState
from gridgrad.parallel.job.run import NEEDED, Death
from gridgrad.parallel.placement.partition import size
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS, Protocol, joined, spread


class ServerShard(FlatParameters):
    """The parameters that a rank serves: a network for its optimizer, which is set afterwards. staleness: as in Protocol."""

    asynchronous = True  # whether a worker takes the next share that is free, or its own share of each global minibatch

    def __init__(self, params, workers, step=0, bound=math.inf):
        super().__init__(params, xp.zeros_like(params))
        self.flat, self.workers, self.bound, self.optimizer = self, workers, bound, None
        self.version, self.turns = 0, step * workers  # gradients applied, and the turns of which they are sums
        self.clocks, self.training = [0] * workers, set(range(workers))  # gradients pushed by each; who will push more
        self.waiting = {}  # {worker: (gradient, of how many turns it is the sum)} that are not applied yet
        self.staleness = Counter()

    @property
    def step(self):
        """How many global minibatches have been applied: there the optimizer evaluates its schedule."""
        return self.turns // self.workers

    def total(self, squares):
        raise ValueError("clip_norm needs all gradients of a step together, which no server has: use another protocol")

    def allocate(self):
        """Nothing to do: the optimizer asks every network for it."""

    def of_others(self, worker):
        """How many gradients of other workers are applied here. Those of a worker itself all are when it fetches."""
        return self.version - self.clocks[worker]

    def pushed(self, worker, gradient, of_others, turns):
        """Take a gradient, the sum of some turns. of_others: what `of_others` returned when its parameters were sent."""
        self.staleness[self.of_others(worker) - of_others] += 1
        self.clocks[worker] += 1
        self.waiting[worker] = gradient, turns
        self.apply()

    def apply(self):
        """Update the parameters with the sum of the gradients that wait, in the order of the workers."""
        pushed = [self.waiting[worker] for worker in sorted(self.waiting)]
        (first, _), *others = pushed
        self.grads[...] = first
        for gradient, _ in others:
            xp.add(self.grads, gradient, out=self.grads)
        self.optimizer.step()
        self.version += len(pushed)
        self.turns += sum(turns for _, turns in pushed)
        self.waiting.clear()

    def slowest(self):
        """The lowest clock of the workers that will push more."""
        return min((self.clocks[worker] for worker in self.training), default=max(self.clocks))

    def left(self, worker):
        """A worker will push no more."""
        self.training.discard(worker)

    def may_answer(self, worker):
        """Whether all gradients are applied that a worker must see in the parameters that it gets."""
        return self.slowest() >= self.clocks[worker] - self.bound


class BulkServerShard(ServerShard):
    """The gradients of all workers are applied together."""

    asynchronous = False

    def apply(self):
        if self.waiting and self.waiting.keys() >= self.training:
            missing = self.workers - len(self.waiting)
            super().apply()
            self.turns += missing  # those of workers that have left count as steps too

    def left(self, worker):
        super().left(worker)
        self.apply()

    def may_answer(self, worker):
        return worker not in self.waiting


# ----- who serves which parameter: (sizes, in the order of the network; number of servers) -> the owner of each
# A parameter is never divided, so the largest one bounds how even it can be: one of VGG16 has 103 of 138 million.


def single(sizes, servers):
    """The first worker serves all parameters."""
    return (0,) * len(sizes)


def round_robin(sizes, servers):
    """Each parameter in turn goes to the next worker. Of an even number, half get all weights, the others all biases."""
    return tuple(index % servers for index in range(len(sizes)))


def greedy(sizes, servers):
    """Each parameter in turn goes to the first worker with the smallest sum of sizes: on VGG16 at most 1.58 times the mean with
    2 servers, 11.88 times with 16. Graham's LPT, the largest first, would have 1.49 and 11.88."""
    loads, owners = [0] * servers, []
    for elements in sizes:
        owners.append(loads.index(min(loads)))
        loads[owners[-1]] += elements
    return tuple(owners)


OWNERSHIPS = {"single": single, "round-robin": round_robin, "greedy": greedy}


class ParameterServer(Protocol):
    """A worker pushes the gradient of each turn, weighted by its share, and fetches the parameters for the next. shard: a class
    of what a rank serves, with its options. owners: of OWNERSHIPS. lost: workers dead at the end."""

    def __init__(self, net, workers, make_optimizer, shard=ServerShard, owners=greedy, **options):
        if net.reduction.sharded or net.reduction.sharers > 1:
            raise ValueError("a worker needs its whole gradient to push it to a server: use --reduction plain or overlap, and "
                             "leave out --update sharded")  # fmt: skip
        self._make_shard, self._owners = partial(shard, **options), owners
        super().__init__(net, workers, make_optimizer)
        self.shard.optimizer = self.optimizer
        self.asynchronous, self.staleness = self.shard.asynchronous, self.shard.staleness
        self.clock, self.done, self.answered, self.lost = 0, set(), set(), 0
        self._asking = []  # (worker, kind of its message) that wait for parameters: "fetch", or "final" for the last ones
        self._dead_at_end = 0  # how many had died when all others were done: all workers are to hear the same of it
        self._missing, self._of_others = set(), dict.fromkeys(self.parts, 0)  # see ServerShard
        self._drawn = self._next_share = (net.step + 1) * workers.size  # numbers of shares, over all minibatches
        for kind in ("push", "fetch", "parameters", "draw", "drawn", "done", "final"):
            workers.handle(kind, getattr(self, f"_on_{kind}"))
        if net.grid.size == 1 and self.parts.keys() <= {0}:
            workers.on_death = self._on_death

    def effective_batch(self, batch_size):
        return batch_size / self.workers.size if self.asynchronous else batch_size

    def updated_here(self):
        """The ServerShard of this rank. Also finds `parts`: {server: the slices of the packed parameters that it owns}."""
        packed = [where for _, where, _ in self.counted.parameters()]
        owners = self._owners([size(where) for where in packed], self.workers.size)
        self.parts = {}
        for where, owner in zip(packed, owners, strict=True):
            self.parts.setdefault(owner, []).append(where)
        self._packed = self.counted.pack(self.net.params)
        self.shard = self._make_shard(self._of(self.workers.rank, self._packed), self.workers.size, self.net.step)
        return self.shard

    def _of(self, server, packed):
        """A copy of the elements of a packed array that a server owns."""
        return joined(packed, self.parts.get(server, ()))

    def own_arrays(self):
        return {"served": self.shard.params, "gradients": self.shard.grads, "fetched": self._packed}

    # ----- checkpoints

    def state(self):
        if self.asynchronous and self.workers.size > 1:
            raise ValueError("there are no checkpoints of asynchronous parameter servers, whose workers are never at the same "
                             "step: use --protocol server:bsp, local:K or another one whose workers meet")  # fmt: skip
        return super().state()

    def arrays_between_steps(self):
        return {}  # between two steps every worker has fetched what is served now

    def optimizer_state(self):
        mine = self.parts.get(self.workers.rank, ())
        slices = [where for _, packed, where in self.counted.parameters() if packed in mine]
        return OptimizerState(self.net, self.optimizer, slices)

    def load(self, state):
        """In each step so far every worker has pushed a gradient."""
        super().load(state)
        shard, self._packed = self.shard, self.counted.pack(self.net.params)
        shard.params[...] = self._of(self.workers.rank, self._packed)
        shard.turns = self.net.step * self.workers.size
        if shard.params.size:
            shard.staleness[0] = shard.turns
        self.staleness = shard.staleness
        self._drawn = self._next_share = shard.turns + self.workers.size

    # ----- the worker

    def places(self, steps):
        if not self.asynchronous:
            yield from super().places(steps)
            return
        number, end = self.net.step * self.workers.size + self.workers.rank, steps * self.workers.size
        while number < end:
            if self.net.grid.rank == 0:  # it asks for the next share of its worker, which comes while the turn is computed
                self._drawn = None
                self.workers.send(0, "draw")
            yield divmod(number, self.workers.size)
            number = self._drawn

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self.net.step = turn.step  # a worker that takes the next free share may skip some minibatches

    def step(self):
        self.exchange(self.weighted_gradient())
        self.net.reduction.end_update()

    def without_samples(self):
        self.exchange(xp.zeros_like(self._packed))
        super().without_samples()

    def weighted_gradient(self):
        """This turn's part of the gradient of the global minibatch, shaped as `counted.pack` returns it."""
        for where in self.net.reduction.owned:
            self.net.reduction.ready(where)  # sums within the worker may still be under way
        gradient = self.counted.pack(self.net.grads)
        gradient *= gradient.dtype.type(self.turn.weight)
        return gradient

    def exchange(self, gradient):
        """Push the gradient of a turn, shaped as `counted.pack` returns it, and fetch the parameters for the next one."""
        self.push(gradient, fetch=True)
        self.end_turn()
        self.replace(self._packed)
        if not self.asynchronous and not self.shard.params.size:  # in step with servers that apply the gradients of all workers
            self.optimizer.step()
            self.shard.turns += self.workers.size

    def push(self, gradient, turns=1, fetch=False, of_others=None):
        """Send a gradient, the sum of some turns. fetch: ask for the parameters too; in a message of its own that could come
        when others have pushed again. of_others: {server: number}, see ServerShard, by default those fetched last."""
        self.clock += 1
        self._missing, of_others = set(self.parts if fetch else ()), of_others or self._of_others
        for server in self.parts:
            self.workers.send(server, "push", (of_others[server], turns, fetch), self._of(server, gradient))

    def ask(self, kind="fetch"):
        """Ask for the parameters."""
        self._missing = set(self.parts)
        for server in self.parts:
            self.workers.send(server, kind)

    def end_turn(self):
        """Wait for the parameters that were asked for, and for the number of the next share. Collective over the worker."""
        self.workers.wait_until(lambda: not self._missing and self._drawn is not None)
        self.workers.meet_inside()
        if self.asynchronous:
            number = np.array([self._drawn], np.int64)
            self.net.grid.world.broadcast(number, BETWEEN_WORKERS)
            self._drawn = int(number[0])

    def finish(self):
        for worker in range(self.workers.size):
            self.workers.send(worker, "done", (self.clock if self.parts else 0,))
        self.ask("final")
        self.workers.wait_until(lambda: not self._missing and self._all_served() and self.workers.all_sent)
        self.workers.meet_inside()
        self.replace(self._packed)
        if not self.lost:
            super().finish()

    def _all_served(self):
        """Whether all living workers are done, and have the last parameters of this server."""
        served = self.done & self.answered if self.shard.params.size else self.done
        return len(served.union(self.workers.dead)) == self.workers.size

    def _on_parameters(self, server, numbers, content):
        self._of_others[server], self.lost, *_ = numbers
        spread(to_device(content.view(self.net.dtype)), self.parts[server], self._packed)
        self._missing.discard(server)

    def _on_drawn(self, server, numbers, content):
        self._drawn = numbers[0]

    # ----- the server

    def _on_push(self, worker, numbers, content):
        of_others, turns, fetch, *_ = numbers
        self.shard.pushed(worker, to_device(content.view(self.net.dtype)), of_others, turns)
        self._asking += [(worker, "fetch")] if fetch else []
        self._answer()

    def _on_fetch(self, worker, numbers, content, kind="fetch"):
        self._asking.append((worker, kind))
        self._answer()

    _on_final = partialmethod(_on_fetch, kind="final")

    def _on_draw(self, worker, numbers, content):
        self.workers.send(worker, "drawn", (self._next_share,))
        self._next_share += 1

    def _on_done(self, worker, numbers, content):
        if self.shard.params.size and self.shard.clocks[worker] != numbers[0]:
            raise RuntimeError(f"worker {worker} has pushed {numbers[0]} gradients, but {self.shard.clocks[worker]} came")
        self._leave(worker)

    def _answer(self):
        """Send the parameters to all workers that ask for them and may have them; the last ones when all are done."""
        all_done, asking, self._asking = len(self.done) == self.workers.size, self._asking, []
        for worker, kind in asking:
            may_have_them = all_done if kind == "final" else self.shard.may_answer(worker)
            if may_have_them:
                self.workers.send(worker, "parameters", (self.shard.of_others(worker), self._dead_at_end), self.shard.params)
                if kind == "final":
                    self.answered.add(worker)
            else:
                self._asking.append((worker, kind))

    def _on_death(self, worker):
        """Go on without a worker that has died. Raises Death if it was the server."""
        if worker == 0:
            raise Death(NEEDED)
        self._asking = [one for one in self._asking if one[0] != worker]
        self._leave(worker)

    def _leave(self, worker):
        """A worker is done, or has died."""
        if worker not in self.done:
            self.done.add(worker)
            if len(self.done) == self.workers.size:
                self._dead_at_end = len(self.workers.dead)
        self.shard.left(worker)
        self._answer()


class Downpour(ParameterServer):
    """Workers fetch a copy every `fetch` turns, train it by plain SGD with the server's learning rate, and push the sum of
    their gradients every `push` turns (Dean et al. 2012, section 4.1). With both 1 it equals an asynchronous server."""

    def __init__(self, net, workers, make_optimizer, fetch, push, owners=greedy):
        super().__init__(net, workers, make_optimizer, owners=owners)
        self.periods = (fetch, push) if workers.size > 1 else (1, 1)  # alone, it is serial training
        self.local, self.interval = SGD(net, self.optimizer.lr), min(self.periods)
        self._sum, self._summed, self._turns = xp.zeros_like(self._packed), 0, 0

    def effective_batch(self, batch_size):
        return super().effective_batch(batch_size) * self.periods[1]

    def own_arrays(self):
        return super().own_arrays() | {"gradients to push": self._sum}

    def step(self):
        gradient = self.weighted_gradient()
        self.local.step()
        self.exchange(gradient)

    def exchange(self, gradient):
        if not self._summed:
            self._since = dict(self._of_others)  # the oldest gradient of the sum says how stale it is
        self._sum += gradient
        self._summed, self._turns = self._summed + 1, self._turns + 1
        fetches, pushes = (self._turns % period == 0 for period in self.periods)
        if pushes:
            self._push_sum(fetches)
        elif fetches:
            self.ask()
        self.end_turn()
        if fetches:
            self.replace(self._packed)

    def finish(self):
        if self._summed:
            self._push_sum()
        super().finish()

    def _push_sum(self, fetch=False):
        self.push(self._sum, self._summed, fetch, self._since)
        self._sum.fill(0)
        self._summed = 0
