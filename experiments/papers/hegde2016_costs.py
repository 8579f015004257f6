"""Section 5 of Hegde and Usmani 2016: what ParallelSGD, ShuffleSGD, ADMM SGD and Downpour SGD cost, *predicted*.

The paper has orders of magnitude, and no numbers. Beside them stands what they are for one epoch of a network on k workers: its
terms without their constants, with the sizes of our network and of MNIST for its letters, and what the protocols here send and
compute. The paper's log(1/eps) iterations of a worker are the steps of the epoch, its theta are those of all workers.

A step of a protocol is one minibatch of each of W workers, who all compute its gradients in T seconds. What is sent and
computed besides is the Traffic of each protocol. Bytes are those that a rank sends, without headers; an all-reduce counts as in
`parallel/grid/collectives.py`. A rank sends, and receives, one message after another, but does both at once. If a parameter
server waits for all (bsp), the gradients arrive after T, are summed and applied, and the parameters are sent. If it does not, a
server receives a gradient, applies it and sends the parameters, which takes tau, and then does so for another worker. So there
is an update every (T + wait) / W seconds, where a worker waits for its own only, but no more than one of other workers every
tau of the busiest server (section 5.2.1). What serving takes from the server's own worker, and that gradients come in bunches,
is left out. One worker trains serially, whatever the protocol.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil, lcm, log2, prod
from typing import NamedTuple

from gridgrad.experiments.papers.whole_nodes import whole_nodes
from gridgrad.nn.random import permutation
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.collectives import COLLECTIVES, rounded_up_log2
from gridgrad.parallel.grid.process_grid import GridDescription, GroupDescription
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.protocols.parallel_sgd import DRAWN, DRAWS, STRATA, pairs
from gridgrad.parallel.protocols.protocol_names import SYNC
from gridgrad.parallel.protocols.server import greedy, single

WORKERS = 2, 4, 8
SAMPLES, CLASSES, IMAGE = 60_000, 10, (28, 28, 1)  # those of MNIST
SAMPLE = prod(IMAGE) + 1  # bytes, with the label
BATCH = 64  # samples in a minibatch of a worker
NET = "mnist-cnn"
LIMITS = (NET, IMAGE), ("cifar-cnn", (32, 32, 3))
SCALES = 2, 4, 8, 16, 32, 64  # workers beside a server
SPREAD = 8  # workers for which tau is given
MIB, MILLION = 2**20, 10**6
SHUFFLE, EXCHANGE, PARALLEL, ADMM, DOWNPOUR = "ShuffleSGD", "exchange of halves", "ParallelSGD", "ADMM SGD", "Downpour SGD"
ARRAYS = 3  # that travel where samples move: inputs, targets and indices
UPDATE = 4  # additions and multiplications for each parameter, of an update with momentum
TERMS = {  # of what is sent: words, and functions of what `setting` returns
    SHUFFLE: ("D + 2 d k log2 k in MiB: the samples, and d drawn ones to the first worker and back",
              lambda s: (s["D"] + 2 * s["d"] * s["k"] * log2(s["k"])) / MIB),
    EXCHANGE: ("k N = D in MiB, of one round", lambda s: s["D"] / MIB),
    PARALLEL: ("k p in MiB", lambda s: s["k"] * s["p"] / MIB),
    ADMM: ("k p log(1/eps) in MiB; log(1/eps) are the steps of a worker", lambda s: s["k"] * s["p"] * s["steps"] / MIB),
    DOWNPOUR: ("theta p in MiB; theta are the steps of all workers", lambda s: s["k"] * s["steps"] * s["p"] / MIB),
}  # fmt: skip
WORK = {  # of what is computed
    SHUFFLE: ("k d in millions", lambda s: s["k"] * DRAWS / MILLION),
    PARALLEL: ("p log2 k + p log(1/eps) in millions, on one processor (q = 1)",
               lambda s: s["elements"] * (log2(s["k"]) + s["steps"]) / MILLION),
    ADMM: ("(p log2 k + p) log(1/eps) in millions", lambda s: s["elements"] * (log2(s["k"]) + 1) * s["steps"] / MILLION),
    DOWNPOUR: ("(p log2 k + p) log(1/eps) in millions, as ADMM SGD", lambda s: WORK[ADMM][1](s)),
}  # fmt: skip


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of the paper that is an update protocol here. text: names the protocol, as for `--protocol`. name, values:
    what `cost` is called with. steps: of an epoch."""

    text: str
    name: str
    values: dict
    steps: int


