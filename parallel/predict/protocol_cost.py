"""The *predicted* cost of a step with an update protocol: messages, bytes, operations of the update, and seconds on a machine.

A step is one minibatch of each of W workers, who all compute its gradients in T seconds. Bytes are those that a rank sends,
without headers; an all-reduce counts as in `parallel/grid/collectives.py`, in bytes and in messages that follow one another.
A worker sends a server one message with all gradients that go there, which also asks for the parameters, and gets one with
them. Where it fetches parameters without a push, it asks by a message of its own. Where workers do not wait for others, each
also asks the first one in each step which share is next. Such messages are taken to need no time. A rank sends, and receives,
one message after another, but does both at once.

A parameter server lives on the ranks of workers: all on the first, or each parameter at its owner. If it waits for all (bsp),
the gradients arrive after T, are summed and applied, and the parameters are sent. If it does not, a server receives a gradient,
applies it and sends the parameters, which takes tau, and then does so for another worker. So there is an update every
(T + wait) / W seconds, where a worker waits for its own only, but no more than one of other workers every tau of the busiest
server. With T / tau other workers that compute, and those that wait meanwhile, this server is always busy, and further workers
gain nothing (Hegde and Usmani 2016, section 5.2.1). What serving takes from the server's own worker, and that gradients come in
bunches, is left out; so servers are slower than that.

One worker trains serially, whatever the protocol. `PROTOCOLS` has them all, by name.
"""

from dataclasses import astuple, dataclass
from functools import partial
from math import lcm, prod

from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.grid_description import GridDescription, GroupDescription
from gridgrad.parallel.predict.cost import Cost
from gridgrad.parallel.predict.machine import Machine

# operations for each parameter
SGD = 4  # of an update with momentum
MEAN, SLOW, NESTEROV, ELASTIC = 1, 7, 8, 4  # of an agreement: a scaling; with the outer step of SlowMo, of DiLoCo; of EASGD
MIXING = 6  # of SGP: find and add what the step has changed, halve, add what arrives, divide by the weight


@dataclass(frozen=True)
class Case:
    """What a step is of.

    shapes: of all parameters. workers: W. machine: a Machine; the workers are consecutive ranks. compute: T, in seconds.
    owners: where there is a server, the worker that serves each parameter; by default the first one serves all.
    itemsize: bytes of a number.
    """

    shapes: tuple
    workers: int
    machine: Machine
    compute: float
    owners: tuple = ()
    itemsize: int = 4

    @property
    def elements(self):
        return sum(map(prod, self.shapes))

    @property
    def served(self):
        """The elements that each worker serves, a list."""
        served = [0] * self.workers
        for shape, owner in zip(self.shapes, self.owners or (0,) * len(self.shapes), strict=True):
            served[owner] += prod(shape)
        return served

    def link(self, elements, messages=1):
        """Seconds that a rank needs to send, or to receive, so many elements in so many messages."""
        if not messages:
            return 0.0
        near = self.workers <= self.machine.node["ranks"]
        latency, busy = self.machine.message_seconds(near, elements * self.itemsize, self.workers)
        return messages * latency + busy

    def passes(self, elements, operations):
        """Seconds of so many operations on each of these elements, in passes over memory as long as those of an update."""
        traffic = (operations + 1) * elements * self.itemsize
        return self.machine.operation_seconds(
            "update", (elements,), operations / SGD, operations * elements, traffic, self.itemsize, self.workers
        )

    def product(self, m, k, n):
        """Seconds of the product of an (m, k) and a (k, n) matrix."""
        traffic = (m * k + k * n + m * n) * self.itemsize
        return self.machine.operation_seconds(
            "linear.forward", (m, k, n), 1.0, 2 * m * k * n, traffic, self.itemsize, self.workers
        )


