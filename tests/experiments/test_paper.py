"""Papers as data: expressions, and what a file of a paper makes of them."""

from types import SimpleNamespace

import pytest

from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.expressions import Expression, MissingError
from gridgrad.experiments.papers.items import BESIDE, MEASURED, PREDICTED
from gridgrad.experiments.papers.paper import FUNCTIONS, Paper

TEXT = """
title = "Someone: Something (2020)"
about = "It measures."
measured_on = "maybe(tables['machine'], '')"

[values.batch]
value = 64
place = "section 2"

[tables."1"]
place = "Table 1"
columns = ["net", "ranks", "speedup"]
rows = [["a", 2, 1.5], ["a", 4, "-"], ["b", 2, 1.9]]

[[items]]
name = "Table 1"
title = "speedups at batch {v('batch')}"
source = "Table 1"
why = "Of {len(rows('steps'))} rows."
[[items.rows]]
each = "printed('1')"
label = "{net}, {ranks} ranks"
printed = "t('1', 'speedup', net, ranks)"
measured = "col('steps', 'speedup', net=net, ranks=ranks)[0]"
[[items.rows]]
label = "a over b"
derived = "t('1', 'speedup', 'a', 2) / t('1', 'speedup', 'b', 2)"
formula = "the first over the second"

[claims.faster]
says = "Two ranks are faster"
place = "section 3"
let = { speedups = "col('steps', 'speedup', ranks=2)" }
holds = "min(speedups) > 1"
numbers = "{span(speedups)} in {len(speedups)} cases"

[claims.four]
says = "Four ranks are faster"
place = "section 3"
holds = "min(col('steps', 'speedup', ranks=4)) > 1"
numbers = "-"

[claims.apart]
says = "All networks gain as much"
place = "section 3"
holds = "near(t('1', 'speedup', 'a', 2), t('1', 'speedup', 'b', 2))"
kind = "derived"
numbers = "1.5 and 1.9"

[claims.two]
says = "The batch is 64; it is 32"
place = "sections 2 and 3"
contradiction = true
numbers = "{v('batch')} and 32"
"""
STEPS = {"machine": "a machine", "steps": [
    {"net": "a", "ranks": 2, "speedup": 1.4}, {"net": "b", "ranks": 2, "speedup": 1.7},
    {"net": "b", "ranks": 4, "speedup": None},
]}  # fmt: skip


def made(text=TEXT):
    return Paper("made2020", text, SimpleNamespace(names=lambda tables: {}))


def value(text, is_text=False, **names):
    return Expression(text, "here", is_text)(FUNCTIONS | names)


def test_expressions_compute_as_in_python():
    assert value("[a * b for a, b in zip(x, x[1:]) if a > 1]", x=[1, 2, 3]) == [6]
    assert value("1 < 2 <= 2 and not 'a' in ['b'] and -2**2 == -4")
    assert value("max(x) if x else None", x=[]) is None
    assert value("{x:.2f} of {sum(a for a in [1, 2])} {{x}} 'a\" \\", True, x=1.234) == "1.23 of 3 {x} 'a\" \\"
    assert value("{'one' if x else 'none'}'", True, x=1) == "one'"


def test_and_and_or_decide_as_in_python():
    names = {"a": None, "yes": True, "no": False}
    found = [value(text, **names) for text in ("a and a[0]", "no and a", "a or yes", "not a", "yes and a", "yes or a[0]")]
    assert found == [None, False, True, True, None, True]


@pytest.mark.parametrize("text", [
    "x.real", "(lambda: 1)()", "x[0](1)", "__import__('os')", "(y := 1)", "{1, 2}", "b'a'", "f(", "[a async for a in x]",
    "nothing",
])  # fmt: skip
def test_nothing_else_can_run(text):
    with pytest.raises(ValueError, match="here: "):
        value(text, x=[1])


def test_maybe_takes_the_place_of_what_is_missing():
    def absent():
        raise MissingError("there is none")

    assert value("maybe(absent(), 3) + 1", absent=absent) == 4
    with pytest.raises(MissingError, match="there is none"):
        value("absent() + 1", absent=absent)


def test_claims_are_judged_by_their_expressions():
    claims = {claim.name: claim.finding for claim in made().claims(STEPS)}
    assert {name: claim.verdict for name, claim in claims.items()} == {
        "faster": HOLDS, "four": OPEN, "apart": DIFFERS, "two": CONTRADICTORY,
    }  # fmt: skip
    assert claims["faster"].numbers == "1.4 to 1.7 in 2 cases" and claims["two"].numbers == "64 and 32"
    assert "gridgrad reproduce made2020" in claims["four"].reason
    assert {claim.verdict for claim in made().claims({}) if claim.name == "faster"} == {OPEN}


