"""Names of schedules and schedules as CSV, and what is said of texts that are neither."""

from functools import partial

import pytest

from gridgrad.parallel.pipeline import generators, schedule_names
from gridgrad.parallel.pipeline.generators import asynchronous, complete
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.schedule_names import MICRO_BATCHES, from_csv, parse, to_csv
from gridgrad.parallel.pipeline.simulate import UnitTimes

BY_NAME = {
    "sequential": generators.sequential, "gpipe": generators.gpipe, "1f1b": generators.one_f_one_b,
    "zb-h1": generators.zb_h1, "zbv": generators.zbv, "interleaved:3": partial(generators.interleaved, per_rank=3),
    "async:2": lambda stages, micro_batches: asynchronous(Route.contiguous(stages), 2, micro_batches),
}  # fmt: skip


@pytest.mark.parametrize("text", BY_NAME)
def test_every_name_makes_its_schedule_which_goes_through_csv(text):
    named, made = parse(text), BY_NAME[text](3, 4)
    assert named.schedule(3, 4) == made and made.name == text
    assert named.route(3) == made.route and made.route.chunks == 3 * named.per_rank
    for schedule in (made, complete(made), generators.repeat(complete(made), 2)):
        assert from_csv(to_csv(schedule), text) == schedule


def test_options_of_asynchronous_schedules_and_the_default_of_micro_batches():
    named, plain, times = parse("async:4:bound=2:nostash"), parse("async:4"), UnitTimes(forward=3)
    assert [(one.in_flight, one.bound, one.stash) for one in (named, plain)] == [(4, 2, False), (4, None, True)]
    assert named.schedule(2, 9, times) == asynchronous(Route.contiguous(2), 4, 9, 2, times)
    assert [parse("1f1b").micro_batches(ranks) for ranks in (1, 2)] == [1, 2 * MICRO_BATCHES]
    assert parse("1f1b").micro_batches(5, 3) == 3 and parse("async:2").micro_batches(5) == 1


def test_files(tmp_path):
    path, whole = tmp_path / "mine.csv", complete(generators.zbv(2, 3))
    path.write_text(to_csv(whole))
    named = parse(str(path))
    assert named.schedule(2, 3).rows == whole.rows and named.route(2) == Route.v_shaped(2) and named.micro_batches(2) == 3
    for sizes, words in (((3, 3), "mine.csv.* 2 ranks, not 3"), ((2, 4), "mine.csv.* 3 micro-batches, not 4")):
        with pytest.raises(ValueError, match=words):
            named.schedule(*sizes)
    path.write_bytes(b"0F0,0B0,\xff\x00")
    with pytest.raises(ValueError, match="mine.csv: row 1, column 3: "):
        parse(str(path))


@pytest.mark.parametrize("text", ["", "gpipe:2", "async:2:bound=-1", "x" * 1000])
def test_what_is_no_name_is_said_in_a_line(text):
    with pytest.raises(ValueError, match="there is no pipeline schedule") as caught:
        parse(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_as_pytorch_writes_them():
    assert to_csv(complete(generators.one_f_one_b(2, 1))) == "0F0,0SEND_F0,0RECV_B0,0B0,U0\n1RECV_F0,1F0,1B0,1SEND_B0,U0\n"
    text = "0F0,0F1,,,0I0,0W0,0I1,0W1\r\n,1F0,1I0,1F1,1I1,1W0,1W1,\r\n\r\n"  # an idle cell is empty
    found = complete(from_csv(text))
    assert found.route == Route.contiguous(2) and found.micro_batches == 2
    assert [str(one) for one in found.rows[1]][:4] == ["1RECV_F0", "1F0", "1I0", "1SEND_B0"]
    with pytest.raises(ValueError, match="parts of chunks"):
        to_csv(asynchronous(Route.everywhere(2, [{}, {1: (0,)}]), 1, 1))


def test_what_is_no_schedule_is_said_in_a_line(monkeypatch):
    monkeypatch.setattr(schedule_names, "MOST_INSTRUCTIONS", 8)
    for text, words in (
        ("0F0,0B0\n\n1F0,1B0", "row 2, column 1: a row without"),
        ("0F0,," + "x1" * 1000, "row 1, column 3: 'x1"),
        ("0F0,0B0\n2F0,2B0", "row 2, column 1: no row has forwards of chunk 1"),
        (",".join(f"0F{number}" for number in range(9)), "row 1, column 9: a schedule may have 8 instructions"),
    ):
        with pytest.raises(ValueError) as caught:
            from_csv(text)
        assert str(caught.value).startswith(words) and "\n" not in str(caught.value) and len(str(caught.value)) < 200
