"""No test is lost between `make test` and the parts of the rest that runs of CI take."""

from types import SimpleNamespace

import pytest

from tests.selection import PARTS, add_options, select


class Item(SimpleNamespace):
    __hash__ = object.__hash__


def item(name, ranks=0, marks=()):
    """What pytest collects of a test, as far as it matters here."""
    return Item(
        nodeid=f"tests/{name}" + f"[{ranks}]" * bool(ranks),
        obj=SimpleNamespace(**({"body": None} if ranks else {})),
        callspec=SimpleNamespace(params={"ranks": ranks}),
        get_closest_marker=lambda mark: mark in marks or None,
    )


ITEMS = [item("plain"), item("long", marks=["long"]), item("slow[x]"), item("slow[y]")]
ITEMS += [item(name, ranks, [name]) for name in ("of_ranks", "quick") for ranks in range(1, 9)]


def chosen(monkeypatch, *words):
    """The names of the tests that pytest runs with some options."""
    monkeypatch.setattr("tests.selection.listed", lambda: {"slow[y]", "quick[4]"})
    parser, left_out, items = pytest.Parser(_ispytest=True), [], list(ITEMS)
    add_options(parser)
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    select(SimpleNamespace(option=parser.parse(words), args=[], hook=hook), items)
    assert names(items + left_out) == names(ITEMS)
    return names(items)


def names(items):
    return sorted(one.nodeid.removeprefix("tests/") for one in items)


def test_quick_ones_are_on_few_ranks_and_not_listed_and_six_parts_are_all_that_they_leave_out(monkeypatch):
    quick, slow = chosen(monkeypatch, "--quick"), chosen(monkeypatch, "--slow")
    of_ranks = [name for name in quick if name.startswith("of_ranks")]
    assert of_ranks in (["of_ranks[2]"], ["of_ranks[3]"], ["of_ranks[4]"])
    assert quick == sorted([*of_ranks, "plain", "slow[x]", "quick[1]", "quick[2]", "quick[3]"])
    assert {*quick, *slow} == {*names(ITEMS)} and {"slow[x]", "slow[y]"} <= {*slow}, "cases of one function stay together"
    for options, whole in (((), names(ITEMS)), (("--slow",), slow)):
        parts = [chosen(monkeypatch, *options, "--part", str(number)) for number in range(7, 7 + PARTS)]
        assert sorted(sum(parts, [])) == whole
