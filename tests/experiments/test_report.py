"""How the time of a step and what was sent are put together from what ranks measured; the digest of a network."""

import hashlib
from types import SimpleNamespace

import pytest

from gridgrad.experiments.common import report
from tests.mpi import mpi
from tests.parallel.equality import grids
from tests.random_networks.case import Case
from tests.random_networks.checks import grid_of, placed


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


def digest_of(arrays):
    """What `report.digest` should find: of (name, array) pairs, of which those without an array are left out."""
    sha = hashlib.sha256()
    for name, value in arrays:
        if value is not None:
            sha.update(f"{name} {value.shape} {value.dtype}".encode() + value.tobytes())
    return sha.hexdigest()


LAYERS = [("Linear", 11), ("Tanh",), ("Residual", [], [("Linear", 11)]), ("Linear", 3)]


@mpi(1, 2, 3)
def test_a_network_is_hashed_by_rows_as_if_it_were_gathered(comm, monkeypatch):
    """At no time a rank has gathered more than a few rows, or what is stored in another shape."""
    images = [("Conv2d", 5, 3), ("BatchNorm",), ("Tanh",), ("Linear", 7)]
    cases = [Case(*one, sizes) for one in ((LAYERS, (6,)), (images, (6, 4, 2))) for sizes in grids(comm.size)]
    cases += [Case(LAYERS, (6,), {"model": comm.size}, "hypergraph", owners=owners) for owners in ("coarse", "fine")]
    for case in cases:
        with grid_of(case, comm) as grid, monkeypatch.context() as patch:
            net, gathered = placed(case, grid), []
            expected, gather = digest_of(net.global_parameters()), net.global_value
            patch.setattr(report, "ROWS", 80)
            patch.setattr(net, "global_value", lambda p: gathered.append((p, gather(p))) or gathered[-1][1])  # noqa: B023
            assert report.digest(net) == expected
            for p, value in gathered:
                stored = [q for _, q in net.parameters + net.buffers if q is p and q.stored_shape != q.shape]
                assert value is None or stored or value.nbytes <= 80 or 1 in p.shape, p.shape  # or one row
    serial = cases[0].network()
    assert report.digest(serial) == digest_of(serial.global_parameters())
