"""Schedules: routes, messages and updates that are added, cuts, and that what ranks can not follow is refused."""

from functools import partial
from itertools import combinations_with_replacement, pairwise
from math import inf

import numpy as np
import pytest

from gridgrad.parallel.pipeline import generators
from gridgrad.parallel.pipeline.generators import complete
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule, Unsound, check, shortest, update
from gridgrad.parallel.pipeline.simulate import simulate


def test_routes():
    looped, v_shaped = Route.looped(2, 3), Route.v_shaped(3)
    assert [looped.held(rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]
    assert [v_shaped.held(rank) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]
    assert v_shaped.local_before(3, 2) and v_shaped.local_after(2, 2) and not v_shaped.local_before(2, 2)
    assert v_shaped.senders[3] == {} and v_shaped.receivers(2, 2) == () and v_shaped.sources(4, 1) == (2,)


def test_what_is_no_route_and_no_instruction_is_refused():
    for make, words in (
        (lambda: Route.of_stages((0, 2)), "rank 1 of the pipeline"),
        (lambda: Route.everywhere(2, [{}, {0: (0,)}]), "rank 0 needs for chunk 1"),
        *((partial(Instruction.parse, text), "no instruction") for text in ("", "2U0", "²F0")),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def written(*rows, route=None):
    """The Schedule with these rows, which are texts."""
    found = [[Instruction.parse(text) for text in row.split()] for row in rows]
    return Schedule(found, route or Route.contiguous(len(rows)))


def texts(schedule):
    return [" ".join(map(str, row)) for row in schedule.rows]


def test_messages_and_updates_are_added():
    found = complete(generators.one_f_one_b(2, 2))
    assert texts(found) == [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 U1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 U1",
    ]
    assert found.synchronous and found.micro_batches == 2 and complete(found) == found
    assert complete(generators.zbv(1, 2)) == generators.with_updates(generators.zbv(1, 2)), "no messages within a rank"
    steps = check(generators.repeat(found, 3))
    assert [one for one in steps.rows[0] if one.op == "U"] == [update(1), update(3), update(5)] and not steps.synchronous


TWO = Route.looped(1, 2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (written("0F0 0B0"), "never updates its parameters after micro-batch 0"),
        (written("0F0 0F0 0B0 U0"), "0F0 twice"),
        (written("0F0 1F0 0B0 U0"), "1F0, but does not hold"),
        (written("0F0 0I0 U0"), "never does 0W0"),
        (written("0F0 U0 0B0"), "U0 before 0B0"),
        (written("0F0 0F1 0B1 0B0 U1 U0"), "U0 too late"),
        (written("0F0 1F0 0B0 1B0 U0", route=TWO), "0B0 of rank 0 needs 1I0"),
        (generators.with_messages(written("0F0 0B0 0F1 0B1 U1", "1F0 1B0 U0 1F1 1B1 U1")), "rank 1 updates"),
    ],
)
def test_what_ranks_can_not_follow_is_refused_in_a_line(schedule, words):
    with pytest.raises(Unsound) as caught:
        check(schedule)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_those_that_wait_for_ever_are_shown():
    with pytest.raises(Unsound, match="0RECV_B0 of rank 0 needs 1SEND_B0") as caught:
        simulate(written("0F0 0RECV_B0 0B0 0SEND_F0 U0", "1RECV_F0 1F0 1B0 1SEND_B0 U0"))
    assert caught.value.marks == {0: 1, 1: 0} and "\nrank 1: >1RECV_F0< 1F0" in caught.value.__notes__[0]


def longest(cuts, layers, seconds):
    """The seconds of the longest chunk. seconds: a function of a chunk, its first layer and the one behind its last."""
    return max(seconds(chunk, start, end) for chunk, (start, end) in enumerate(pairwise([0, *cuts, layers])))


@pytest.mark.parametrize(("layers", "chunks"), [(0, 2), (4, 1), (6, 3), (5, 5)])
def test_no_other_cuts_have_a_shorter_longest_chunk(layers, chunks):
    rng = np.random.default_rng(layers + 10 * chunks)
    for _ in range(5):
        work, factor = rng.integers(0, 9, layers), rng.integers(1, 4, chunks)

        def seconds(chunk, start, end, work=work, factor=factor):
            return int(factor[chunk] * work[start:end].sum())

        found = shortest(layers, chunks, seconds)
        every = combinations_with_replacement(range(layers + 1), chunks - 1)
        assert list(found) == sorted(found) and len(found) == chunks - 1
        assert longest(found, layers, seconds) == min(longest(cuts, layers, seconds) for cuts in every)
    assert shortest(6, 2, lambda chunk, start, end: inf) is None
