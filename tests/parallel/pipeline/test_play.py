"""Virtual time: the order of events, cores that ranks share, and messages. Times are sums of powers of two, so exact."""

import pytest

from gridgrad.parallel.pipeline.play import Cores, Link, Message, Player, VirtualTime, Wait


def played(clock):
    """Let everything happen."""
    while clock.go_on():
        pass


def test_events_come_in_the_order_of_time_place_and_what_was_said_first():
    clock, found = VirtualTime(), []
    for time, place, name in ((2, 0, "e"), (1, 5, "d"), (1, 0, "b"), (1, 0, "c"), (0, 9, "a")):
        clock.at(time, found.append, name, place=place)
    clock.at(1, clock.at, 0, found.append, "late")  # what should have happened before now happens now
    assert clock.go_on() and found == ["a"]
    assert clock.go_on() and clock.more_now and clock.time == 1
    while clock.more_now:
        clock.go_on()
    assert found == ["a", "b", "c", "late", "d"]
    assert clock.go_on() and not clock.more_now and not clock.go_on() and found[-1] == "e"


@pytest.mark.parametrize(
    ("crowd", "seconds", "expected"),
    [
        (1, [4, 2, 8], [4, 2, 8]),  # a core each
        (2, [8, 8, 8, 8], [8, 8, 8, 8]),  # four ranks on two cores, as measured
        (2, [8, 8, 0, 0], [4, 4, 0, 0]),  # two of them have a core each
        (2, [8, 8, 8, 0], [6, 6, 6, 0]),
        (2, [4, 8, 8, 8], [4, 7, 7, 7]),  # three ranks share two cores for the rest
    ],
)
def test_ranks_share_cores(crowd, seconds, expected):
    clock, ends = VirtualTime(), {}
    cores = Cores(clock, len(seconds), crowd)
    for rank, one in enumerate(seconds):
        if one:
            cores.compute(one, lambda rank=rank: ends.update({rank: clock.time}))
    played(clock)
    assert [ends.get(rank, 0) for rank in range(len(seconds))] == pytest.approx(expected)


def test_one_that_begins_later_slows_down_the_others():
    clock, ends = VirtualTime(), []
    cores = Cores(clock, 2, 2)  # two ranks on one core
    cores.compute(8, lambda: ends.append(clock.time))
    clock.at(2, cores.compute, 8, lambda: ends.append(clock.time))
    played(clock)
    assert ends == [6, 8]  # the first one has done a half after 2 seconds, alone


def test_a_link_does_one_thing_after_another():
    link = Link()
    assert [link.take(0, 2), link.take(1, 2), link.take(8, 2)] == [2, 4, 10]


def arrivals(*messages):
    """When messages arrive that are sent at the time 0. Each is (sender, receiver, latency, occupied)."""
    ranks = [[], [], [], [], *([Wait((number,))] for number in range(len(messages)))]  # who sends, who waits for which
    for number, (sender, receiver, *times) in enumerate(messages):
        ranks[sender].append(Message(receiver, number, tuple(times)))
    return [span.stop for _, span in sorted(Player(ranks).run())]


def test_messages_of_one_rank_leave_one_after_another_and_their_latencies_overlap():
    assert arrivals((0, 1, 8, 2), (0, 2, 8, 4), (0, 1, 8, 0)) == [10, 14, 14]


def test_messages_to_one_rank_arrive_one_after_another():
    assert arrivals((0, 2, 1, 4), (1, 2, 1, 4)) == [5, 9]
    assert arrivals((0, 2, 1, 4), (1, 3, 1, 4)) == [5, 5]