def algorithms(samples, k):
    """{name: Algorithm} on k workers."""
    steps = ceil(samples / (BATCH * k))
    return {
        PARALLEL: Algorithm("parallel-sgd", "parallel-sgd", {"period": steps}, steps),
        ADMM: Algorithm("admm:1", "admm", {}, steps),
        DOWNPOUR: Algorithm("downpour:1:1:single", "downpour", {}, steps),
    }


def setting(k):
    """What the paper's letters stand for here, on k workers: D, d and p are in bytes; also the elements of p, and steps."""
    elements = network_names.build(NET, IMAGE, CLASSES).size
    return {
        "k": k, "D": SAMPLES * SAMPLE, "d": DRAWS * DRAWN.itemsize, "p": 4 * elements, "elements": elements,
        "steps": ceil(SAMPLES / (BATCH * k)),
    }  # fmt: skip


def terms(algorithm, k):
    """What the paper's terms for the communication of an algorithm are for the network here on k workers, in MiB: predicted."""
    return TERMS[algorithm][1](setting(k))


def work(algorithm, k):
    """What its terms for the computation are, in millions of operations; None where it has none."""
    return WORK[algorithm][1](setting(k)) if algorithm in WORK else None


def predicted(algorithm, k):
    """(bytes of all workers, of the busiest, the most messages, operations) in an epoch."""
    if algorithm in (SHUFFLE, EXCHANGE):
        return shuffle(k) if algorithm == SHUFFLE else exchange(k)
    ours = algorithms(SAMPLES, k)[algorithm]
    case = case_of(network_names.build(NET, IMAGE, CLASSES), k, whole_nodes(), BATCH)
    found, steps = cost(case, ours.name, **ours.values), ours.steps
    return k * steps * found.bytes, steps * found.most_bytes, steps * found.most_messages, steps * found.operations


def shuffle(k):
    """The same of ShuffleSGD, all samples of which move but one in k. Its messages are those of eight collectives."""
    shared = 8 * (k - 1) * (1 + CLASSES + 1 + k)  # a rank's part in sizes, counts of the strata, and numbers of messages
    moved = SAMPLES / k * (k - 1) / k * (SAMPLE + 8)
    cuts = 8 * (k - 1) * (STRATA - 1)
    drawn = DRAWN.itemsize * DRAWS
    messages = 8 * rounded_up_log2(k)
    return k * (shared + moved) + cuts + (k - 1) * drawn, shared + moved + max(cuts, drawn), messages, k * DRAWS


def distribution(k):
    """The bytes of all workers in ShuffleSGD that are not samples: what is sent to find the distribution of the labels."""
    return shuffle(k)[0] - SAMPLES * (k - 1) / k * (SAMPLE + 8)


