"""The *predicted* cost of a step with an update protocol: messages, bytes, operations of the update, and seconds on a machine.

A step is one minibatch of each of W workers, who all compute its gradients in T seconds. What is sent and computed besides is
the Traffic that each protocol declares (`parallel/protocols/protocol.py`). Bytes are those that a rank sends, without headers;
an all-reduce counts as in `parallel/grid/collectives.py`, in bytes and in messages that follow one another. A rank sends, and
receives, one message after another, but does both at once.

If a parameter server waits for all (bsp), the gradients arrive after T, are summed and applied, and the parameters are sent. If
it does not, a server receives a gradient, applies it and sends the parameters, which takes tau, and then does so for another
worker. So there is an update every (T + wait) / W seconds, where a worker waits for its own only, but no more than one of other
workers every tau of the busiest server. With T / tau other workers that compute, and those that wait meanwhile, this server is
always busy, and further workers gain nothing (Hegde and Usmani 2016, section 5.2.1). What serving takes from the server's own
worker, and that gradients come in bunches, is left out; so servers are slower than that.

One worker trains serially, whatever the protocol.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import prod

from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import GridDescription, GroupDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.protocols.protocol import UPDATE, Protocol
from gridgrad.parallel.protocols.protocol_names import FORMS, SYNC

TRAFFIC = {SYNC: Protocol.traffic} | {name: form.traffic for name, form in FORMS.items()}


@dataclass(frozen=True)
class Case:
    """The workers whose step is predicted, and their network.

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

    def links(self, messages, end):
        """For each rank, the seconds in a step of its messages in a round. end: those that it "sender" or "receiver" of."""
        elements, counts = Counter(), Counter()
        for one in messages:
            elements[getattr(one, end)] += one.elements
            counts[getattr(one, end)] += 1
        return [messages[0].times * self.link(elements[rank], counts[rank]) for rank in range(self.workers)]

    def passes(self, elements, operations):
        """Seconds of so many operations on each of these elements, in passes over memory as long as those of an update."""
        if not operations:
            return 0.0
        traffic = (operations + 1) * elements * self.itemsize
        return self.machine.operation_seconds(
            "update", (elements,), operations / UPDATE, operations * elements, traffic, self.itemsize, self.workers
        )


def case_of(net, workers, machine, batch, ownership=None):
    """The Case of a network. net: a serial Sequential. batch: samples in a minibatch of one worker.

    ownership: of parameters by servers, one of `parallel/protocols/server.py`; by default the first worker serves all.
    """
    shapes = tuple(p.shape for layer in net.leaves() for p in layer.parameters)
    owners = ownership([prod(shape) for shape in shapes], workers) if ownership else ()
    grid = GridDescription({"batch": workers}, None, machine.node["ranks"])
    compute = Cost(net, grid, "replicate", workers * batch, machine).parts["compute"]
    return Case(shapes, workers, machine, compute, owners, net.dtype.itemsize)


@dataclass(frozen=True)
class ProtocolCost:
    """The cost of a step.

    messages, bytes: that a rank sends, the mean over all. most_messages, most_bytes: of the rank that sends the most.
    operations: additions and multiplications for the update, on the rank that has the most. seconds: *predicted*.
    """

    messages: float
    bytes: float
    most_messages: float
    most_bytes: float
    operations: float
    seconds: float


def cost(case, name, **values):
    """The ProtocolCost of the protocol of this name, see `TRAFFIC`. values: its own, by which it is called there."""
    if case.workers == 1:
        return ProtocolCost(0, 0, 0, 0, UPDATE * case.elements, case.compute + case.passes(case.elements, UPDATE))
    traffic, workers = TRAFFIC[name](case.served, **values), case.workers
    kind, group = COLLECTIVES["all-reduce"], GroupDescription(workers, 0, min(workers, case.machine.node["ranks"]))
    messages, elements = sent_by_each(traffic, workers)
    operations = sum(max(work.elements) * work.operations * work.times for work in traffic.work)
    if traffic.serving:
        gradients = workers if traffic.asynchronous else 1
        operations += gradients * max(traffic.serving.elements) * traffic.serving.operations * traffic.serving.times
    mean, rounds, most, added, seconds = 0.0, 0.0, 0.0, 0.0, step_seconds(case, traffic)
    for size, times in traffic.sums:
        sent, additions = kind.sent(group, size, 0), size * (workers - 1) / workers  # the first rank sends the most
        mean, most, added = mean + 2 * additions * times, most + sent * times, added + additions * times
        rounds += kind.rounds(workers) * times
        seconds += times * case.machine.collective_seconds("all-reduce", group, workers, sent * case.itemsize)
    return ProtocolCost(
        sum(messages) / workers + rounds,
        (sum(elements) / workers + mean) * case.itemsize,
        max(messages) + rounds,
        (max(elements) + most) * case.itemsize,
        operations + added,
        seconds,
    )


def sent_by_each(traffic, workers):
    """(messages, elements) that each rank sends in a step, without those of all-reduces."""
    messages, elements = [0.0] * workers, [0.0] * workers
    for one in chain(traffic.requests, *traffic.rounds):
        messages[one.sender] += one.times
        elements[one.sender] += one.times * one.elements
    return messages, elements


def step_seconds(case, traffic):
    """Seconds of a step without its all-reduces."""
    own = case.compute + sum(
        work.times * max(case.passes(elements, work.operations) for elements in work.elements) for work in traffic.work
    )
    serving = traffic.serving
    served = [serving.times * case.passes(elements, serving.operations) for elements in serving.elements] if serving else [0.0]
    if not traffic.asynchronous:
        ends = ("sender", "receiver")
        return own + max(served) + sum(max(max(case.links(one, end)) for end in ends) for one in traffic.rounds)
    pushed, fetched = traffic.rounds
    waits = [sum(ways) + max(served) for ways in zip(case.links(pushed, "sender"), case.links(fetched, "receiver"))]
    busy = [case.workers * seconds for seconds in served]
    for messages, end in ((pushed, "receiver"), (fetched, "sender")):
        for one in messages:  # a server takes or sends one after another
            busy[getattr(one, end)] += one.times * case.link(one.elements)
    return max(case.workers / sum(1 / (own + wait) for wait in waits), *busy)


def tau(case):
    """Seconds for which an asynchronous server is busy with an update of another worker; of several, the one with the most."""
    return max(2 * case.link(own, bool(own)) + case.passes(own, UPDATE) for own in case.served)


def useful_workers(case):
    """T / tau: the number of workers from which on an asynchronous server is always busy. There must be several workers."""
    return case.compute / tau(case)
