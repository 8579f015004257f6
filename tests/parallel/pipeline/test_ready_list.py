"""Schedules from a list of what is ready: their order, the age of their gradients, and that nothing of the past is kept."""

import random
import tracemalloc
from itertools import islice

import pytest

from gridgrad.parallel.pipeline.generators import (
    asynchronous,
    complete,
    gpipe_anywhere,
    one_f_one_b_anywhere,
    sequential,
    stream,
)
from gridgrad.parallel.pipeline.schedule import Route, update
from gridgrad.parallel.pipeline.simulate import TableTimes, UnitTimes, simulate
from tests.parallel.pipeline.brute_force import ends


def some_parts(ranks, chunks, seed):
    """A Route with parts of every chunk on every rank, and random messages."""
    draw = random.Random(seed)
    senders = [
        {r: [s for s in range(ranks) if s != r and draw.random() < 0.5] for r in range(ranks)} for _ in range(chunks - 1)
    ]
    return Route.everywhere(ranks, [{}, *senders])


def some_times(route, seed):
    draw = random.Random(seed)
    return TableTimes(
        {
            (rank, op, chunk): draw.choice([0, 1, 2, 5])
            for rank in range(route.ranks)
            for op in "FB"
            for chunk in route.held(rank)
        }
    )


ROUTES = [
    *(Route.contiguous(p) for p in range(1, 6)),
    Route.looped(3, 2),
    Route.v_shaped(3),
    *(some_parts(p, c, p) for p in (1, 2, 3, 5) for c in (1, 2, 4)),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("in_flight, bound", [(1, None), (2, None), (3, None), (8, None), (4, 0), (4, 2), (2, 5)])
def test_any_route_is_sound_with_fresh_gradients_and_updates_after_each(route, in_flight, bound):
    for times in (None, some_times(route, in_flight)):
        for micro_batches in (1, 2, 7):
            schedule = asynchronous(route, in_flight, micro_batches, bound, times)
            found = simulate(complete(schedule), times)
            if all(len(ranks) == 1 for ranks in route.places):
                assert ends(complete(schedule))
            for row in schedule.rows:
                assert [one for one in row if one.op == "U"] == [update(b) for b in range(micro_batches)]
            limit = in_flight if bound is None else min(in_flight, bound + 1)
            assert max(found.staleness.values()) <= limit - 1
            assert len(found.staleness) == sum(map(len, route.places)) * micro_batches


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_the_gradients_are_as_old_as_they_may_be(in_flight):
    found = simulate(complete(asynchronous(Route.contiguous(4), in_flight, 30)))
    assert max(found.staleness.values()) == in_flight - 1
    assert found.staleness[3, 3, 20] == 0  # the last rank goes back at once


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_without_staleness_it_is_sequential(stages):
    expected = sequential(stages, 5).rows
    for in_flight, bound in ((1, None), (6, 0)):
        rows = asynchronous(Route.contiguous(stages), in_flight, 5, bound).rows
        assert tuple(tuple(one for one in row if one.op != "U") for row in rows) == expected
        assert simulate(complete(asynchronous(Route.contiguous(stages), in_flight, 5, bound))).makespan == 3 * 5 * stages


@pytest.mark.parametrize("route", [Route.contiguous(4), Route.v_shaped(3), Route.looped(2, 3)])
@pytest.mark.parametrize("in_flight", [2, 3, 5])
def test_backward_first_then_the_oldest_and_no_rank_waits_for_nothing(route, in_flight):
    for seed in range(5):
        times = some_times(route, seed)
        times = TableTimes({key: value + 1 for key, value in times.table.items()})  # so that no two things are at one time
        found = simulate(complete(asynchronous(route, in_flight, 12, times=times)), times)
        stop = {(rank, one): end for rank, row in enumerate(found.events) for one, _, end in row}
        where = {chunk: rank for chunk, (rank,) in enumerate(route.places)}

        def ready(one, where=where, stop=stop):
            """The time at which an F or a B could begin, apart from that its rank does other things."""
            rank, b, needs = where[one.chunk], one.micro_batch, []
            if one.op == "B":
                needs.append((rank, one._replace(op="F")))
            other = one.chunk + (1 if one.op == "B" else -1)
            if other in where:
                needs.append((where[other], one._replace(chunk=other)))
            if one.op == "F" and one.chunk == route.held(rank)[0] and b >= in_flight:
                needs.append((rank, update(b - in_flight)))
            return max((stop[need] for need in needs), default=0)

        for row in found.events:
            computed = [event for event in row if event.instruction.op in "FB"]
            free = 0
            for place, (one, start, end) in enumerate(computed):
                assert start == max(free, ready(one))
                for later, _, _ in computed[place + 1 :]:
                    if ready(later) < start:
                        assert start == free and (one.op, one.micro_batch) <= (later.op, later.micro_batch)  # B before F
                free = end


@pytest.mark.parametrize("in_flight, low, high", [(1, 0.25, 0.25), (2, 0.43, 0.5), (4, 0.62, 1), (8, 0.8, 1)])
def test_the_use_of_four_ranks(in_flight, low, high):
    equal, unequal = (1, 1, 1, 1), (1.25, 0.75, 1.25, 0.75)
    use = []
    for work in (equal, unequal):
        times = TableTimes({(rank, op, rank): work[rank] * (1 + (op == "B")) for rank in range(4) for op in "FB"})
        found = simulate(complete(asynchronous(Route.contiguous(4), in_flight, 400, times=times)), times)
        use.append(found.use)
    assert use[0] == pytest.approx(high, abs=0.02)
    assert low - 0.02 < use[1] < high + 0.02


@pytest.mark.parametrize("route", [some_parts(3, 3, 0), Route.contiguous(3), Route.looped(2, 2)])
def test_synchronous_schedules_of_any_route(route):
    for micro_batches in (1, 3, 6):
        all_first = complete(gpipe_anywhere(route, micro_batches))
        in_turn = complete(one_f_one_b_anywhere(route, micro_batches))
        assert all_first.synchronous and in_turn.synchronous
        for row in all_first.rows:
            ops = [one.op for one in row if one.op in "FB"]
            assert ops == sorted(ops, reverse=True)
        for rank, of in enumerate(simulate(in_turn).kept):
            assert max(of.of_chunk.values()) <= route.ranks, rank


def test_the_order_is_that_of_time():
    times, now = UnitTimes(forward=2, input=3, weight=2, update=1), {}
    route = Route.v_shaped(2)
    starts = {
        (rank, event.instruction): event.start
        for rank, row in enumerate(simulate(complete(asynchronous(route, 3, 20, times=times)), times).events)
        for event in row
    }
    now = [starts[one] for one in stream(route, 3, times=times, micro_batches=20)]
    assert now == sorted(now)


def test_messages_under_way_are_waited_for():
    slow = UnitTimes(latency=10)
    found = asynchronous(Route.contiguous(2), 3, 6, times=slow)
    assert [str(one) for one in found.rows[0][:4]] == ["0F0", "0F1", "0F2", "0B0"]
    assert simulate(complete(found), slow).events[1][0].start == 11


APART = Route.everywhere(3, [{}, {1: [2], 2: [1]}, {}])  # rank 0 needs nobody


@pytest.mark.parametrize("in_flight, bound", [(1, None), (3, None), (3, 0)])
@pytest.mark.parametrize("seconds", [(0, 1, 1), (0, 0, 0), (1e-9, 1, 1), (1, 0, 0)])
def test_no_rank_runs_away_from_the_others(seconds, in_flight, bound):
    """One without work would begin new micro-batches for ever while no time passes, and the others would do nothing."""
    times = TableTimes({(rank, op, chunk): seconds[rank] for rank in range(3) for op in "FB" for chunk in range(3)})
    newest, limit = [-1] * 3, in_flight if bound is None else bound + 1
    for rank, instruction in islice(stream(APART, in_flight, bound, times), 3 * 7 * 50):
        newest[rank] = max(newest[rank], instruction.micro_batch)
        assert newest[rank] <= min(newest) + limit
    assert min(newest) >= 40
    for micro_batches in (1, 7):
        found = simulate(complete(asynchronous(APART, in_flight, micro_batches, bound, times)), times)
        assert bool(found.use) == any(seconds)


def peak(count):
    """The bytes that are used at most while so many instructions are drawn."""
    tracemalloc.start()
    for _ in islice(stream(some_parts(3, 3, 1), 4), count):
        pass
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def test_the_stream_has_no_end_and_keeps_nothing_of_the_past():
    assert next(islice(stream(Route.contiguous(2), 2), 1000, None))
    assert peak(20000) < peak(2000) + 10 * 18000  # bytes: less than a reference for each of the others
