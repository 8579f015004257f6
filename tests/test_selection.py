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
    item("test_a.py::test_plain"),
    item("test_a.py::test_long", marks=["long"]),
    item("test_a.py::test_slow[x]"),
    item("test_a.py::test_slow[y]"),
    *(item("test_b.py::test_of_ranks", ranks) for ranks in range(1, 9)),
    *(item("test_b.py::test_that_is_quick", ranks, ["quick"]) for ranks in range(1, 9)),
    *(item("test_b.py::test_of_many", ranks) for ranks in (5, 6)),
]


def names(items):
    return [one.nodeid.removeprefix("tests/test_").partition("::test_")[2] for one in items]


def test_the_quick_ones_are_on_few_ranks_and_not_listed():
    found = [one for one in ITEMS if one in quick_ones(ITEMS, {"test_a.py::test_slow[y]", "test_b.py::test_that_is_quick[4]"})]
    of_ranks = [name for name in names(found) if name.startswith("of_ranks")]
    assert of_ranks in (["of_ranks[2]"], ["of_ranks[3]"], ["of_ranks[4]"])
    assert [name for name in names(found) if name not in of_ranks] == [
        "plain", "slow[x]", *(f"that_is_quick[{ranks}]" for ranks in (1, 2, 3))
    ]  # fmt: skip
    assert not {"slow[x]", "slow[y]"} & {*names(quick_ones(ITEMS, {"test_a.py::test_slow"}))}


def chosen(monkeypatch, *words):
    """The names of the tests that pytest runs with some options, where one function is slow."""
    monkeypatch.setattr("tests.selection.listed", lambda: {"test_a.py::test_slow"})
    return chosen_of(monkeypatch, *words)


def chosen_of(_, *words):
    parser, left_out, items = pytest.Parser(_ispytest=True), [], list(ITEMS)
    add_options(parser)
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    select(SimpleNamespace(option=parser.parse(words), args=[], hook=hook), items)
    assert sorted(names(items + left_out)) == sorted(names(ITEMS))
    return names(items)


def test_six_parts_are_all_that_is_left_out(monkeypatch):
    quick, slow = chosen(monkeypatch, "--quick"), chosen(monkeypatch, "--slow")
    assert quick and slow and sorted(quick + slow) == sorted(names(ITEMS))
    with monkeypatch.context() as patch:
        patch.setattr("tests.selection.listed", lambda: {"test_a.py::test_slow[y]"})
        assert {"slow[x]", "slow[y]"} <= {*chosen_of(patch, "--slow")}, "cases of one function stay together"
    for options, whole in (((), names(ITEMS)), (("--slow",), slow)):
        parts = [chosen(monkeypatch, *options, "--part", str(number)) for number in range(7, 7 + PARTS)]
        assert sorted(sum(parts, [])) == sorted(whole)
    assert chosen(monkeypatch) == names(ITEMS)
