"""What papers say: numbers with their places, derived numbers with their formulas, claims with their verdicts."""

import json
import tomllib
from pathlib import Path

import pytest

from gridgrad.experiments.papers.cited import DERIVED, PRINTED, RATIO, READ, Cited, Formula, of_content
from gridgrad.experiments.papers.claims import (
    CONTRADICTORY,
    DIFFERS,
    HOLDS,
    OPEN,
    Finding,
    contradictory,
    found,
    judged,
    undecided,
    with_now,
)
from gridgrad.experiments.papers.items import KEPT, MEASURED, MISSING
from gridgrad.experiments.papers.paper import NAMES, paper_of

TEXT = """
[tables."5.1"]
place = "Table 5.1, page 3"
columns = ["N", "max", "mean"]
rows = [[2, 30, 20], [4, "-", 10]]

[tables.text]
columns = ["what", "value", "place"]
rows = [["CPU", 1.5, "section 2"]]

[tables.curve]
place = "Figure 1"
uncertainty = "+-0.2"
columns = ["P", "speedup"]
rows = [[2, 1.4]]

[values.best]
value = 5.8
place = "abstract"

[claims.grows]
says = "The speedup grows with P."
place = "section 3"
main = true

[claims.exact]
says = "Nothing is lost."
place = "section 4"
"""


def test_numbers_have_a_kind_and_a_place():
    known = of_content(tomllib.loads(TEXT))
    table = known.tables["5.1"]
    assert table.cited("max", 2) == Cited(30, PRINTED, "Table 5.1, page 3")
    assert table.cited("max", 4) is None and table.cited("max", 8) is None  # not printed; no such row
    assert known.tables["text"].cited("value", "CPU").place == "section 2"
    assert known.tables["curve"].cited("speedup", 2) == Cited(1.4, READ, "Figure 1", "+-0.2")
    assert known.values["best"].value == 5.8 and known.claims["grows"].main and not known.claims["exact"].main


def test_what_is_derived_is_computed_by_its_formula():
    known = of_content(tomllib.loads(TEXT))
    ratio = RATIO(known.tables["5.1"].cited("max", 2), known.tables["5.1"].cited("mean", 2))
    assert (ratio.value, ratio.kind, ratio.place) == (1.5, DERIVED, "Table 5.1, page 3") and ratio.formula is RATIO
    both = RATIO(known.values["best"], known.tables["text"].cited("value", "CPU"))
    assert both.place == "abstract; section 2"
    assert RATIO(known.values["best"], known.tables["5.1"].cited("max", 4)) is None
    own, best = Formula("the best times P", lambda speedup, ranks: speedup * ranks, "equation 3"), known.values["best"]
    assert own(best, 4) == Cited(5.8 * 4, DERIVED, "equation 3", formula=own, inputs=(best, 4))
    with pytest.raises(ValueError, match="without a number of the paper nothing is derived"):
        own(5.8, 4)


@pytest.mark.parametrize(
    "before, after, words",
    [
        ('place = "Table 5.1, page 3"', "", "table 5.1: it names no place"),
        ('place = "abstract"', "", "best: it names no place"),
        ('place = "section 3"', 'place = ""', "grows: it names no place"),
        ("[2, 30, 20]", "[2, 30]", "has not one value for each"),
        ('"section 2"]', '""]', "a row names no place"),
        ('[tables."5.1"]', 'stray = 3\n[tables."5.1"]', "stray: numbers stand in tables or in values"),
    ],
)
def test_a_number_without_a_place_is_refused(before, after, words):
    assert before in TEXT
    with pytest.raises(ValueError, match=words):
        of_content(tomllib.loads(TEXT.replace(before, after, 1)))


def test_a_kind_needs_what_makes_it_one():
    for wrong in (
        {"kind": PRINTED, "place": ""},
        {"kind": READ, "place": "Figure 1"},
        {"kind": DERIVED, "place": "section 1"},
        {"kind": PRINTED, "place": "section 1", "formula": RATIO},
        {"kind": PRINTED, "place": "section 1", "uncertainty": "+-1"},
    ):
        with pytest.raises(ValueError, match="needs its place"):
            Cited(1.0, **wrong)


def test_no_claim_is_without_a_verdict():
    known = of_content(tomllib.loads(TEXT))
    findings = {"grows": found(True, "1.5"), "exact": found(False, "0.9", "messages")}
    assert [(one.name, one.verdict) for one in judged(known, findings)] == [("exact", DIFFERS), ("grows", HOLDS)]
    for wrong in ({"grows": found(True, "1.5")}, findings | {"other": found(True, "2")}):
        with pytest.raises(ValueError, match="without a verdict"):
            judged(known, wrong)
    assert contradictory("5.8 at 1,024 and at 512").verdict == CONTRADICTORY
    for wrong in (("true", "1", ""), (HOLDS, "", "why"), (OPEN, "1", "")):
        with pytest.raises(ValueError, match="needs a verdict"):
            Finding(*wrong)


def test_two_measurements_that_contradict_each_other_decide_nothing():
    known = of_content(tomllib.loads(TEXT))
    both = {"grows": found(True, "1.5"), "exact": undecided("nothing measured")}
    before = judged(known, both)
    assert with_now(before, []) == before
    exact, grows = with_now(before, judged(known, {"grows": found(False, "0.8"), "exact": found(False, "0.9", "messages")}))
    assert (exact.name, exact.verdict, exact.findings) == ("exact", DIFFERS, [(MEASURED, found(False, "0.9", "messages"))])
    assert grows.verdict == OPEN and [mark for mark, _ in grows.findings] == [KEPT, MEASURED]
    before = judged(known, both | {"grows": undecided("the rounds differ", "0.9 to 1.5")})
    (grows,) = (one for one in with_now(before, judged(known, both | {"grows": found(True, "1.4")})) if one.name == "grows")
    assert grows.verdict == OPEN  # what more rounds leave open a short measurement does not decide


@pytest.mark.parametrize("name", NAMES)
def test_every_paper(name):
    """Each item has a number of the paper or a reason, each number its place, each claim a verdict."""
    paper = paper_of(name)
    assert len(paper.known.claims) >= 10 and 3 <= sum(claim.main for claim in paper.known.claims.values()) <= 8
    for kept in (None, json.loads((Path("results") / name / "tables.json").read_text())):
        tables = paper.module.tables(kept)
        items, claims = paper.items(tables), paper.claims(tables)
        assert len({item.name for item in items}) == len(items) > 5
        for item in items:
            assert item.reason or item.rows and all(row.cited for row in item.rows), item.name
            assert item.source and item.title, item.name
            assert item.status == MISSING or item.why and (item.command or item.results) or item.model, item.name
            labels = [row.label for row in item.rows]
            assert len(set(labels)) == len(labels), f"{item.name}: two rows have one label"
        for one in (row.cited for item in items for row in item.rows if row.cited and row.cited.kind == DERIVED):
            assert one.formula.words and one.formula.value(*one.inputs) == one.value
        assert {claim.name for claim in claims} == set(paper.known.claims)
        assert not [claim.name for claim in claims if claim.main and claim.verdict == CONTRADICTORY]


def processors(value):
    """All that are named in what a file of JSON holds."""
    if isinstance(value, dict):
        mine = {value["processor"]} if isinstance(value.get("processor"), str) else set()
        return mine.union(*map(processors, value.values()))
    return set().union(*map(processors, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", NAMES)
def test_no_kept_result_mixes_processors(name):
    for path in sorted((Path("results") / name).glob("*.json")):
        found = processors(json.loads(path.read_text()))
        assert len(found) <= 1, f"{path} has numbers of {sorted(found)}"