def exchange(k):
    """The same of one round in which pairs of workers exchange half of their samples, with their indices."""
    sizes = Partition.even(SAMPLES, k).sizes
    moved = {pair: min(sizes[worker] for worker in pair) // 2 for pair in pairs(k, seed=0, round=1)}
    sample = SAMPLE + 8
    shared, sent = 8 * (k - 1), [count * sample for count in moved.values()]  # all learn how many samples each has
    return k * shared + 2 * sum(sent), shared + max(sent), rounded_up_log2(k) + ARRAYS, 0


def limits():
    """Rows: T, tau and their ratio, and updates a second over those of one worker."""
    found = []
    for name, image in LIMITS:
        net = network_names.build(name, image, CLASSES)
        for machine in (machines.read("ethernet-1g"), whole_nodes()):
            alone = cost(case_of(net, 1, machine, BATCH), "server:asp").seconds
            for words, ownership in (("single", single), ("spread, greedy", greedy)):
                case = case_of(net, SPREAD, machine, BATCH, ownership)
                row = {"net": name, "machine": machine.name, "server": words}
                row |= {"T, ms": 1e3 * case.compute, "tau, ms": 1e3 * tau(case), "T/tau": useful_workers(case)}
                for k in SCALES:
                    step = cost(case_of(net, k, machine, BATCH, ownership), "server:asp").seconds
                    row[f"k = {k}"] = k * alone / step
                found.append(row)
    return found


# ----- beside what was counted


class Costs:
    """What was counted of each algorithm on k workers, by k; what was predicted, where an algorithm was not counted."""

    def __init__(self, tables):
        self._rows = [*tables["costs"], *tables["computations"]]

    def _of(self, algorithm, counted, predicted):
        """{k: the number in the column `counted`, or in `predicted` where an algorithm was not counted}."""
        column = counted if self._is_counted(algorithm) else predicted
        return {row["k"]: row[column] for row in self._rows if row["algorithm"] == algorithm and column in row}

    def _is_counted(self, algorithm):
        return all(row.get("counted MiB", 0) is not None for row in self._rows if row["algorithm"] == algorithm)

    def sent(self, algorithm):
        """MiB of all workers."""
        return self._of(algorithm, "counted MiB", "all workers, *predicted* MiB")

    def busiest(self, algorithm):
        """MiB of the worker that sends most."""
        return self._of(algorithm, "busiest, counted MiB", "busiest, *predicted* MiB")

    def computed(self, algorithm):
        """Millions of operations of the rank with the most."""
        return self._of(algorithm, "counted millions", "operations, *predicted* millions")

    def with_shuffle(self):
        """MiB that all workers send in ParallelSGD, its shuffle included."""
        shuffle, mean = self.sent(SHUFFLE), self.sent(PARALLEL)
        return {k: shuffle[k] + mean[k] for k in mean}

    def kind_of(self, *algorithms):
        """That of a claim over these algorithms."""
        return "measured" if all(map(self._is_counted, algorithms)) else "predicted"


def comparisons(k, draws):
    """How many comparisons a merge of k sorted lists of so many different numbers takes, with a heap."""
    count = 0

    class Label(int):
        def __lt__(self, other):
            nonlocal count
            count += 1
            return int(self) < int(other)

    order = permutation(0, 0, k * draws, "labels")
    lists = [[Label(value) for value in sorted(order[start::k].tolist())] for start in range(k)]
    for _ in heapq.merge(*lists):
        pass
    return count


# ----- what a step of a protocol sends and computes


class Message(NamedTuple):
    """What one worker sends another. elements: 0 if it only asks. times: in a step on average."""

    sender: int
    receiver: int
    elements: int
    times: float = 1.0


class WorkOfStep(NamedTuple):
    """Additions and multiplications on parameters, of which each worker has so many `elements`. times: in a step."""

    elements: Sequence
    operations: float  # on each element
    times: float = 1.0


class Traffic(NamedTuple):
    """What workers of one rank send and compute in a step, beside gradients."""

    work: Sequence
    sums: Sequence = ()  # (elements, times in a step) of all-reduces
    rounds: Sequence = ()  # the Messages that travel together, one round after another
    requests: Sequence = ()  # Messages that take no time
    serving: WorkOfStep | None = None  # of servers
    asynchronous: bool = False  # no worker waits for others; rounds are then what is pushed and what is fetched


def averaging(agreement, served, period=1):
    """An update, and in each `period`-th step a sum of all parameters. agreement: operations on each beside those of the sum.
    served: parameters that each worker serves, together all."""
    elements, every = [sum(served)] * len(served), 1 / period
    return Traffic([WorkOfStep(elements, UPDATE), WorkOfStep(elements, agreement, every)], [(sum(served), every)])


def gossip(served):
    elements, workers = sum(served), len(served)
    halves = [Message(worker, (worker + 1) % workers, elements) for worker in range(workers)]
    mixing = 6  # find and add what the step has changed, halve, add what arrives, divide by the weight
    return Traffic([WorkOfStep([elements] * workers, operations) for operations in (UPDATE, mixing)], rounds=[halves])


def serving(served, fetch=1, push=1, local=0, asynchronous=True):
    """local: operations on each parameter of a worker's own step between fetches. A push also asks for parameters; a fetch
    without one is a message. Asynchronous workers ask the first one in each step for a share."""
    workers = range(len(served))
    pairs = [(worker, server) for worker in workers for server in workers if worker != server and served[server]]
    pushed = [Message(worker, server, served[server], 1 / push) for worker, server in pairs]
    fetched = [Message(server, worker, served[server], 1 / fetch) for worker, server in pairs]
    asked = [Message(worker, server, 0, 1 / fetch - 1 / lcm(fetch, push)) for worker, server in pairs]
    if asynchronous:
        asked += [Message(*way, 0) for worker in workers[1:] for way in ((worker, 0), (0, worker))]
        applied = WorkOfStep(served, UPDATE, 1 / push)
    else:
        applied = WorkOfStep(served, len(served) - 1 + UPDATE)
    return Traffic([WorkOfStep([sum(served)] * len(served), local)], [], [pushed, fetched], asked, applied, asynchronous)


AGREEMENTS = {SYNC: 0, "local": 1, "post-local": 1, "slowmo": 7, "diloco": 8, "easgd": 4, "admm": 1, "parallel-sgd": 1}
TRAFFIC = {
    **{name: partial(averaging, operations) for name, operations in AGREEMENTS.items()},
    "sgp": gossip,
    "server:bsp": partial(serving, asynchronous=False),
    "server:asp": serving,
    "server:ssp": serving,
    "downpour": partial(serving, local=UPDATE),
}


# ----- what it costs


@dataclass(frozen=True)
class Case:
    """The workers whose step is predicted, and their network. shapes: of all parameters. workers: W. machine: a Machine; the
    workers are consecutive ranks. compute: T, in seconds. owners: where there is a server, the worker that serves each
    parameter; by default the first one serves all. itemsize: bytes of a number."""

    shapes: tuple
    workers: int
    machine: machines.Machine
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
        elements, counts = Counter(), Counter(getattr(one, end) for one in messages)
        for one in messages:
            elements[getattr(one, end)] += one.elements
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
    """The Case of a network. net: a serial Sequential. batch: samples in a minibatch of one worker. ownership: of parameters by
    servers, one of `parallel/protocols/server.py`; by default the first worker serves all."""
    shapes = tuple(p.shape for layer in net.leaves() for p in layer.parameters)
    owners = ownership([prod(shape) for shape in shapes], workers) if ownership else ()
    grid = GridDescription({"batch": workers}, None, machine.node["ranks"])
    compute = Cost(net, grid, "replicate", workers * batch, machine).parts["compute"]
    return Case(shapes, workers, machine, compute, owners, net.dtype.itemsize)


@dataclass(frozen=True)
class ProtocolCost:
    """The cost of a step. messages, bytes: that a rank sends, the mean over all. most_messages, most_bytes: of the rank that
    sends the most. operations: additions and multiplications for the update, on the rank that has the most. seconds:
    *predicted*."""

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
    messages, elements = Counter(), Counter()  # that each rank sends, without those of all-reduces
    for one in chain(traffic.requests, *traffic.rounds):
        messages[one.sender] += one.times
        elements[one.sender] += one.times * one.elements
    operations = sum(max(work.elements) * work.operations * work.times for work in traffic.work)
    if traffic.serving:
        gradients = workers if traffic.asynchronous else 1
        operations += gradients * max(traffic.serving.elements) * traffic.serving.operations * traffic.serving.times
    mean, rounds, most, seconds = 0.0, 0.0, 0.0, step_seconds(case, traffic)
    for size, times in traffic.sums:
        sent, additions = kind.sent(group, size, 0), size * (workers - 1) / workers  # the first rank sends the most
        mean, most, operations = mean + 2 * additions * times, most + sent * times, operations + additions * times
        rounds += kind.rounds(workers) * times
        seconds += times * case.machine.collective_seconds("all-reduce", group, workers, sent * case.itemsize)
    return ProtocolCost(
        messages.total() / workers + rounds, (elements.total() / workers + mean) * case.itemsize,
        max(messages.values(), default=0) + rounds, (max(elements.values(), default=0) + most) * case.itemsize,
        operations, seconds,
    )  # fmt: skip


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
