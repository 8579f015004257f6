"""How many workers a parameter server can serve: measured, simulated and by a formula; the workers rest instead of computing.

A worker computes for T seconds, pushes its gradient and waits for the parameters. The server needs tau seconds for an update,
in which it receives the gradient, applies it and sends the parameters. So W workers make W / (T + R) updates a second, where R
is how long an update takes if nobody else wants one, but never more than 1 / tau (Hegde and Usmani 2016, section 5.2.1).

The first worker only serves here. The others sleep instead of computing, so that more of them than there are cores do not
disturb each other much. R and tau are measured with a worker that pushes again at once: tau is the time for which the server's
processor is busy, without its idle looks for messages. A worker's own processor is busy with each update, too. So C cores that
all ranks share take at most C / (tau + own) updates a second.
"""

import time
from functools import partial
from statistics import median

from mpi4py import MPI

from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.studies.servers.made_up_server import gradient_of, made_up_server
from gridgrad.nn import Adadelta
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.grid.group import Tally
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.protocols.simulated_workers import Simulation
from gridgrad.parallel.protocols.workers import Workers

FEWEST = 3  # updates of a worker of which a rate is computed


def slow_optimizer(updated):
    """Of all optimizers the one that takes longest. So an update keeps the server busier than a worker, and what two cores can
    copy for all workers is not the limit."""
    return Adadelta(updated)


def updates(protocol, compute, seconds):
    """The times at which this worker has had an answer to each of its updates in the next so many seconds.

    compute: a function that lets the time of a computation pass.
    """
    gradient, found, now = gradient_of(protocol), [], protocol.workers.now
    end = now() + seconds
    while len(found) < FEWEST or now() < end:
        compute()
        protocol.exchange(gradient)
        found.append(now())
    return found


def rate(times):
    """Updates a second of several workers. times: what `updates` returned for each of them."""
    return sum((len(found) - 1) / (found[-1] - found[0]) for found in times)


def predicted(workers, compute, alone, tau):
    """Updates a second by the formula: compute is T, alone is R."""
    return min(workers / (compute + alone), 1 / tau)


def simulated(workers, compute, alone, tau, seconds):
    """Updates a second in a Simulation, in which nothing but the server and a worker's own share of R takes time."""
    taken = {"push": tau, "parameters": max(alone - tau, 0.0)}  # on the server; on the worker
    simulation = Simulation(workers + 1, serve_seconds=lambda kind, size: taken.get(kind, 0.0))

    def work(simulated_workers):
        protocol = made_up_server(simulated_workers, grid, parameters=2)
        served = simulated_workers.rank == 0
        found = [] if served else updates(protocol, partial(simulated_workers.compute, compute), seconds)
        protocol.finish()
        return found

    with ProcessGrid(MPI.COMM_SELF) as grid:
        return rate(simulation.run(work)[1:])


class Server:
    """A parameter server on the first rank, from which all ranks learn what it costs. All methods are collective."""

    def __init__(self, comm, parameters):
        self.comm, self.grid = comm, ProcessGrid(MPI.COMM_SELF)
        self.workers = Workers(comm.Dup(), MPI.COMM_SELF, Tally())
        self.protocol = made_up_server(self.workers, self.grid, parameters, slow_optimizer)

    def idle(self, seconds):
        """The share of a core that each rank takes while it waits for messages that do not come: a list."""
        self.comm.Barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        end = wall + seconds
        self.workers.wait_until(lambda: time.perf_counter() > end)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        return self.comm.allgather(share)

    def costs(self, idle, seconds):
        """(R, tau, seconds for which the worker's processor is busy with an update). idle: see `measure`."""
        (_, served), (times, taken) = self._together(1, lambda: None, seconds)[:2]
        alone = (times[-1] - times[0]) / (len(times) - 1)
        busy = [(share - idle) / (1 - idle) * alone for share in (served, taken)]  # as share = busy + idle (1 - busy)
        return alone, *busy

    def turn(self, workers, compute, seconds):
        """(updates a second, share of a core that the server takes), measured with workers that compute for T seconds."""
        (_, served), *others = self._together(workers, partial(time.sleep, compute), seconds)
        return rate(times for times, _ in others[:workers]), served

    def _together(self, workers, compute, seconds):
        """Let so many workers take updates: [(the times of its updates, the share of a core that it takes) of each rank].

        The ranks that are neither the server nor a worker sleep.
        """
        comm, found = self.comm, []
        comm.Barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        if comm.rank == 0:
            self.workers.wait_until(comm.Ibarrier().Test)
        elif comm.rank <= workers:
            found = updates(self.protocol, compute, seconds)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        if comm.rank:
            meet(comm)
        return comm.allgather((found, share))

    def free(self):
        """End the training: RuntimeError if an update was lost."""
        self.protocol.finish()
        self.workers.comm.Free()
        self.grid.free()


def measure(comm, parameters, ratio, rounds, seconds):
    """What the results have of the limit, a dict on the first rank, None elsewhere. Collective.

    parameters: how many are served. ratio: T / tau. rounds: in each of which every number of workers has its turn. seconds: of
    a turn.
    """
    server, counts = Server(comm, parameters), range(1, comm.size)
    server.costs(0.0, seconds)  # warms up
    idle = server.idle(seconds)
    costs = [server.costs(idle[0], seconds)]
    compute, turns = ratio * costs[0][1], {workers: [] for workers in counts}
    for _ in progress(range(rounds), "rounds", comm.rank == 0):
        costs.append(server.costs(idle[0], seconds))
        for workers in counts:
            turns[workers].append(server.turn(workers, compute, seconds))
    server.free()
    if comm.rank:
        return None
    alone, tau, own = (median(values) for values in zip(*costs))
    rows = []
    for workers, found in turns.items():
        rates, shares = zip(*found)
        rows.append({
            "workers": workers, "measured": median(rates), "least": min(rates), "most": max(rates), "rounds": rates,
            "server": median(shares), "simulated": simulated(workers, compute, alone, tau, seconds),
            "predicted": predicted(workers, compute, alone, tau),
        })  # fmt: skip
    return {"parameters": parameters, "compute": compute, "alone": alone, "tau": tau, "own": own, "costs": costs,
            "idle": idle, "rows": rows}  # fmt: skip
