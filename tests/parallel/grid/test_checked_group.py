"""Groups that compare their collectives: right ones pass unchanged, and of wrong ones both sides are named."""

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.parallel.grid.checked_group import Call, CheckedGroup, compare_collectives, contradiction, make_group
from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.grid.tally import Tally
from gridgrad.parallel.job import run
from tests.mpi import mpi


def collectives(group):
    """Run each kind of collective with blocks of different sizes, and one that is empty; returns all that was received."""
    rank, size = group.rank, group.size
    counts = [(place + 1) % size + (place == 1) for place in range(size)]
    whole, own = np.arange(sum(counts), dtype=np.float64), counts[rank]
    start = sum(counts[:rank])
    found = [
        np.full(3, rank + 1.0),
        np.zeros_like(whole),
        np.zeros(own),
        np.zeros(own),
        np.zeros(own * size),
        np.full(2, float(rank)),
    ]
    reduced, gathered, scattered, dealt, turned, said = found
    group.all_reduce(reduced, "a")
    group.all_gather(whole[start : start + own] + 1, gathered, counts, "b")
    group.reduce_scatter(whole * rank, scattered, counts, "c")
    group.scatter(whole if rank == 0 else None, counts, dealt, "d")
    group.all_to_all(whole, counts, turned, [own] * size, "e")
    group.broadcast(said, "f")
    collected = np.zeros_like(whole) if rank == 0 else None
    group.gather(dealt, collected, counts, "g")
    in_place, started, summed = whole * (rank == 0), whole + rank, np.zeros(own)
    in_place[start : start + own] = rank
    group.all_gather_in_place(in_place, counts, "h")
    transfers = [group.start_reduce_scatter(started, counts, summed, "i")]
    begun = np.zeros_like(whole)
    begun[start : start + own] = rank
    transfers.append(group.start_all_gather_in_place(begun, counts, "j"))
    halo, to = np.zeros(2), [2 * (place == (rank + 1) % size != rank) for place in range(size)]
    origin = [2 * (place == (rank - 1) % size != rank) for place in range(size)]
    transfers.append(group.start_exchange(np.full(sum(to), float(rank)), to, halo[: sum(origin)], origin, "k"))
    outgoing = [np.full(place + rank, float(rank)) for place in range(size)]
    incoming = [np.zeros(place + rank) for place in range(size)]
    transfers.append(group.start_point_to_point(outgoing, incoming, "l", "hand out"))
    for transfer in reversed(transfers):
        transfer.test()
        transfer.wait()
        assert transfer.done and transfer.started <= transfer.stopped
    found += [in_place, started, summed, begun, halo, *incoming, np.array([group.sum(rank, "m")])]
    return found if collected is None else [*found, collected]


@mpi(1, 2, 3, 5)
def test_collectives_that_agree_are_the_same_as_unchecked(comm):
    results = []
    for kind in (Group, CheckedGroup):
        group = kind(comm.Dup(), Tally())
        results.append(
            (collectives(group), {entry: (r.calls, r.bytes, r.messages) for entry, r in group.tally.records.items()})
        )
        group.free()
    (plain, counted), (checked, counted_too) = results
    assert counted == counted_too
    assert all(np.array_equal(one, other) for one, other in zip(plain, checked, strict=True))


def shorter(group):
    group.all_reduce(np.zeros(3 + (group.rank == 1)), "x")


def another_kind(group):
    if group.rank == 1:
        group.broadcast(np.zeros(3), "x")
    else:
        group.all_reduce(np.zeros(3), "x")


def another_dtype(group):
    group.all_reduce(np.zeros(3, np.float32 if group.rank == 1 else np.float64), "x")


def another_layer(group):
    group.all_reduce(np.zeros(3), f"layer {group.rank == 1}")


def another_block(group):
    counts = [2] * group.size
    group.all_gather(np.zeros(2 + (group.rank == 1)), np.zeros(2 * group.size), counts, "x")


