"""No test is lost between `make test` and the parts of the rest that runs of CI take."""

from types import SimpleNamespace

import pytest

from tests.selection import PARTS, add_options, quick_ones, select


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


ITEMS = [
    item("plain"), item("long", marks=["long"]), item("slow[x]"), item("slow[y]"),
    *(item("of_ranks", ranks) for ranks in range(1, 9)), *(item("quick", ranks, ["quick"]) for ranks in range(1, 9)),
    *(item("of_many", ranks) for ranks in (5, 6)),
]  # fmt: skip


def names(items):
    return sorted(one.nodeid.removeprefix("tests/") for one in items)


def chosen(monkeypatch, listed, *words):
    """The names of the tests that pytest runs with some options, where some are listed as slow."""
    monkeypatch.setattr("tests.selection.listed", lambda: {listed})
    parser, left_out, items = pytest.Parser(_ispytest=True), [], list(ITEMS)
    add_options(parser)
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    select(SimpleNamespace(option=parser.parse(words), args=[], hook=hook), items)
    assert names(items + left_out) == names(ITEMS)
    return names(items)


def test_the_quick_ones_are_on_few_ranks_and_not_listed():
    found = names(quick_ones(ITEMS, {"slow[y]", "quick[4]"}))
    of_ranks = [name for name in found if name.startswith("of_ranks")]
    assert of_ranks in (["of_ranks[2]"], ["of_ranks[3]"], ["of_ranks[4]"])
    assert sorted([*of_ranks, "plain", "slow[x]", "quick[1]", "quick[2]", "quick[3]"]) == found


def test_six_parts_are_all_that_is_left_out(monkeypatch):
    quick, slow = chosen(monkeypatch, "slow", "--quick"), chosen(monkeypatch, "slow", "--slow")
    assert quick and slow and sorted(quick + slow) == names(ITEMS)
    assert {"slow[x]", "slow[y]"} <= {*chosen(monkeypatch, "slow[y]", "--slow")}, "cases of one function stay together"
    for options, whole in (((), names(ITEMS)), (("--slow",), slow)):
        parts = [chosen(monkeypatch, "slow", *options, "--part", str(number)) for number in range(7, 7 + PARTS)]
        assert sorted(sum(parts, [])) == whole
