"""Names of schedules, and what is said of those that are none."""

import pytest

from gridgrad.parallel import parallelize
from gridgrad.parallel.pipeline.generators import asynchronous, complete, gpipe, interleaved, zb_h1, zbv
from gridgrad.parallel.pipeline.schedule import Route, update
from gridgrad.parallel.pipeline.schedule_names import MICRO_BATCHES, NAMES, parse, to_csv
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
    assert all(name.split(":")[0] in parallelize.__doc__ for name in NAMES)
