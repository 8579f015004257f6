"""What is sent where a network gets other shares while it is trained; that it trains on is in tests/random_networks."""

import numpy as np

from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate
from tests.mpi import mpi
from tests.parallel.equality import on_cpus


@mpi(3)
def test_what_is_moved_is_what_ranks_lack(comm):
    make = lambda: Sequential([Linear(5, 12), Tanh(), Linear(12, 3)], seed=1, dtype=np.float64)  # noqa: E731
    with ProcessGrid(comm, model=3) as grid:
        net = parallelize(make(), grid, "out,in", shares={"model": (1, 1, 1)})
        optimizer = SGD(net, lr=0.1, momentum=0.9)
        before = net.state_dict(everywhere=True)
        grid.tally.clear()
        relocate(net, optimizer, place(make(), grid, "out,in", {"model": (2, 1, 0)}))
        sent = comm.allreduce(sum(r.bytes for (layer, _), r in grid.tally.records.items() if layer == "relocation"))
        # Neurons 4 to 7 were on rank 1 and 8 to 11 on rank 2; rank 0 needs 4 to 7 and rank 1 needs 8 to 11. Each neuron has 5
        # weights and a bias in front of it and 3 weights behind it; they and their velocity are moved.
        assert sent == 2 * 8 * 8 * (5 + 1 + 3)
        after = net.state_dict(everywhere=True)
        assert all(np.array_equal(after[name], value) for name, value in before.items())


@mpi(4)
def test_the_state_of_an_optimizer_moves_where_each_node_has_a_copy(comm, monkeypatch):
    """Two nodes of two ranks; in shared memory the ranks of each node divide the same velocity among them."""
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "2")
    make = lambda: Sequential([Linear(5, 12), Tanh(), Linear(12, 3)], seed=1, dtype=np.float64)  # noqa: E731
    x, y = np.random.default_rng(0).standard_normal((2, 7, 5)), np.random.default_rng(1).standard_normal((2, 7, 3))
    for reduction in ("plain", "shared") if on_cpus(comm) else ("plain",):
        net, steps = make(), []
        optimizer = SGD(net, lr=0.1, momentum=0.9)
        expected = [net.learn(*batch, MSE(), optimizer) for batch in zip(x, y, strict=True)]
        with ProcessGrid(comm, batch=2, model=2) as grid:
            parallel = parallelize(make(), grid, "out,in", shares={"model": (1, 1)}, reduction=reduction)
            optimizer = SGD(parallel, lr=0.1, momentum=0.9)
            for batch in zip(x, y, strict=True):
                steps.append(parallel.learn(*batch, MSE(), optimizer))
                relocate(parallel, optimizer, place(make(), grid, "out,in", {"model": (2, 1)}))
            after = parallel.state_dict(everywhere=True)
        assert np.allclose(steps, expected, rtol=1e-12, atol=0), reduction
        assert all(np.allclose(after[name], value, rtol=1e-12, atol=1e-14) for name, value in net.state_dict().items()), (
            reduction
        )
