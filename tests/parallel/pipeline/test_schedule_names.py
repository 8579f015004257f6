"""Names of schedules and schedules as CSV, and what is said of texts that are neither."""

from pathlib import Path

import pytest

from gridgrad.parallel import parallelize
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
from gridgrad.parallel.pipeline.schedule import Route, update
from gridgrad.parallel.pipeline.schedule_names import MICRO_BATCHES, NAMES, from_csv, parse, to_csv
from gridgrad.parallel.pipeline.simulate import UnitTimes


@pytest.mark.parametrize("text", ["sequential", "gpipe", "1f1b", "zb-h1", "zbv", "interleaved:1", "interleaved:3", "async:2"])
def test_every_name_makes_its_schedule(text):
    named = parse(text)
    schedule = named.schedule(3, 4)
    assert schedule.name == text == named.name
    assert named.route(3) == schedule.route == complete(schedule).route
    assert schedule.route.chunks == 3 * named.per_rank


def test_they_are_those_of_the_generators():
    assert parse("gpipe").schedule(2, 3) == gpipe(2, 3) and parse("zb-h1").schedule(2, 3) == zb_h1(2, 3)
    assert parse("zbv").schedule(2, 3) == zbv(2, 3) and parse("interleaved:2").schedule(2, 3) == interleaved(2, 3, 2)
    named, times = parse("async:4:bound=2:nostash"), UnitTimes(forward=3)
    assert (named.in_flight, named.bound, named.stash) == (4, 2, False) and parse("async:4").stash
    assert parse("async:4:nostash:bound=2").bound == 2 and parse("async:4").bound is None
    assert named.schedule(2, 9, times) == asynchronous(Route.contiguous(2), 4, 9, 2, times)
    assert parse("1f1b").in_flight is None


def test_micro_batches_for_those_who_do_not_say():
    named = parse("1f1b")
    assert [named.micro_batches(ranks) for ranks in (1, 2, 5)] == [1, 2 * MICRO_BATCHES, 5 * MICRO_BATCHES]
    assert named.micro_batches(5) == 5 * MICRO_BATCHES and named.micro_batches(5, 3) == 3
    assert parse("async:2").micro_batches(5) == 1


def test_files(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(to_csv(complete(zbv(2, 3))))
    named = parse(str(path))
    assert named.schedule(2, 3).rows == complete(zbv(2, 3)).rows and named.route(2) == Route.v_shaped(2)
    assert named.micro_batches(2) == 3
    first = [[one for one in row if one.micro_batch < 2] + [update(1)] for row in complete(zbv(2, 3)).rows]
    assert [list(row) for row in named.schedule(2, 2).rows] == first
    with pytest.raises(ValueError, match="mine.csv is a schedule for 2 ranks, not 3"):
        named.schedule(3, 3)
    with pytest.raises(ValueError, match="mine.csv is a schedule for 3 micro-batches, not 4"):
        named.schedule(2, 4)
    path.write_bytes(b"0F0,0B0,\xff\x00")
    with pytest.raises(ValueError, match="mine.csv: row 1, column 3: "):
        parse(str(path))
    with pytest.raises(FileNotFoundError):
        parse(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "GPipe", "gpipe:2", "interleaved", "interleaved:0", "interleaved:x", "interleaved:2:2", "zbv:2"),
        *("async", "async:0", "async:-1", "async:2:3", "async:2:bound", "async:2:bound=-1", "async:2:bound=", "async:²"),
        *("async:2:nostash:nostash", "async:2:bound=1:bound=2", "async:2:bound=1:nostash:bound=1", "async:2:", "x" * 1000),
    ],
)
def test_what_is_no_name_is_said_in_a_line(text):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert "there is no pipeline schedule" in str(caught.value) and "\n" not in str(caught.value)
    assert "async:K or FILE.csv" in str(caught.value) and len(str(caught.value)) < 200


def test_the_help_explains_every_name():
    page = Path(parallelize.__code__.co_filename).parents[2] / "experiments" / "help.md"
    assert all(name.split(":")[0] in page.read_text() for name in NAMES)


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
