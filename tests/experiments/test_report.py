"""How the time of a step and what was sent are put together from what each rank measured."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.experiments.common import report
from gridgrad.nn import Linear, Sequential, Tanh
from gridgrad.parallel import ProcessGrid, distribute
from tests.mpi import mpi
from tests.parallel.checkpoint.training import images
from tests.parallel.equality import grids
from tests.parallel.placement.test_hypergraph import branching, net_of, random_owners


class GatheredGrid:
    """A grid whose ranks have measured these: a list of {(layer, kind): (calls, bytes, seconds)} for each rank."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.tally = SimpleNamespace(records={})

    def gather(self, mine):
        _, seconds, read, peak = mine
        return [(records, seconds, read, peak) for records in self.ranks]


def test_the_seconds_of_collectives_add_up_to_communicating_where_only_some_ranks_take_part():
    loss, sums, sent = ("loss", "all-reduce"), ("gradients", "all-reduce"), ("1", "send")
    ranks = [
        {loss: (2, 16, 0.2), sums: (2, 100, 0.6), sent: (2, 50, 0.4)},
        {loss: (2, 16, 0.4), sums: (2, 100, 0.8)},
        {loss: (2, 16, 0.6)},
        {loss: (2, 16, 0.2)},
    ]
    found = report.time_and_bytes(GatheredGrid(ranks), [2.0, 2.0], 0.0)
    seconds = {(row["layer"], row["kind"]): row["seconds"] for row in found["communication"]}
    assert seconds == pytest.approx({loss: 0.1, sums: 0.3 / 2, sent: 0.2 / 4})  # of a step, mean over 4 ranks
    assert sum(seconds.values()) == pytest.approx(found["time"]["communicate"])
    whole = sum(value[2] for rank in ranks for value in rank.values()) / 4 / 2
    assert found["time"]["wait"] == pytest.approx(whole - found["time"]["communicate"])
    assert found["time"]["compute"] == pytest.approx(2 - whole)


@pytest.mark.parametrize(("ranks", "expected"), [
    ([([1.0, 2.0, 6.0], [0.1, 0.2, 0.1]), ([1.0, 4.0, 2.0], [0.1, 0.1, 0.3])], (0.1, 20.0)),  # 10, 20 and 20 products
    ([([3.0], [0.5])], (0.5, 6.0)),
    ([([], []), ([], [])], None),
    ([([1.0, 2.0], [0.1, 0.1]), ([1.0], [0.1])], None),  # workers that take turns of their own
])  # fmt: skip
def test_steps_are_told_in_products_of_the_slowest_core(ranks, expected):
    grid = SimpleNamespace(gather=lambda mine: ranks)
    names = "reference_seconds", "reference_products_per_step"
    assert report.core_speed(grid, *ranks[0]) == (expected and pytest.approx(dict(zip(names, expected, strict=True))))
    assert report.core_speed(SimpleNamespace(gather=lambda mine: None), *ranks[0]) is None, "on the other ranks"


def digest_of(arrays):
    """What `report.digest` should find: of (name, array) pairs, of which those without an array are left out."""
    sha = hashlib.sha256()
    for name, value in arrays:
        if value is not None:
            sha.update(f"{name} {value.shape} {value.dtype}".encode() + value.tobytes())
    return sha.hexdigest()


@mpi(1, 2, 3, 4, long=(3,))
def test_a_network_is_hashed_by_rows_as_if_it_were_gathered(comm, monkeypatch):
    monkeypatch.setattr(report, "ROWS", 80)
    rows = Sequential([Linear(6, 11), Tanh(), Linear(11, 3)], 1, np.float64, (6,))
    made = [(serial, sizes, {}) for serial in (images(), rows) for sizes in grids(comm.size)]
    made += [(rows, {"stage": comm.size}, {})] if comm.size == 2 else []
    for fine in (0.0, 0.5, 1.0):
        owners = random_owners(branching, comm.size, 1, fine)
        made.append((net_of(branching), {"model": comm.size}, {"plan": "hypergraph", "owners": owners}))
    for serial, sizes, options in made:
        with ProcessGrid(comm, **sizes) as grid:
            net, gathered = distribute(serial, grid, **options), []
            net.allocate()
            expected, gather = digest_of(net.global_parameters()), net.global_value
            monkeypatch.setattr(net, "global_value", lambda p: gathered.append((p, gather(p))) or gathered[-1][1])  # noqa: B023
            assert report.digest(net) == expected
            for p, value in gathered:
                stored = [q for _, q in net.parameters + net.buffers if q is p and q.stored_shape != q.shape]
                assert value is None or stored or value.nbytes <= 80 or 1 in p.shape, p.shape  # or one row
            monkeypatch.undo()
            monkeypatch.setattr(report, "ROWS", 80)
    assert report.digest(rows) == digest_of(rows.global_parameters())
