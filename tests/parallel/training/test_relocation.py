"""A network that gets other shares while it is trained goes on as the serial network does, whatever it is made of."""

import numpy as np

from nn import LOSSES, SGD, Linear, Sequential, Tanh
from nn.device import to_host
from nn.observer import Observer
from parallel import Partition, ProcessGrid, parallelize
from parallel.placement.partition import size
from parallel.placement.place_network import place
from parallel.placement.plans import weighted
from parallel.training.relocation import relocate
from parallel.training.steps import accumulated_step
from tests.mpi import mpi
from tests.parallel.equality import assert_same, block, micro_batches_of, on_cpus, on_first, serial
from tests.parallel.training.test_random_cases import Case, shares_of

CASES = 84


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_random_cases_that_are_moved_after_every_step_equal_serial(comm, monkeypatch):
    for seed in range(comm.size - 2, CASES, 7):
        case = Case(seed, comm.size, on_cpus(comm))
        rng = np.random.default_rng([seed, 17])
        batches = case.batches()
        training = case.optimizer, "cross-entropy", batches, case.micro_batches
        expected = on_first(comm, serial, case.network(), *training)
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(case.ranks_per_node))
        with ProcessGrid(comm, **case.sizes) as grid:
            net = parallelize(case.network(), grid, case.plan, **case.options)
            optimizer, losses = case.optimizer(net), []
            for x, y in batches:
                mine = [(*block(net, x[p], y[p]), size(p)) for p in micro_batches_of(len(x), case.micro_batches)]
                losses.append(accumulated_step(net, LOSSES["cross-entropy"](), optimizer, mine, len(x)))
                shares = {axis: shares_of(rng, n) for axis, n in case.sizes.items()}
                model = case.sizes["model"]
                owners = {
                    layer.name: Partition.owned(rng.integers(0, model, layer.outputs), model)
                    for layer in weighted(net) if rng.random() < 0.5
                }  # fmt: skip
                relocate(net, optimizer, place(case.network(), grid, case.plan, shares, owners))
            found = losses, net.state_dict(everywhere=True)
        assert_same(found, expected, 1e-10, case.words)


class Copy(Observer):
    """Keeps a copy of the parameters where the network goes."""

    def __init__(self, net):
        self.kept = net.params.copy()

    def relocated(self, relocation):
        self.kept = relocation.flat(self.kept)


@mpi(3)
def test_what_is_moved_is_what_ranks_lack_and_observers_move_their_own(comm):
    make = lambda: Sequential([Linear(5, 12), Tanh(), Linear(12, 3)], seed=1, dtype=np.float64)  # noqa: E731
    with ProcessGrid(comm, model=3) as grid:
        net = parallelize(make(), grid, "out,in", shares={"model": (1, 1, 1)})
        optimizer = SGD(net, lr=0.1, momentum=0.9)
        copy, before = Copy(net), net.state_dict(everywhere=True)
        net.observe(copy)
        grid.tally.clear()
        relocate(net, optimizer, place(make(), grid, "out,in", {"model": (2, 1, 0)}))
        sent = comm.allreduce(sum(r.bytes for (layer, _), r in grid.tally.records.items() if layer == "relocation"))
        # Neurons 4 to 7 were on rank 1 and 8 to 11 on rank 2; rank 0 needs 4 to 7 and rank 1 needs 8 to 11. Each neuron has 5
        # weights and a bias in front of it and 3 weights behind it; they, their velocity and the copy are moved.
        assert sent == 3 * 8 * 8 * (5 + 1 + 3)
        assert np.array_equal(to_host(copy.kept), to_host(net.params))
        after = net.state_dict(everywhere=True)
        assert all(np.array_equal(after[name], value) for name, value in before.items())
        grid.tally.clear()
        relocate(net, optimizer, place(make(), grid, "out,in", {"model": (2, 1, 0)}))
        assert not grid.tally.records, "nothing is sent where the shares stay"
