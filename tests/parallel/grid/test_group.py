"""Each collective of a group brings what NumPy says, for blocks of different sizes and empty ones."""

import numpy as np

from gridgrad.parallel.grid.group import Group, Tally
from tests.mpi import mpi


@mpi(1, 2, 3, 5)
def test_every_collective_equals_numpy_and_is_counted(comm):
    group, rank, size = Group(comm.Dup(), Tally()), comm.rank, comm.size
    counts = [(place + 1) % size + (place == 1) for place in range(size)]
    stops = np.cumsum(counts)
    blocks = [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
    mine = blocks[rank]
    of = [np.random.default_rng(place).standard_normal(sum(counts)) for place in range(size)]  # what each rank has
    whole, total = of[rank], sum(of)
    gathered = np.concatenate([one[block] for one, block in zip(of, blocks, strict=True)])

    def empty(count):
        return np.full(count, np.nan)

    def by(name, *arguments):
        """Run it, blocking or, for those that begin, until it is complete."""
        transfer = getattr(group, name)(*arguments, name)
        if transfer is not None:
            transfer.test()
            transfer.wait()
            assert transfer.done and (size == 1 or transfer.started <= transfer.stopped)

    for name in ("all_reduce", "start_all_reduce"):
        summed = whole.copy()
        by(name, summed)
        np.testing.assert_allclose(summed, total, rtol=1e-13)
    for name, arrays in (("all_gather", 2), ("start_all_gather_in_place", 1)):
        out = empty(sum(counts))
        out[mine] = whole[mine]
        by(name, *[out] * arrays, counts)
        np.testing.assert_array_equal(out, gathered)
    out = empty(counts[rank])
    by("reduce_scatter", whole.copy(), out, counts)
    np.testing.assert_allclose(out, total[mine], rtol=1e-13)
    out = whole.copy()
    by("start_reduce_scatter", out, counts, empty(counts[rank]))
    np.testing.assert_allclose(out[mine], total[mine], rtol=1e-13)
    out = empty(counts[rank] * size)
    by("all_to_all", whole, counts, out, [counts[rank]] * size)
    np.testing.assert_array_equal(out, np.concatenate([one[mine] for one in of]))
    out = of[rank].copy()
    by("broadcast", out)
    np.testing.assert_array_equal(out, of[0])
    out = empty(counts[rank])
    by("scatter", whole if rank == 0 else None, counts, out)
    np.testing.assert_array_equal(out, of[0][mine])
    out = empty(sum(counts)) if rank == 0 else None
    by("gather", whole[mine], out, counts)
    assert out is None or np.array_equal(out, gathered)
    after, before = (rank + 1) % size, (rank - 1) % size
    to, origin = ([2 * (place == other != rank) for place in range(size)] for other in (after, before))
    out = empty(sum(origin))
    by("start_exchange", np.full(sum(to), float(rank)), to, out, origin)
    assert (out == before).all()
    incoming = [empty(place + rank) for place in range(size)]
    by("start_point_to_point", [np.full(place + rank, float(rank)) for place in range(size)], incoming, "hand out")
    assert all((one == place).all() for place, one in enumerate(incoming) if place != rank)
    sent = {layer: record.bytes for (layer, _), record in group.tally.records.items()}
    assert sent.get("all_gather", 0) == 8 * counts[rank] * (size - 1)
    assert sent.get("start_exchange", 0) == 8 * sum(to)
    group.comm.Free()