def case_of(net, workers, machine, batch, ownership=None):
    """The Case of a network. net: a serial Sequential. batch: samples in a minibatch of one worker.

    ownership: of parameters by servers, one of `parallel/protocols/ownership.py`; by default the first worker serves all.
    """
    shapes = tuple(p.shape for layer in net.leaves() for p in layer.parameters)
    owners = ownership([prod(shape) for shape in shapes], workers) if ownership else ()
    grid = GridDescription({"batch": workers}, None, machine.node["ranks"])
    compute = Cost(net, grid, "replicate", workers * batch, machine).parts["compute"]
    return Case(shapes, workers, machine, compute, owners, net.dtype.itemsize)


@dataclass(frozen=True)
class ProtocolCost:
    """Of a step, or of a part of one.

    messages, bytes: that a rank sends, the mean over all. most_messages, most_bytes: of the rank that sends the most.
    operations: additions and multiplications for the update, on the rank that has the most. seconds: *predicted*.
    """

    messages: float = 0.0
    bytes: float = 0.0
    most_messages: float = 0.0
    most_bytes: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0

    def __add__(self, other):
        return ProtocolCost(*(one + another for one, another in zip(astuple(self), astuple(other))))

    def every(self, steps):
        """What this costs a step if it happens once in so many."""
        return ProtocolCost(*(value / steps for value in astuple(self)))


def alone(case):
    """A step of a worker that agrees with nobody."""
    return ProtocolCost(seconds=case.compute) + computed(case, SGD)


def computed(case, operations):
    """So many operations on each parameter; none cost nothing."""
    if not operations:
        return ProtocolCost()
    return ProtocolCost(operations=operations * case.elements, seconds=case.passes(case.elements, operations))


def all_reduce(case, elements):
    """The sum over all workers of so many elements."""
    kind, group = COLLECTIVES["all-reduce"], GroupDescription(case.workers, 0, min(case.workers, case.machine.node["ranks"]))
    rounds, most = kind.rounds(case.workers), kind.sent(group, elements, 0) * case.itemsize  # the first rank sends the most
    sums = elements * (case.workers - 1) / case.workers
    seconds = case.machine.collective_seconds("all-reduce", group, case.workers, most)
    return ProtocolCost(rounds, 2 * sums * case.itemsize, rounds, most, sums, seconds)


# ----- one function for each family of protocols


def averaged(case, every=1, agreement=MEAN):
    """Each worker takes steps of its own; every so many of them all agree, by means of an all-reduce of all parameters.

    agreement: operations on each parameter for it. Synchronous training, which sums gradients in every step, costs as much.
    """
    if case.workers == 1:
        return alone(case)
    return alone(case) + (all_reduce(case, case.elements) + computed(case, agreement)).every(every)


def power_sgd(case, rank=1):
    """Synchronous training whose gradients are summed as products of matrices with `rank` columns; see PowerSGD.

    A matrix that is not larger than the two is sent as it is, and so is a vector.
    """
    if case.workers == 1:
        return alone(case)
    left, right, work = 0, 0, ProtocolCost()
    for shape in case.shapes:
        rows, columns = sorted((prod(shape[:-1]), shape[-1]))
        few = min(rank, rows)
        if len(shape) > 1 and few * (rows + columns) < rows * columns:
            left, right = left + few * rows, right + few * columns
            seconds = case.product(rows, columns, few) + case.product(columns, rows, few) + case.product(rows, few, columns)
            seconds += case.product(few, rows, few) + case.passes(rows * columns, 2)  # columns are made orthonormal; the error
            work += ProtocolCost(operations=(6 * few + 2) * rows * columns + 2 * rows * few**2, seconds=seconds)
        else:
            right += prod(shape)
    factors = all_reduce(case, left) if left else ProtocolCost()  # nothing is sent where no matrix is larger
    return alone(case) + work + factors + all_reduce(case, right)


