"""The known schedules: that they are sound for any sizes, and take the time and memory that their authors say.

Forward, input's gradient and weights' gradient take one unit of time each.
"""

import pytest

from gridgrad.parallel.pipeline.generators import complete, gpipe, interleaved, one_f_one_b, repeat, sequential, zb_h1, zbv
from gridgrad.parallel.pipeline.schedule import Instruction
from gridgrad.parallel.pipeline.simulate import simulate
from tests.parallel.pipeline.brute_force import ends, idle_between

SIZES = [(p, m) for p in range(1, 6) for m in range(1, 2 * p + 2)]
SPLIT = {"zb-h1", "zbv"}


def simulated(schedule):
    return simulate(complete(schedule))


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_all_are_sound_and_do_everything_once(stages, micro_batches):
    made = [make(stages, micro_batches) for make in (sequential, gpipe, one_f_one_b, zb_h1, zbv)]
    made += [interleaved(stages, micro_batches, per_rank) for per_rank in (1, 2, 3)]
    for schedule in made:
        for rank, row in enumerate(schedule.rows):
            ops = "FIW" if schedule.name in SPLIT else "FB"
            held = schedule.route.held(rank)
            assert sorted(row) == sorted(Instruction(op, c, b) for op in ops for c in held for b in range(micro_batches))
        assert ends(complete(schedule)) and complete(schedule).synchronous
        found = simulated(schedule)
        assert sum(map(len, found.events)) == sum(map(len, complete(schedule).rows))


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_time_and_open_contexts(stages, micro_batches):
    p, m = stages, micro_batches
    assert simulated(sequential(p, m)).makespan == 3 * m * p
    everything_first, in_turn, apart = simulated(gpipe(p, m)), simulated(one_f_one_b(p, m)), simulated(zb_h1(p, m))
    assert everything_first.makespan == in_turn.makespan == 3 * m + 3 * (p - 1)
    assert everything_first.peak_open == (m,) * p
    assert in_turn.peak_open == tuple(min(m, p - stage) for stage in range(p))
    # The last rank begins after p - 1 forwards and has 3 m to do. Its last input's gradient is there no earlier than 2 m after
    # it began, then goes through the p - 1 other ranks, and the first rank's weights' gradient comes after that.
    assert apart.makespan == max(3 * m + p - 1, 2 * (m + p) - 1)
    assert apart.makespan == 3 * m + p - 1 or m < p
    assert max(apart.peak_open) <= p


@pytest.mark.parametrize("per_rank", [1, 2, 3])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
def test_interleaved_chunks_divide_the_idle_time(stages, per_rank):
    for micro_batches in (stages, 2 * stages, 5 * stages):
        found = simulated(interleaved(stages, micro_batches, per_rank))
        assert found.idle == (3 * (stages - 1),) * stages  # a chunk is 1 / per_rank of a stage, and a unit of time as well
        assert found.makespan == 3 * (per_rank * micro_batches + stages - 1)
    assert interleaved(stages, 7, 1).rows == one_f_one_b(stages, 7).rows


@pytest.mark.parametrize("stages, micro_batches", SIZES)
def test_a_v_needs_no_more_memory_than_1f1b(stages, micro_batches):
    p, m = stages, micro_batches
    found = simulated(zbv(p, m))  # in units of half a stage
    assert found.makespan == max(6 * m + p - 1, 4 * (m + p) - 2)
    assert max(found.peak_open) <= 2 * simulated(one_f_one_b(p, m)).peak_open[0]
    assert max(found.peak_open) == 2 * p or m < p


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
def test_idle_time_of_steps_without_a_barrier(stages):
    p = stages
    for m in (2 * p - 1, 2 * p, 4 * p):
        idle = [idle_between(simulate(repeat(complete(make(p, m)), 4)), 1, 3) for make in (gpipe, one_f_one_b, zb_h1, zbv)]
        assert idle == [(2 * 3 * (p - 1),) * p, (2 * 3 * (p - 1),) * p, (2 * (p - 1),) * p, (0,) * p]


@pytest.mark.parametrize("make", [sequential, gpipe, one_f_one_b, zb_h1, zbv])
def test_numbers_of_stages_are_checked(make):
    with pytest.raises(ValueError, match="stages must be a whole number of at least 1, not 0"):
        make(0, 1)
