"""Schedules as CSV: there and back, and what is said of texts that are none."""

import pytest

from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import (
    asynchronous,
    complete,
    gpipe,
    interleaved,
    one_f_one_b,
    repeat,
    sequential,
    zb_h1,
    zbv,
)
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.schedule_names import from_csv, to_csv


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_there_and_back(stages):
    made = [make(stages, 4) for make in (sequential, gpipe, one_f_one_b, zb_h1, zbv)]
    made += [interleaved(stages, 4, 2), asynchronous(Route.contiguous(stages), 2, 4)]
    for schedule in [*made, *map(complete, made), repeat(complete(made[1]), 2)]:
        assert from_csv(to_csv(schedule), schedule.name) == schedule


def test_as_pytorch_writes_them():
    assert to_csv(complete(one_f_one_b(2, 1))) == "0F0,0SEND_F0,0RECV_B0,0B0,U0\n1RECV_F0,1F0,1B0,1SEND_B0,U0\n"
    text = "0F0,0F1,,,0I0,0W0,0I1,0W1\r\n,1F0,1I0,1F1,1I1,1W0,1W1,\r\n\r\n"  # an idle cell is empty
    found = complete(from_csv(text))
    assert found.route == Route.contiguous(2) and found.micro_batches == 2
    assert [str(one) for one in found.rows[1]][:4] == ["1RECV_F0", "1F0", "1I0", "1SEND_B0"]
    assert from_csv("1F0,1B0\n0F0,0B0").route.places == ((1,), (0,))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "row 1, column 1: a row without instructions"),
        ("0F0,0B0\n\n1F0,1B0", "row 2, column 1: a row without instructions"),
        ("0F0,,x1", "row 1, column 3: 'x1' is no instruction such as 2F0"),
        ("0F0,0B0,0F0", "row 1, column 3: 0F0 is in row 1, column 1 too"),
        ("0F0,0B0\n0F1,0B1", "row 2, column 1: 0F1 is of chunk 0, whose forwards row 1 has"),
        ("0F0,0B0,1B0\n1F0,1W0", "row 1, column 3: 1B0 is of chunk 1, but row 2 has its forwards"),
        ("0F0,0B0,3B0", "row 1, column 3: 3B0 is of chunk 3, but no row has its forwards"),
        ("0F0,0B0\n2F0,2B0", "row 2, column 1: no row has forwards of chunk 1, but here are some of chunk 2"),
        ("U0", "row 1, column 1: no row has forwards of chunk 0"),
        ("0F99999999", "row 1, column 1: '0F99999999' is no instruction"),
        ("0F0," + "9" * 1000, "row 1, column 2: '999"),
        ("0F0\n" * 5000, "row 4097, column 1: a schedule may have 4096 rows"),
        ("," * (2**24 + 1), "a schedule may have 16777216 characters"),
    ],
)
def test_what_is_no_schedule_is_said_in_a_line(text, message):
    with pytest.raises(ValueError) as caught:
        from_csv(text)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_too_many_instructions(monkeypatch):
    monkeypatch.setattr(schedule_names, "MOST_INSTRUCTIONS", 3)
    with pytest.raises(ValueError, match="row 2, column 2: a schedule may have 3 instructions"):
        from_csv("0F0,0B0\n1F0,1B0")


def test_a_micro_batch_of_a_high_number_is_no_work():
    with pytest.raises(ValueError, match="rank 0 never does 0I0"):
        complete(from_csv("0F0,0F9999999"))


def test_parts_of_chunks_can_not_be_written():
    with pytest.raises(ValueError, match="can not be written as CSV"):
        to_csv(asynchronous(Route.everywhere(2, [{}, {1: (0,)}]), 1, 1))