def gossip(case):
    """In each step each worker sends its parameters to one other and receives those of one: SGP."""
    if case.workers == 1:
        return alone(case)
    nbytes = case.elements * case.itemsize
    return alone(case) + computed(case, MIXING) + ProtocolCost(1, nbytes, 1, nbytes, seconds=case.link(case.elements))


def waiting_server(case):
    """A parameter server that waits for the gradients of all workers in each step (bsp)."""
    if case.workers == 1:
        return alone(case)
    others, served = case.workers - 1, case.served
    summed = others + SGD
    both_ways = max(
        max(case.link(elements, messages), case.link(others * own, others * bool(own)))
        for own, (messages, elements) in zip(served, foreign(case))
    )
    seconds = case.compute + 2 * both_ways + max(case.passes(own, summed) for own in served)
    return sent_with_servers(case) + ProtocolCost(operations=max(served) * summed, seconds=seconds)


def asynchronous_server(case, fetch=1, push=1, local=0):
    """A parameter server that applies each gradient when it comes: asp; ssp while no worker is late; Downpour SGD.

    fetch, push: every how many steps a worker receives parameters and sends gradients. local: operations on each parameter by
    which it takes a step of its own in between.
    """
    if case.workers == 1:
        return alone(case)
    others, served, often = case.workers - 1, case.served, 1 / fetch + 1 / push
    own_step = computed(case, local)
    applied = [case.passes(own, SGD) / push for own in served]
    waits = [often * case.link(elements, messages) + max(applied) for messages, elements in foreign(case)]
    rate = sum(1 / (case.compute + own_step.seconds + wait) for wait in waits)
    busy = [others * often * case.link(own, bool(own)) + case.workers * time for own, time in zip(served, applied)]
    seconds = max(case.workers / rate, *busy)
    operations = case.workers * max(served) * SGD / push + own_step.operations
    return sent_with_servers(case, fetch, push, draws=1) + ProtocolCost(operations=operations, seconds=seconds)


def foreign(case):
    """(servers, elements that they serve) which are not on the worker's own rank, for each worker: a list."""
    served = case.served
    servers = sum(map(bool, served))
    return [(servers - bool(own), case.elements - own) for own in served]


def sent_with_servers(case, fetch=1, push=1, draws=0):
    """What ranks send in a step as workers, gradients and requests without gradients, and as servers, parameters.

    draws: how often a worker asks the first one which share is next.
    """
    others, served = case.workers - 1, case.served
    asked = 1 / push + 1 / fetch - 1 / lcm(fetch, push)  # the share of the steps in which a worker pushes or fetches
    messages = [count * asked + others * bool(own) / fetch for own, (count, _) in zip(served, foreign(case))]
    messages = [sent + draws * (1 if rank else others) for rank, sent in enumerate(messages)]
    sent = [(elements / push + others * own / fetch) * case.itemsize for own, (_, elements) in zip(served, foreign(case))]
    return ProtocolCost(sum(messages) / case.workers, sum(sent) / case.workers, max(messages), max(sent))


def tau(case):
    """Seconds for which an asynchronous server is busy with an update of another worker; of several, the one with the most."""
    return max(2 * case.link(own, bool(own)) + case.passes(own, SGD) for own in case.served)


def useful_workers(case):
    """T / tau: the number of workers from which on an asynchronous server is always busy. There must be several workers."""
    return case.compute / tau(case)


PROTOCOLS = {
    "sync": partial(averaged, agreement=0),
    "local": averaged,
    "post-local": averaged,
    "slowmo": partial(averaged, agreement=SLOW),
    "diloco": partial(averaged, agreement=NESTEROV),
    "easgd": partial(averaged, agreement=ELASTIC),
    "parallel-sgd": averaged,
    "admm": averaged,
    "powersgd": power_sgd,
    "sgp": gossip,
    "server:bsp": waiting_server,
    "server:asp": asynchronous_server,
    "server:ssp": asynchronous_server,
    "downpour": partial(asynchronous_server, local=SGD),
}