def expects_less(group):
    counts = [0] * group.size
    counts[1 - group.rank if group.rank < 2 else group.rank] = 4 * (group.rank < 2)
    received = [count - (group.rank == 1 and count > 0) for count in counts]
    group.all_to_all(np.zeros(sum(counts)), counts, np.zeros(sum(received)), received, "x")


def another_place(group):
    if group.rank == 1:
        group.all_reduce(np.zeros(3), "x")
    else:
        elsewhere(group)


def elsewhere(group):
    group.all_reduce(np.zeros(3), "x")


@mpi(2, 3)
def test_both_sides_of_a_contradiction_are_named_on_all_ranks(comm, monkeypatch):
    monkeypatch.setattr(run, "GRACE", 0.0)
    for wrong, sides in (
        (shorter, ("all-reduce (number", "3 float64", "4 float64")),
        (another_kind, ("all-reduce (number", "broadcast (number")),
        (another_dtype, ("3 float64", "3 float32")),
        (another_layer, ("'layer False'", "'layer True'")),
        (another_block, ("all-gather", "from each 2 2")),
        (expects_less, ("all-to-all", "to each rank 0 4", "from each 3 0")),
        (another_place, ("test_checked_group.py, elsewhere, line ", "test_checked_group.py, another_place, line ")),
    ):
        group = CheckedGroup(comm.Dup(), Tally())
        with pytest.raises(run.Fault) as caught:
            wrong(group)
        message = str(caught.value)
        assert comm.allgather(message) == [message] * comm.size and "\n" not in message
        assert "rank 0: " in message and "rank 1: " in message and "rank 2: " not in message
        assert all(side in message for side in sides), message
        group.free()


@mpi(2)
def test_a_skipped_collective_is_seen_in_another_group_of_the_same_ranks(comm, monkeypatch):
    monkeypatch.setattr(run, "GRACE", 0.0)
    one, other = CheckedGroup(comm.Dup(), Tally()), CheckedGroup(comm.Dup(), Tally())
    if comm.rank == 0:
        pending = one.start_all_reduce(np.zeros(1), "x")
    with pytest.raises(run.Fault, match=r"rank 0: all-reduce \(number (\d+)\) of 'y'.*; rank 1: all-reduce \(number (?!\1\))"):
        other.all_reduce(np.zeros(2), "y")
    if comm.rank == 1:
        pending = one.start_all_reduce(np.zeros(1), "x")
    pending.transfer.wait()
    pending.comparison.request.Wait()
    one.free(), other.free()


@mpi(2)
def test_grids_have_such_groups_where_they_are_asked_for(comm):
    try:
        compare_collectives()
        with ProcessGrid(comm, batch=2) as grid:
            assert isinstance(grid.world, CheckedGroup) and isinstance(grid.node, CheckedGroup)
    finally:
        compare_collectives(False)
    with ProcessGrid(comm, batch=2) as grid:
        assert type(grid.world) is Group
    alone = make_group(MPI.COMM_SELF, Tally())
    assert alone.ranks == (comm.rank,)


def test_what_contradicts_what():
    call = ["all-reduce", "x", "float32", 4, [], [], 1, "f.py, g"]
    right = [Call(*call, line) for line in (5, 5, 9)]
    assert contradiction(right) is None
    for at, value in ((0, "broadcast"), (1, "y"), (2, "float64"), (3, 5), (6, 2), (7, "f.py, h")):
        wrong = Call(*call[:at], value, *call[at + 1 :], 5)
        assert contradiction([*right, wrong]) == (0, 3)
    blocks = [Call("all-to-all", "x", "float32", None, sends, expects, 1, "f.py, g", 5)
              for sends, expects in (([0, 2], [0, 3]), ([3, 0], [1, 0]))]  # fmt: skip
    assert contradiction(blocks) == (0, 1)
    assert str(blocks[0]) == "all-to-all (number 1) of 'x', 2 (to each rank 0 2; from each 0 3) float32, in f.py, g, line 5"