def test_a_mistake_names_its_claim():
    wrong = TEXT.replace("min(speedups) > 1", "min(speedup) > 1")
    with pytest.raises(ValueError, match="claim 'faster': there is no 'speedup'"):
        made(wrong).claims(STEPS)
    with pytest.raises(ValueError, match="claim 'faster': .*no Attribute"):
        made(TEXT.replace("min(speedups) > 1", "speedups.x > 1")).claims(STEPS)


@pytest.mark.parametrize(("old", "new", "message"), [
    ('says = "Two ranks are faster"', "", "claim 'faster': says is missing"),
    ("holds = \"min(speedups) > 1\"", "hold = \"1\"", "claim 'faster': there is no hold: it may have"),
    ("holds = \"min(speedups) > 1\"", "", "claim 'faster': it needs `holds`, or `open`"),
    ('source = "Table 1"', "", "item 'Table 1': source is missing"),
    ("measured = ", "mesured = ", "row of item 'Table 1': there is no mesured"),
    ('place = "section 2"', "", "batch: it names no place"),
    ("[claims.two]", "[claims.two", r"\(at line 50"),
])  # fmt: skip
def test_a_mistake_in_the_file_names_its_entry(old, new, message):
    with pytest.raises(ValueError, match=f"made2020.toml.*{message}"):
        made(TEXT.replace(old, new, 1))


@pytest.mark.parametrize(("old", "new", "message"), [
    ("'steps', 'speedup', ranks=2", "'step', 'speedup', ranks=2", "there is no table 'step': there are machine, steps"),
    ("'steps', 'speedup', ranks=2", "'steps', 'gain', ranks=2", "'steps' has no column 'gain': it has net, ranks, speedup"),
    ("'steps', 'speedup', ranks=2", "'steps', 'speedup', P=2", "'steps' has no column 'P'"),
])  # fmt: skip
def test_a_table_or_column_that_there_is_not_is_a_mistake_and_not_a_lack(old, new, message):
    with pytest.raises(ValueError, match=f"claim 'faster': .*{message}"):
        made(TEXT.replace(old, new)).claims(STEPS)


def test_items_have_what_is_printed_and_measured_side_by_side():
    (item,) = made().items(STEPS)
    assert (item.title, item.why, item.status) == ("speedups at batch 64", "Of 3 rows.", BESIDE)
    assert [(row.label, row.cited and row.cited.value, row.measured) for row in item.rows] == [
        ("a, 2 ranks", 1.5, 1.4), ("a, 4 ranks", None, None), ("b, 2 ranks", 1.9, 1.7), ("a over b", 1.5 / 1.9, None),
    ]  # fmt: skip
    derived = item.rows[-1].cited
    assert (derived.place, derived.formula.words) == ("Table 1", "the first over the second")
    assert MEASURED in item.kinds and made().where(STEPS) == "a machine"


def test_an_item_may_be_one_for_each_line():
    more = """
[[items]]
each = "[{'net': net, 'most': max(col('steps', 'speedup', net=net))} for net in ['a', 'b']]"
name = "Figure 1, {net}"
title = "up to {most} times"
source = "{'section ' + net}"
[[items.rows]]
label = "speedup of {net}"
measured = "most"
"""
    items = made(TEXT.replace("[claims.faster]", more + "[claims.faster]", 1)).items(STEPS)[1:]
    assert [(item.name, item.title, item.source) for item in items] == [
        ("Figure 1, a", "up to 1.4 times", "section a"), ("Figure 1, b", "up to 1.7 times", "section b"),
    ]  # fmt: skip
    assert [(row.label, row.measured) for item in items for row in item.rows] == [("speedup of a", 1.4), ("speedup of b", 1.7)]


def test_a_kind_may_be_an_expression():
    for word in ("predicted", "guessed"):
        claims = made(TEXT.replace('kind = "derived"', f"kind = \"'{word}'\"")).claims
        if word == "predicted":
            assert {claim.name: claim.finding.kind for claim in claims(STEPS)}["apart"] == PREDICTED
        else:
            with pytest.raises(ValueError, match="claim 'apart': the kind is one of measured"):
                claims(STEPS)


def test_ranges_and_answers_may_say_nothing():
    assert value("[within((2, 3), low, 4) for low in (1, 2.5, 3.5)]") == [True, None, False]
    assert value("[agree([1 < 2, a]) for a in (1 < 2, 2 < 1)]") == [True, None] and value("agree([2 < 1])") is False
