"""How long it takes to push a gradient to a rank that computes, and to fetch the parameters, in two ways.

Served: the rank handles messages at the progress points of its layers, as in `parallel/protocols/server.py`. One-sided: the
other ranks update its memory themselves, see `one_sided.py`. There, too, the rank looks for messages at its
progress points, because most MPI libraries move data for other ranks only within some call.
"""

import time
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.studies.servers.made_up_server import gradient_of, made_up_server, momentum
from gridgrad.experiments.studies.servers.one_sided import OneSidedServer
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.group import Tally
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.protocols.workers import Workers

COMPUTED, FEATURES, SAMPLES = "mlp:1024,1024,relu", 1024, 256  # a step takes some 30 ms, with a progress point every 1 or 2 ms
FEWEST = 3  # accesses in a round


class Computation:
    """Training steps of a rank of its own, with progress points at which it looks for messages to `workers`."""

    def __init__(self, workers):
        self.grid = ProcessGrid(MPI.COMM_SELF)
        net = parallelize(network_names.build(COMPUTED, (FEATURES,), 10), self.grid, reduction="plain")
        net.observe(workers)
        self.parts = [net.blocks(*minibatch((FEATURES,), 10, SAMPLES))]
        self.trainer = net.trainer(LOSSES["cross-entropy"](), SGD(net, lr=1e-6))

    def steps_until(self, condition):
        """Steps a second until condition() is true after one of them."""
        start, steps = time.perf_counter(), 0
        while not steps or not condition():
            self.trainer.step(self.parts, SAMPLES)
            steps += 1
        return steps / (time.perf_counter() - start)


class Served:
    """The way of `parallel/protocols/server.py`. Making one is collective, and so is `free`."""

    def __init__(self, comm, grid, parameters):
        self.workers = Workers(comm.Dup(), MPI.COMM_SELF, Tally())
        self.protocol = made_up_server(self.workers, grid, parameters)
        self.gradient = gradient_of(self.protocol)

    def access(self):
        """Push a gradient and fetch the parameters."""
        self.protocol.exchange(self.gradient)

    def free(self):
        self.protocol.finish()
        self.workers.comm.Free()


class OneSided:
    """The way of one-sided communication. Making one is collective, and so is `free`."""

    def __init__(self, comm, grid, parameters):
        self.workers = Workers(comm.Dup(), MPI.COMM_SELF, Tally())
        self.workers.handle("none", None)  # so that the progress points look for messages
        self.gradient = np.zeros(parameters, np.float32)
        self.server = OneSidedServer(comm, self.gradient, momentum)

    def access(self):
        """Push a gradient and fetch the parameters."""
        self.server.push_and_fetch(self.gradient)

    def free(self):
        self.server.free()
        self.workers.comm.Free()


WAYS = {"served": Served, "one-sided": OneSided}


def round_of(way, computation, comm, seconds):
    """(seconds of an access, the mean over the ranks but the first, which has the parameters; its steps a second). Collective.

    computation: what the first rank does meanwhile; None if it only waits. seconds: how long the others access the parameters.
    """
    comm.Barrier()
    start, calls, speed = time.perf_counter(), 0, None
    if comm.rank == 0:
        done = comm.Ibarrier().Test
        if computation:
            speed = computation.steps_until(done)
        else:
            way.workers.wait_until(done)
    else:
        while calls < FEWEST or time.perf_counter() < start + seconds:
            way.access()
            calls += 1
        seconds = (time.perf_counter() - start) / calls
        meet(comm)
    found = comm.gather(seconds)
    return (sum(found[1:]) / (comm.size - 1), speed) if comm.rank == 0 else (None, None)


def measure(comm, parameters, rounds, seconds):
    """Rows of the ways for each number of parameters: a list of dicts on the first rank. Collective.

    parameters: a list of numbers. Both ways are timed in each round, for about so many seconds each, while the first rank
    computes and while it waits. alone: its steps a second while nobody accesses its memory.
    """
    rows = []
    with ProcessGrid(MPI.COMM_SELF) as grid:
        for count in parameters:
            ways = {name: make(comm, grid, count) for name, make in WAYS.items()}
            computations = {name: Computation(way.workers) if comm.rank == 0 else None for name, way in ways.items()}
            found = {name: [] for name in ways}
            for number in progress(range(rounds + 1), f"{count:,} parameters", comm.rank == 0):
                for name, way in ways.items():
                    alone = alone_for(computations[name], comm, seconds)
                    waiting, _ = round_of(way, None, comm, seconds)
                    computing, speed = round_of(way, computations[name], comm, seconds)
                    if number and comm.rank == 0:  # the first round warms up
                        found[name].append({"waits": waiting, "computes": computing, "speed": speed / alone})
            for name, way in ways.items():
                if comm.rank == 0:
                    rows.append({"parameters": count, "way": name, "rounds": found[name]} | summary(found[name]))
                way.free()
    return rows


def alone_for(computation, comm, seconds):
    """The steps a second of the first rank while the others sleep. Collective."""
    start = time.perf_counter()
    speed = computation.steps_until(lambda: time.perf_counter() > start + seconds) if computation else None
    meet(comm)
    return speed


def summary(rounds):
    """{name: {"median", "min", "max"}} over the rounds."""
    lists = {name: [row[name] for row in rounds] for name in rounds[0]}
    return {name: {"median": median(found), "min": min(found), "max": max(found)} for name, found in lists.items()}
