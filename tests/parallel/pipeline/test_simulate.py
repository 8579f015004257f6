"""Virtual time and memory, against cases worked out by hand, and drawings of them."""

from dataclasses import replace

import pytest

from gridgrad.parallel.pipeline.generators import asynchronous, complete, gpipe, one_f_one_b, repeat, zb_h1
from gridgrad.parallel.pipeline.play import Cores, Message, Player, VirtualTime, Wait
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.simulate import Memory, TableTimes, UnitTimes, draw, simulate


def test_ranks_share_cores():
    """Two ranks on one core take 8 seconds each if both compute; the first has done a half after 2 seconds, alone."""
    clock, ends = VirtualTime(), {}
    cores = Cores(clock, 2, 2)
    for rank, start in enumerate((0, 2)):
        clock.at(start, cores.compute, 8, lambda rank=rank: ends.update({rank: clock.time}))
    while clock.go_on():
        pass
    assert ends == pytest.approx({0: 6, 1: 8})


def arrivals(*messages):
    """When messages arrive that are sent at the time 0. Each is (sender, receiver, latency, occupied)."""
    ranks = [[], [], [], [], *([Wait((number,))] for number in range(len(messages)))]  # who sends, who waits for which
    for number, (sender, receiver, *times) in enumerate(messages):
        ranks[sender].append(Message(receiver, number, tuple(times)))
    return [span.stop for _, span in sorted(Player(ranks).run())]


def test_messages_leave_and_arrive_one_after_another_and_their_latencies_overlap():
    assert arrivals((0, 1, 8, 2), (0, 2, 8, 4), (0, 1, 8, 0)) == [10, 14, 14]
    assert arrivals((0, 2, 1, 4), (1, 2, 1, 4)) == [5, 9]
    assert arrivals((0, 2, 1, 4), (1, 3, 1, 4)) == [5, 5]


def times_of(simulation, rank, ops):
    return [(event.start, event.stop) for event in simulation.events[rank] if event.instruction.op in ops]


def test_two_ranks_by_hand():
    found = simulate(complete(one_f_one_b(2, 2)))
    assert times_of(found, 0, "FB") == [(0, 1), (1, 2), (4, 6), (7, 9)]
    assert times_of(found, 1, "FB") == [(1, 2), (2, 4), (4, 5), (5, 7)]
    assert (found.makespan, found.busy, found.idle, found.use) == (9, (6, 6), (3, 3), 2 / 3)


def test_messages_take_time_and_a_receive_waits_for_the_last_of_them():
    class Slow(UnitTimes):
        def message(self, sender, receiver, instruction):
            return (2, 3) if instruction.op == "SEND_F" else (0, 0)

    found = simulate(complete(gpipe(2, 2)), Slow())
    assert times_of(found, 1, "F") == [(6, 7), (9, 10)]  # sent at 1 and 2, gone at 4 and 7, there at 6 and 9
    two = Route.everywhere(3, [{}, {1: (0,), 2: (0,)}])
    parts = simulate(complete(asynchronous(two, 1, 1)), Slow())
    assert [times_of(parts, rank, "F")[1] for rank in range(3)] == [(1, 2), (6, 7), (9, 10)]
    for late in (0, 1):
        times = TableTimes({(rank, "F", 0): 1 for rank in range(3)}, {(late, 2, "SEND_F", 0): (5, 0)})
        found = simulate(complete(asynchronous(Route.everywhere(3, [{}, {2: (0, 1)}]), 1, 1)), times)
        assert times_of(found, 2, "F")[1][0] == 6


def test_times_of_a_table():
    table = TableTimes({(0, "F", 0): 2, (0, "F", 0, 1): 7, (0, "I", 0): 1, (0, "W", 0): 4, (0, "U", None): 3})
    found = simulate(complete(gpipe(1, 2)), table)
    assert times_of(found, 0, "FBU") == [(0, 2), (2, 9), (9, 14), (14, 19), (19, 22)]
    assert draw(found, unit=3) == "rank 0: 0F0 0F1 -   0B0 -   0B1 U1"


def test_memory_by_hand():
    """Contexts of forward, what is kept between the halves of backward, and each version of the weights that is in use."""
    memory = Memory({(0, 0): 10, (1, 1): 20}, {(0, 0): 1, (1, 1): 2}, {(0, 0): 100, (1, 1): 200}, True)

    def peaks(schedule, memory=memory):
        return simulate(complete(schedule), memory=memory).peak_memory

    assert peaks(gpipe(2, 3)) == (100 + 3 * 10, 200 + 3 * 20)
    assert peaks(one_f_one_b(2, 3)) == (100 + 2 * 10, 200 + 20)
    assert peaks(zb_h1(2, 3)) == (100 + 2 * 10 + 1, 200 + 2 * (20 + 2))  # 1F0 1I0 1F1 1I1 1W0 ..
    stale = asynchronous(Route.contiguous(2), 2, 9)
    assert peaks(stale) == (2 * 100 + 2 * 10, 200 + 20)
    assert peaks(stale, replace(memory, stash=False)) == (100 + 2 * 10, 200 + 20)


def test_versions_of_parameters_and_staleness():
    found = simulate(complete(asynchronous(Route.contiguous(3), 3, 20)))
    assert [of.versions[rank] for rank, of in enumerate(found.kept)] == [3, 2, 1]
    found = simulate(complete(asynchronous(Route.contiguous(2), 2, 5)))
    assert [found.staleness[0, 0, b] for b in range(5)] == [0, 1, 1, 1, 1] and found.staleness[1, 1, 4] == 0
    assert set(simulate(repeat(complete(gpipe(2, 2)), 2)).staleness.values()) == {0}
