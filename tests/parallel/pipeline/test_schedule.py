"""Schedules: routes, instructions as text, and that all are found with which ranks wait for ever or compute something wrong."""

import random
from dataclasses import replace

import pytest

from gridgrad.parallel.pipeline.generators import (
    asynchronous,
    complete,
    gpipe,
    interleaved,
    one_f_one_b,
    repeat,
    sequential,
    with_messages,
    with_updates,
    zb_h1,
    zbv,
)
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule, Unsound, check, execution, update
from gridgrad.parallel.pipeline.simulate import simulate
from tests.parallel.pipeline.brute_force import ends

TEXTS = "2F0", "2I0", "2W0", "2B0", "2SEND_F0", "3RECV_F0", "3SEND_B0", "2RECV_B10", "U7"


def parse(*rows, route=None):
    found = [[Instruction.parse(text) for text in row.split()] for row in rows]
    return Schedule(found, route or Route.contiguous(len(rows)))


def test_instructions_as_text():
    assert [str(Instruction.parse(text)) for text in TEXTS] == list(TEXTS)
    assert Instruction.parse("3RECV_F12") == ("RECV_F", 3, 12) and Instruction.parse("U7") == update(7) == ("U", None, 7)
    for text in ("", "F", "2F", "F0", "2U0", "U", "2f0", "2F-1", "2F0 ", "2 F0", "2SEND0", "2F12345678", "²F0"):
        with pytest.raises(ValueError, match="is no instruction such as"):
            Instruction.parse(text)


def test_a_schedule_has_a_row_for_each_rank():
    with pytest.raises(ValueError, match="a schedule for 1 ranks does not fit a route on 2"):
        Schedule([[]], Route.contiguous(2))


def test_messages_and_updates_are_added():
    found = complete(one_f_one_b(2, 2))
    assert [" ".join(map(str, row)) for row in found.rows] == [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 U1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 U1",
    ]
    assert found.synchronous and found.micro_batches == 2
    assert complete(found) == found


def test_what_is_there_already_stays_where_it_is():
    rows = "0F0 0F1 0SEND_F1 0SEND_F0 0B0 0B1", "1RECV_F0 1RECV_F1 1F1 1F0 1B1 1B0 1SEND_B0 U1 1SEND_B1"
    found = complete(parse(*rows))
    assert [" ".join(map(str, row)) for row in found.rows] == [
        "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1 U1",
        rows[1],
    ]


def test_no_messages_between_chunks_of_a_rank():
    assert with_messages(zbv(1, 2)) == zbv(1, 2)
    found = complete(zbv(2, 1))
    assert not {"1SEND_F0", "2RECV_F0", "2SEND_B0", "1RECV_B0"} & {str(one) for row in found.rows for one in row}


def test_steps_without_a_barrier():
    found = check(repeat(complete(gpipe(2, 2)), 3))
    assert found.micro_batches == 6 and not found.synchronous
    assert [str(one) for one in found.rows[0] if one.op == "U"] == ["U1", "U3", "U5"]


@pytest.mark.parametrize(
    "rows, message",
    [
        (("0F0 0B0",), "rank 0 never updates its parameters after micro-batch 0"),
        (("0F0 0B0 U0 0F1 0B1",), "rank 0 never updates its parameters after micro-batch 1"),
        (("0F0 0F0 0B0 U0",), "rank 0 does 0F0 twice"),
        (("0F0 1F0 0B0 U0",), "rank 0 does 1F0, but does not hold this chunk"),
        (("0F0 0SEND_F0 0B0 U0",), "rank 0 does 0SEND_F0, but there is no such message"),
        (("0F0 U0",), "rank 0 never does 0I0"),
        (("0F0 0I0 U0",), "rank 0 never does 0W0"),
        (("0F0 0B0 0W0 U0",), "rank 0 does 0B0 and a half of it again"),
        (("0F0 U0 0B0",), "rank 0 does U0 before 0B0"),
        (("0F0 0F1 0B1 0B0 U1 U0",), "rank 0 does U0 too late"),
        (("0F0 0W0 0I0 U0",), "0W0 of rank 0 needs 0I0, which never comes before it"),
        (("0F0 0RECV_B0 0B0 U0", "1RECV_F0 1F0 1B0 1SEND_B0 U0"), "rank 0 never does 0SEND_F0"),
        (
            (
                "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1 U1",
                "1RECV_F0 1F0 1B0 1SEND_B0 U0 1RECV_F1 1F1 1B1 1SEND_B1 U1",
            ),
            "rank 1 updates its parameters after other micro-batches than rank 0",
        ),
    ],
)
def test_what_is_wrong_is_said(rows, message):
    with pytest.raises(Unsound) as caught:
        check(parse(*rows))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "row, first", [("0F0 1F0 0B0 1B0 U0", "0B0 of rank 0 needs 1I0"), ("1F0 0F0 1B0 0B0 U0", "1F0 of rank 0 needs 0F0")]
)
def test_chunks_of_a_rank_wait_for_one_another(row, first):
    check(parse("0F0 1F0 1B0 0B0 U0", route=Route.looped(1, 2)))
    with pytest.raises(Unsound) as caught:
        check(parse(row, route=Route.looped(1, 2)))
    assert first in str(caught.value)


