"""The critical path of a step: in tiny cases as calculated by hand, and as `Cost` says where all ranks do the same."""

import pytest

from nn import Linear, LocalResponseNorm, ReLU, Sequential
from parallel.grid.grid_description import GridDescription, GroupDescription
from parallel.performance.cost import Cost, busiest
from parallel.performance.critical_path import AHEAD, played, step_time
from parallel.performance.machine import Machine, names, read
from parallel.performance.workload import Work
from tests.parallel.performance.test_cost import dense, images

LATENCY, BYTE = 10.0, 0.001  # seconds of any message and collective, and of each byte that is sent


def machine(**core):
    """One second an operation, counted as its flops, and the network above."""
    link = {"alpha": LATENCY, "beta": BYTE}
    core = {"flops": 1.0, "bandwidth": 1e30, "call": 1e-12} | core
    return Machine("simple", "-", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1e9}, {"node": link, "network": link})


class Ranks:
    """Makes the Costs of ranks from scripts: what a rank computes, with whom it exchanges how many bytes, and all-reduces."""

    def __init__(self, *scripts, machine=machine()):
        self.costs = [Scripted(rank, script, len(scripts), machine) for rank, script in enumerate(scripts)]

    def play(self):
        return played(self.costs)


class Scripted:
    """What the simulation asks of a Cost. script: seconds of operations, {rank: bytes} of exchanges, and the text "sum"."""

    itemsize = 4

    def __init__(self, rank, script, ranks, machine):
        self.machine, self.grid = machine, GridDescription({"model": ranks}, {"model": rank}, 1)
        self.executed = [self.work(item) for item in script]
        self.bytes_sent = sum(sum(item.values()) for item in script if isinstance(item, dict))

    def work(self, item):
        group = self.grid.group("model")
        if isinstance(item, dict):
            return Exchanged("layer", "forward", "exchange", nbytes=sum(item.values()), group=group, step=item)
        if item == "sum":
            return Work("layer", "forward", "all-reduce", group=group)
        return Work("layer", "forward", "relu", (1,), flops=item)

    def seconds_of(self, work):
        return work.seconds(self.machine, self.grid.size)


class Exchanged(Work):
    """An exchange whose `step` is {rank: bytes}; an empty one is still an exchange."""

    def messages(self, itemsize=4):
        return dict(self.step)


def times(found, kind):
    return [pytest.approx(getattr(rank, kind)) for rank in found.ranks]
