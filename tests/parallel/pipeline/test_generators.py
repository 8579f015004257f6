"""The known schedules and those from a list of what is ready: sound for any sizes, with the times, the memory and the age of
gradients that their authors say. Forward, input's gradient and weights' gradient take one unit of time each."""

import random

import pytest

from gridgrad.parallel.pipeline import generators
from gridgrad.parallel.pipeline.generators import asynchronous, complete, gpipe, one_f_one_b, sequential, zb_h1, zbv
from gridgrad.parallel.pipeline.schedule import Instruction, Route, update
from gridgrad.parallel.pipeline.simulate import TableTimes, UnitTimes, draw, simulate


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_known_schedules_do_everything_once_in_the_published_time_and_memory(stages):
    p = stages
    for m in range(1, 2 * p + 2):
        made = {make: make(p, m) for make in (sequential, gpipe, one_f_one_b, zb_h1, zbv)}
        found = {make: simulate(complete(schedule)) for make, schedule in made.items()}
        interleaved = {per_rank: generators.interleaved(p, m, per_rank) for per_rank in (2, 3)}
        for schedule in (*made.values(), *interleaved.values()):
            ops = "FIW" if schedule.name in ("zb-h1", "zbv") else "FB"
            for rank, row in enumerate(schedule.rows):
                held = schedule.route.held(rank)
                assert sorted(row) == sorted(Instruction(op, c, b) for op in ops for c in held for b in range(m))
            assert complete(schedule).synchronous
        assert found[sequential].makespan == 3 * m * p
        assert found[gpipe].makespan == found[one_f_one_b].makespan == 3 * m + 3 * (p - 1)
        assert found[gpipe].peak_open == (m,) * p
        assert found[one_f_one_b].peak_open == tuple(min(m, p - stage) for stage in range(p))
        # The last rank begins after p - 1 forwards and has 3 m to do. Its last input's gradient is there no earlier than 2 m
        # after it began, then goes through the p - 1 other ranks, and the first rank's weights' gradient comes after that.
        assert found[zb_h1].makespan == max(3 * m + p - 1, 2 * (m + p) - 1) and max(found[zb_h1].peak_open) <= p
        assert found[zbv].makespan == max(6 * m + p - 1, 4 * (m + p) - 2)  # in units of half a stage
        assert max(found[zbv].peak_open) == 2 * p or m < p
        for per_rank, schedule in interleaved.items():  # a chunk is 1 / per_rank of a stage, and a unit of time as well
            assert simulate(complete(schedule)).makespan == 3 * (per_rank * m + p - 1) or m % p


def some_parts(ranks, chunks, seed):
    """A Route with parts of every chunk on every rank, and random messages."""
    rng = random.Random(seed)
    senders = [{r: [s for s in range(ranks) if s != r and rng.random() < 0.5] for r in range(ranks)} for _ in range(chunks - 1)]
    return Route.everywhere(ranks, [{}, *senders])


def some_times(route, seed):
    rng = random.Random(seed)
    places = [(rank, op, chunk) for rank in range(route.ranks) for op in "FB" for chunk in route.held(rank)]
    return TableTimes({place: rng.choice([0, 1, 2, 5]) for place in places})


ROUTES = [
    *(Route.contiguous(p) for p in (1, 2, 4)), Route.looped(3, 2), Route.v_shaped(3),
    *(some_parts(p, c, p) for p, c in ((1, 2), (2, 4), (3, 3), (5, 2))),
]  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_any_route_is_sound_with_fresh_gradients_and_updates_after_each(route):
    for in_flight, bound in ((1, None), (3, None), (8, None), (4, 0), (4, 2), (2, 5)):
        limit = in_flight if bound is None else min(in_flight, bound + 1)
        for times in (None, some_times(route, in_flight)):
            for micro_batches in (1, 2, 7):
                schedule = asynchronous(route, in_flight, micro_batches, bound, times)
                found = simulate(complete(schedule), times)
                for row in schedule.rows:
                    assert [one for one in row if one.op == "U"] == [update(b) for b in range(micro_batches)]
                assert max(found.staleness.values()) <= limit - 1
                assert len(found.staleness) == sum(map(len, route.places)) * micro_batches
    for micro_batches in (1, 6):
        all_first = generators.gpipe_anywhere(route, micro_batches)
        in_turn = complete(generators.one_f_one_b_anywhere(route, micro_batches))
        assert complete(all_first).synchronous and in_turn.synchronous
        assert all([one.op for one in row] == sorted((one.op for one in row), reverse=True) for row in all_first.rows)
        assert all(max(of.of_chunk.values()) <= route.ranks for of in simulate(in_turn).kept)


def test_gradients_are_as_old_as_they_may_be():
    for in_flight in (1, 2, 4):
        found = simulate(complete(asynchronous(Route.contiguous(4), in_flight, 30)))
        assert max(found.staleness.values()) == in_flight - 1
        assert found.staleness[3, 3, 20] == 0  # the last rank goes back at once


def test_backward_comes_first_then_the_oldest_and_no_rank_waits_for_nothing():
    times = UnitTimes(update=1, latency=1)
    assert draw(simulate(complete(asynchronous(Route.contiguous(2), 5, 6, times=times)), times), columns=17) == (
        "rank 0: 0F0 0F1 0F2 0F3 0F4 .   0B0 -   U0  0F5 0B1 -   U1  .   0B2 -   U2  ..\n"
        "rank 1: .   .   1F0 1B0 -   U0  1F1 1B1 -   U1  1F2 1B2 -   U2  1F3 1B3 -   .."
    )