def test_those_that_wait_for_ever_are_shown():
    wrong = parse("0F0 0RECV_B0 0B0 0SEND_F0 U0", "1RECV_F0 1F0 1B0 1SEND_B0 U0")
    with pytest.raises(Unsound) as caught:
        simulate(wrong)
    assert [str(caught.value), *"\n".join(caught.value.__notes__).split("\n")] == [
        "ranks wait for ever: 0RECV_B0 of rank 0 needs 1SEND_B0, which rank 1 never does before it;"
        " waiting: rank 0 at 0RECV_B0, rank 1 at 1RECV_F0",
        "rank 0: 0F0 >0RECV_B0< 0B0 0SEND_F0 U0",
        "rank 1: >1RECV_F0< 1F0 1B0 1SEND_B0 U0",
    ]
    assert caught.value.marks == {0: 1, 1: 0}


def test_an_unsound_update_alone_does_not_block():
    list(execution(with_updates(parse("0F0 U0 0B0"))))


def some_schedule(draw):
    stages, micro_batches = draw.randint(1, 4), draw.randint(1, 6)
    make = draw.choice(
        [
            sequential,
            gpipe,
            one_f_one_b,
            zb_h1,
            zbv,
            lambda p, m: interleaved(p, m, 2),
            lambda p, m: asynchronous(Route.contiguous(p), 3, m),
        ]
    )
    return complete(make(stages, micro_batches))


def broken(schedule, draw):
    """The schedule with one or two things changed, which need not make it unsound."""
    rows = [list(row) for row in schedule.rows]
    for _ in range(draw.randint(1, 2)):
        row = draw.choice(rows)
        place = draw.randrange(len(row))
        what = draw.choice(["swap", "swap", "next", "next", "drop", "move", "send", "rows"])
        if what == "swap":
            other = draw.randrange(len(row))
            row[place], row[other] = row[other], row[place]
        elif what == "next" and place:
            row[place - 1], row[place] = row[place], row[place - 1]
        elif what == "drop" and len(row) > 1:
            del row[place]
        elif what == "move":
            row.insert(draw.randrange(len(row)), row.pop(place))
        elif what == "send":
            sends = [one for one in row if one.op.startswith("SEND")]
            row[:] = [one for one in row if not sends or one != sends[place % len(sends)]]
        elif what == "rows":
            other = draw.randrange(len(rows))
            rows[0], rows[other] = rows[other], rows[0]
    return replace(schedule, rows=rows)


def test_broken_schedules_are_found_and_no_others():
    draw, unsound, sound, endless = random.Random(15), 0, 0, 0
    while unsound < 100 or sound < 50 or endless < 50:
        schedule = broken(some_schedule(draw), draw)
        if ends(schedule):
            sound += 1
            check(schedule)
            simulate(schedule)
        else:
            unsound += 1
            with pytest.raises(Unsound):
                check(schedule)
            with pytest.raises(Unsound) as caught:
                simulate(schedule)
            endless += "wait for ever" in str(caught.value)


def test_whole_chunks():
    route = Route.contiguous(3)
    assert route.places == ((0,), (1,), (2,)) and route.senders == ({}, {1: (0,)}, {2: (1,)})
    assert (route.chunks, route.ranks) == (3, 3)
    assert [route.held(rank) for rank in range(3)] == [(0,), (1,), (2,)]
    assert [route.receivers(0, 0), route.receivers(2, 2), route.sources(1, 1), route.sources(0, 0)] == [(1,), (), (0,), ()]


def test_several_chunks_on_a_rank():
    looped, v_shaped = Route.looped(2, 3), Route.v_shaped(3)
    assert [looped.held(rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]
    assert [v_shaped.held(rank) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]
    assert v_shaped.local_before(3, 2) and v_shaped.local_after(2, 2) and v_shaped.senders[3] == {}
    assert not v_shaped.local_before(2, 2) and not v_shaped.local_after(5, 0) and not v_shaped.local_before(0, 0)
    assert v_shaped.receivers(2, 2) == () and v_shaped.sources(4, 1) == (2,)
    assert Route.looped(1, 2).senders == ({}, {})


def test_parts_of_chunks():
    route = Route.everywhere(3, [{}, {0: (1, 2), 2: (0,)}, {1: (0,)}])
    assert route.places == ((0, 1, 2),) * 3 and route.held(1) == (0, 1, 2)
    assert [route.receivers(0, rank) for rank in range(3)] == [(2,), (0,), (0,)]
    assert route.receivers(1, 0) == (1,) and route.receivers(2, 0) == ()
    assert route.local_before(1, 1) and route.local_after(1, 1) and not route.local_after(2, 1)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Route.of_stages((0, 2)), "rank 1 of the pipeline holds no chunk"),
        (lambda: Route.of_stages(()), "rank 0 of the pipeline holds no chunk"),
        (lambda: Route.contiguous(0), "stages must be a whole number"),
        (lambda: Route.looped(2, 0), "chunks of a rank must be"),
        (lambda: Route(((0,), (1,)), ({}, {}), 2), "nothing comes to rank 1 for chunk 1"),
        (lambda: Route(((0,), (1,)), ({},), 2), "needs as many senders"),
        (lambda: Route.everywhere(2, [{}, {0: (0,)}]), r"what rank 0 needs for chunk 1 can not come from ranks \(0,\)"),
        (lambda: Route.everywhere(2, [{1: (0,)}]), r"what rank 1 needs for chunk 0"),
    ],
)
def test_what_is_no_route(make, message):
    with pytest.raises(ValueError, match=message):
        make()
