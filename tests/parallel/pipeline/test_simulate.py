"""Virtual time and memory, against cases worked out by hand and a count of everything that is there, and drawings of them."""

import pytest

from gridgrad.parallel.pipeline.generators import asynchronous, complete, gpipe, interleaved, one_f_one_b, repeat, zb_h1, zbv
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Unsound, rows_around
from gridgrad.parallel.pipeline.simulate import Memory, TableTimes, UnitTimes, draw, kept, simulate
from tests.parallel.pipeline.brute_force import idle_between


def times_of(simulation, rank, ops):
    return [(event.start, event.stop) for event in simulation.events[rank] if event.instruction.op in ops]


def test_two_ranks_by_hand():
    found = simulate(complete(one_f_one_b(2, 2)))
    assert times_of(found, 0, "FB") == [(0, 1), (1, 2), (4, 6), (7, 9)]
    assert times_of(found, 1, "FB") == [(1, 2), (2, 4), (4, 5), (5, 7)]
    assert (found.makespan, found.busy, found.idle, found.use) == (9, (6, 6), (3, 3), 2 / 3)
    assert all(event.start <= event.stop for row in found.events for event in row)


def test_messages_leave_one_after_another_and_take_time():
    class Slow(UnitTimes):
        def message(self, sender, receiver, instruction):
            return (2, 3) if instruction.op == "SEND_F" else (0, 0)

    found = simulate(complete(gpipe(2, 2)), Slow())
    assert times_of(found, 1, "F") == [(6, 7), (9, 10)]  # sent at 1 and 2, gone at 4 and 7, there at 6 and 9
    assert times_of(found, 0, "B") == [(12, 14), (14, 16)]
    two = Route.everywhere(3, [{}, {1: (0,), 2: (0,)}])
    parts = simulate(complete(asynchronous(two, 1, 1)), Slow())
    assert [times_of(parts, rank, "F")[1] for rank in range(3)] == [(1, 2), (6, 7), (9, 10)]


@pytest.mark.parametrize("late", [0, 1])
def test_a_receive_waits_for_the_last_of_its_messages(late):
    class Late(UnitTimes):
        def message(self, sender, receiver, instruction):
            return 0, 5 * (sender == late)

    found = simulate(complete(asynchronous(Route.everywhere(3, [{}, {2: (0, 1)}]), 1, 1)), Late())
    assert times_of(found, 2, "F") == [(0, 1), (6, 7)]


def test_ranks_are_busy_with_messages():
    class Copies(UnitTimes):
        def seconds(self, rank, instruction):
            return 0.25 if "_" in instruction.op else 1

    found = simulate(complete(gpipe(2, 1)), Copies())
    assert found.makespan == pytest.approx(0.25 * 4 + 4 + 1)
    assert found.busy == (3.5, 3.5)


def test_times_of_a_table():
    table = TableTimes({(0, "F", 0): 2, (0, "F", 0, 1): 7, (0, "I", 0): 1, (0, "W", 0): 4, (0, "U", None): 3})
    assert times_of(simulate(complete(gpipe(1, 2)), table), 0, "FBU") == [(0, 2), (2, 9), (9, 14), (14, 19), (19, 22)]
    assert TableTimes({(0, "B", 0): 3, (0, "I", 0): 1}).seconds(0, Instruction("B", 0, 4)) == 3
    assert TableTimes({}, {(0, 1, "SEND_F", 0): (5, 6)}).message(0, 1, Instruction("SEND_F", 0, 2)) == (5, 6)


def test_idle_time_between_updates():
    found = simulate(repeat(complete(gpipe(3, 3)), 3), UnitTimes(update=2))
    assert idle_between(found, 0, 1) == idle_between(found, 1, 2) == (6, 6, 6)
    assert found.makespan == 3 * (9 + 6 + 2)


def test_what_is_not_complete_is_not_simulated():
    with pytest.raises(Unsound, match="rank 0 never"):
        simulate(gpipe(2, 2))


