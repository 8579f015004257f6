"""Asynchronous pipelines in all orders in which messages leave, arrive and are noticed to have left.

What a rank computes next is fixed by the schedule, and a message is taken by its tag. So no order may change anything, and all
results are those of a serial network that is given the weights that the schedule says, in forward and in backward.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice

import numpy as np

from gridgrad.nn import LOSSES
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.pipeline.schedule_names import parse
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.training.distribute import distribute
from tests.orders.machine import Violation
from tests.orders.mpi import World
from tests.parallel.pipelines import minibatches, mlp, momentum, serial_net
from tests.parallel.training.test_asynchronous import emulated


@dataclass
class Pipelines:
    """An asynchronous pipeline. text: the schedule. size: ranks. updates: steps, after which it is drained.
    is_eager: see World. is_partition: whether parts of each layer are on all ranks, as in a hypergraph partition."""

    text: str
    size: int
    updates: int = 3
    is_eager: bool = False
    is_partition: bool = False
    expected: tuple | None = field(default=None, init=False, repr=False)

    @cached_property
    def batches(self):
        return minibatches(mlp, tuple(islice(cycle((2, 2, 2, 3)), self.updates)))

    @cached_property
    def world(self):
        return World(self.size, self.is_eager)

    @cached_property
    def nets(self):
        """{rank: its network}, used again in each execution, with the parameters with which it was made."""
        return {}

    def execute(self, machine):
        """An execution; returns the losses and parameters to which it leads. Raises Violation."""
        self.machine, self.found = machine, {}
        self.world.begin(machine)
        for rank in range(self.size):
            machine.add(rank, lambda rank=rank: self.work(rank))
        try:
            machine.run()
            return self.judge()
        except BaseException:  # the networks may have been left in the middle of something
            del self.world, self.nets
            raise

    def net(self, rank):
        """The network of a rank as it was when it was made. Collective the first time."""
        if rank not in self.nets:
            net = made(self.world.comm(rank), self.text, self.size, self.is_partition)
            self.nets[rank] = net, net.params.copy()
            for comm in {group.comm for group in (net.grid.world, net.grid.group(net.stage_map.axis))}:
                comm.name = *comm.name, "training"  # where collectives are counted anew, as in each later execution
        net, params = self.nets[rank]
        net.params[...], net.step, net._trainer = params, 0, None
        net.grid.group(net.stage_map.axis).comm.sent.clear()
        vars(net).pop("executor", None)
        net._set_observers(())
        return net

    def work(self, rank):
        """What a rank does."""
        net = self.net(rank)
        trainer, losses = net.trainer(LOSSES["cross-entropy"](), momentum(net)), []
        self.machine.start(rank)
        for x, y in self.batches:
            losses += trainer.step([net.blocks(x, y)], len(x))
        losses += trainer.flush()
        net.executor.messages.group.comm.check_left()
        self.found[rank] = losses, net, trainer

    def words(self, event):
        """What an event was, in lines for people."""
        return [f"it sends a message to rank {key[2]}" for key, _ in event.effects if not isinstance(key, str)]

    def judge(self):
        """What the execution leads to. Raises Violation if that is not what the schedule says."""
        if left := [key for key, messages in self.world.mail.items() if messages]:
            raise Violation(f"a message of rank {left[0][1]} to rank {left[0][2]} is left behind")
        bound, losses = parse(self.text).bound, self.found[0][0]
        for rank, (own, net, trainer) in self.found.items():
            worst = max(trainer.staleness, default=0)
            if worst > min(net.named.in_flight - 1, net.named.in_flight if bound is None else bound):
                raise Violation(f"rank {rank}: {worst} updates come between a forward pass and its backward pass")
            if own != losses:
                raise Violation(f"ranks 0 and {rank} have other losses: {losses} and {own}")
        params = {
            (rank, f"{layer.name}.{p.name}"): p.value.copy()
            for rank, (_, net, _) in sorted(self.found.items()) for layer, p in net.parameters if p.size
        }  # fmt: skip
        if not self.is_partition:
            self.compare(losses, params)
        return tuple(np.round(losses, 12)), tuple(tuple(np.round(one, 12).reshape(-1)) for one in params.values())

    def compare(self, losses, params):
        """Violation if losses and parameters are not those of a serial network with the weights that the schedule says."""
        if self.expected is None:
            named, stage_of = parse(self.text), {name: rank for rank, name in params}
            arguments = self.batches, (self.updates,), named.in_flight, named.bound, named.stash
            self.expected = emulated(mlp, stage_of, *arguments)[:2]
        if not np.allclose(losses, self.expected[0], rtol=1e-9, atol=0):
            raise Violation(f"the losses are {losses}, not {self.expected[0]}")
        whole = {name: value.T if value.ndim == 2 else value for (_, name), value in params.items()}
        if wrong := [name for name, value in self.expected[1].items() if not np.allclose(whole[name], value, 1e-9, 1e-12)]:
            raise Violation(f"the parameters {wrong[0]} are not what the schedule says")


def made(comm, text, size, is_partition):
    """The network of a rank. Collective."""
    if is_partition:
        owners = {layer.name: np.arange(layer.outputs) % size for layer in serial_net(mlp).leaves() if layer.kind}
        grid, options = ProcessGrid(comm, model=size), {"plan": "hypergraph", "owners": Owners(size, owners)}
    else:
        grid, options = ProcessGrid(comm, stage=size), {}
    net = distribute(serial_net(mlp), grid, pipeline=text, **options)
    net.allocate()
    return net
