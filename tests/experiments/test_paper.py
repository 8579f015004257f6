"""Papers as data: expressions, and what a file of a paper makes of them: numbers with places, items, claims with verdicts."""

from types import SimpleNamespace

import pytest

from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN, Claim, Finding, with_now
from gridgrad.experiments.papers.expressions import Expression, MissingError
from gridgrad.experiments.papers.items import BESIDE, KEPT, MEASURED
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

[shared.steps]
place = "section 3"
let = { fastest = "max(speedups)", speedups = "col('steps', 'speedup', ranks=4)" }
holds = "min(speedups) > 1"

[claims.faster]
like = "steps"
says = "Two ranks are faster"
let = { speedups = "col('steps', 'speedup', ranks=2)" }
numbers = "{span(speedups)} in {len(speedups)} cases, {fastest:g} at most"

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


def test_expressions_compute_as_in_python_and_what_is_missing_may_say_nothing():
    def absent():
        raise MissingError("there is none")

    assert value("[a * b for a, b in zip(x, x[1:]) if a > 1]", x=[1, 2, 3]) == [6]
    assert value("1 < 2 <= 2 and not 'a' in ['b'] and -2**2 == -4")
    assert value("{x:.2f} of {sum(a for a in [1, 2])} {{x}} 'a\" \\", True, x=1.234) == "1.23 of 3 {x} 'a\" \\"
    found = [
        value(text, a=None) for text in ("a and a[0]", "1 > 2 and a", "a or 1 < 2", "not a", "1 < 2 and a", "1 < 2 or a[0]")
    ]
    assert found == [None, False, True, True, None, True]
    assert value("[within((2, 3), low, 4) for low in (1, 2.5, 3.5)]") == [True, None, False]
    assert value("[agree([1 < 2, a]) for a in (1 < 2, 2 < 1)]") == [True, None] and value("agree([2 < 1])") is False
    assert value("maybe(absent(), 3) + 1", absent=absent) == 4


@pytest.mark.parametrize("text", ["x.real", "(lambda: 1)()", "x[0](1)", "__import__('os')", "f("])
def test_nothing_else_can_run(text):
    with pytest.raises(ValueError, match="here: "):
        value(text, x=[1])


@pytest.mark.parametrize(("old", "new", "message"), [
    ('says = "Two ranks are faster"', "", "claim 'faster': says is missing"),
    ('place = "section 2"', "", "batch: it names no place"),
    ('like = "steps"', 'like = "step"', r"made2020.toml: like = 'step': there is no \[shared.step\]"),
    ('["a", 2, 1.5]', '["a", 2]', "has not one value for each"),
    ("min(speedups) > 1", "min(speedup) > 1", "claim 'faster': there is no 'speedup'"),
    ("'steps', 'speedup', ranks=2", "'step', 'speedup', ranks=2", "claim 'faster': .*there is no table 'step'"),
])  # fmt: skip
def test_a_mistake_in_the_file_names_its_entry(old, new, message):
    assert old in TEXT
    with pytest.raises(ValueError, match=message):
        made(TEXT.replace(old, new, 1)).claims(STEPS)


def test_claims_are_judged_by_their_expressions():
    claims = {claim.name: claim.finding for claim in made().claims(STEPS)}
    assert {name: claim.verdict for name, claim in claims.items()} == {
        "faster": HOLDS, "four": OPEN, "apart": DIFFERS, "two": CONTRADICTORY,
    }  # fmt: skip
    assert claims["faster"].numbers == "1.4 to 1.7 in 2 cases, 1.7 at most" and claims["two"].numbers == "64 and 32"
    assert "gridgrad reproduce made2020" in claims["four"].reason
    assert {claim.verdict for claim in made().claims({}) if claim.name == "faster"} == {OPEN}


def test_items_have_what_is_printed_and_measured_side_by_side():
    (item,) = made().items(STEPS)
    assert (item.title, item.why, item.status) == ("speedups at batch 64", "Of 3 rows.", BESIDE)
    assert [(row.label, row.cited and row.cited.value, row.measured) for row in item.rows] == [
        ("a, 2 ranks", 1.5, 1.4), ("a, 4 ranks", None, None), ("b, 2 ranks", 1.9, 1.7), ("a over b", 1.5 / 1.9, None),
    ]  # fmt: skip
    derived = item.rows[-1].cited
    assert (derived.place, derived.formula) == ("Table 1", "the first over the second")
    assert MEASURED in item.kinds and made().where(STEPS) == "a machine"


def test_two_findings_that_contradict_each_other_decide_nothing():
    def both(kept, now):
        (claim,) = with_now(*([Claim("grows", "The speedup grows.", "section 3", False, one)] for one in (kept, now)))
        return claim.verdict, [mark for mark, _ in claim.findings]

    nothing, varying = Finding(OPEN, "", "nothing measured"), Finding(OPEN, "0.9 to 1.5", "the rounds differ")
    assert both(Finding(HOLDS, "1.5"), Finding(DIFFERS, "0.8")) == (OPEN, [KEPT, MEASURED])
    assert both(nothing, Finding(DIFFERS, "0.8")) == (DIFFERS, [MEASURED])
    # What more rounds leave open a short measurement does not decide.
    assert both(varying, Finding(HOLDS, "1.4"))[0] == OPEN