def counted(schedule, rank, memory):
    """(bytes, open contexts) that a rank keeps at most, by looking at everything anew at each place of its row."""
    row, held = schedule.rows[rank], schedule.route.held(rank)
    ends = {(one.chunk, one.micro_batch): place for place, one in enumerate(row) if one.op in ("B", "W")}
    begins = {(one.chunk, one.micro_batch): place for place, one in enumerate(row) if one.op == "F"}
    halves = {(one.chunk, one.micro_batch): place for place, one in enumerate(row) if one.op == "I"}
    found = []
    for place in range(-1, len(row)):
        is_open = [key for key in ends if begins[key] <= place <= ends[key]]
        halved = [key for key in is_open if key in halves and halves[key] <= place]
        level = sum(memory.contexts.get((rank, key[0]), 0) for key in is_open)
        level += sum(memory.between.get((rank, key[0]), 0) for key in halved)
        for chunk in held:
            versions = {sum(one.op == "U" for one in row[: begins[key]]) for key in is_open if key[0] == chunk}
            versions.add(sum(one.op == "U" for one in row[: place + 1]))
            level += memory.weights.get((rank, chunk), 0) * (len(versions) if memory.stash else 1)
        found.append((level, len(is_open)))
    return tuple(map(max, zip(*found, strict=True)))


@pytest.mark.parametrize("stash", [True, False])
@pytest.mark.parametrize("contexts, between, weights", [(10, 3, 0), (1, 50, 7), (2, 0, 1000), (0, 0, 0)])
def test_memory(contexts, between, weights, stash):
    made = [make(3, 5) for make in (gpipe, one_f_one_b, zb_h1, zbv)] + [interleaved(2, 4, 2)]
    made += [asynchronous(route, 4, 9) for route in (Route.contiguous(3), Route.v_shaped(2), Route.looped(2, 2))]
    made.append(asynchronous(Route.everywhere(2, [{}, {1: (0,)}, {0: (1,)}]), 3, 7))
    for schedule in [*map(complete, made), repeat(complete(made[0]), 2)]:
        places = [(rank, chunk) for rank in range(schedule.route.ranks) for chunk in schedule.route.held(rank)]
        memory = Memory(
            {key: contexts * (1 + key[1]) for key in places},
            {key: between * (1 + key[0]) for key in places},
            {key: weights * (2 + key[1]) for key in places},
            stash,
        )
        found = simulate(schedule, memory=memory)
        expected = [counted(schedule, rank, memory) for rank in range(schedule.route.ranks)]
        assert list(zip(found.peak_memory, found.peak_open, strict=True)) == expected


def test_versions_of_parameters():
    found = simulate(complete(asynchronous(Route.contiguous(3), 3, 20)))
    assert [of.versions[rank] for rank, of in enumerate(found.kept)] == [3, 2, 1]
    assert [of.versions[0] for of in simulate(complete(gpipe(1, 3))).kept] == [1]


def test_a_rank_that_does_nothing_keeps_its_parameters_alone():
    found = kept(0, [], [2, 5], Memory({(0, 2): 10}, {}, {(0, 2): 3, (0, 5): 4}))
    assert (found.open, found.of_chunk, found.versions, found.bytes) == (0, {2: 0, 5: 0}, {2: 1, 5: 1}, 7)


def test_staleness():
    found = simulate(complete(asynchronous(Route.contiguous(2), 2, 5)))
    assert {b: found.staleness[0, 0, b] for b in range(5)} == {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}
    assert {found.staleness[1, 1, b] for b in range(5)} == {0}
    assert set(simulate(repeat(complete(gpipe(2, 2)), 2)).staleness.values()) == {0}


def test_a_simulation_is_drawn_to_scale():
    assert draw(simulate(complete(one_f_one_b(2, 2)))).split("\n") == [
        "rank 0: 0F0 0F1 .   .   0B0 -   .   0B1 -",
        "rank 1: .   1F0 1B0 -   1F1 1B1 -",
    ]
    assert draw(simulate(complete(zb_h1(2, 2)), UnitTimes(update=1)), columns=6).split("\n") == [
        "rank 0: 0F0 0F1 .   0I0 0W0 0I1 ..",
        "rank 1: .   1F0 1I0 1F1 1I1 1W0 ..",
    ]


def test_a_coarser_unit():
    assert draw(simulate(complete(one_f_one_b(1, 1)), UnitTimes(2, 2, 2)), unit=2) == "rank 0: 0F0 0B0 -"
    assert draw(simulate(complete(one_f_one_b(1, 1)), UnitTimes(0, 0, 0))) == "rank 0:"


def test_a_marked_place_and_what_is_around_it():
    rows = ["abcdefghijklmnopqrst", "uv", ""]
    assert rows_around(rows, {0: 9, 1: 0}).split("\n") == ["rank 0: .. f g h i >j< k l m n ..", "rank 1: >u< v", "rank 2: "]
    assert rows_around(rows[:1], {}) == "rank 0: a b c d e f g h i .."
