"""The page of all papers as JSON, for other programs.

    {"form", "date", "sections": [
        {"paper", "title", "about", "described", "processors", "failures", "left out",
         "items": [{"name", "title", "status", "values": [{"label", "kind", "value", "place", ..}, ..], ..}, ..],
         "claims": [{"name", "says", "place", "main", "verdict",
                     "findings": [{"kind", "verdict", "numbers", "reason"}, ..]}, ..],
         "contradictions": [the same of passages of the paper that contradict each other]}, ..]}

The words of kinds, statuses and verdicts are those of the page, see `cited.py`, `items.py` and `claims.py`.
"""

from gridgrad.experiments.papers.claims import CONTRADICTORY
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED


def content(page):
    """All that is on a Page, as what JSON knows."""
    return {"form": page.form, "date": page.date, "sections": [of_section(section) for section in page.sections]}


def of_section(section):
    claims = [of_claim(claim) for claim in section.claims]
    return {
        "paper": section.paper, "title": section.title, "about": section.about, "described": section.described,
        "processors": {MEASURED: section.here, KEPT: section.kept}, "failures": list(section.failures),
        "left out": section.left_out, "items": [of_item(item, section) for item in section.items],
        "claims": [claim for claim in claims if claim["verdict"] != CONTRADICTORY],
        "contradictions": [claim for claim in claims if claim["verdict"] == CONTRADICTORY],
    }  # fmt: skip


def of_item(item, section):
    where = {MEASURED: section.here, KEPT: item.processor or section.kept}
    return {
        "name": item.name, "title": item.title, "source": item.source, "status": item.status, "reason": item.reason,
        "why": item.why, "results": item.results, "model": item.model, "command": item.command,
        "processors": {kind: place for kind, place in where.items() if kind in item.kinds},
        "figures": [{"file": file} | ({"kind": kind} if kind else {}) for file, kind in item.figures],
        "values": [value for row in item.rows for value in of_row(row)],
    }  # fmt: skip


def of_row(row):
    """The values of a row, one of each kind. What is of the paper names its place, what is derived its formula as well."""
    measured = row.measured is not None or row.kept is not None
    more = {MEASURED: {"remark": row.remark}, KEPT: {"remark": row.kept_remark}}
    more[PREDICTED] = {} if measured else {"remark": row.remark or row.kept_remark}
    if row.cited is not None:
        formula = row.cited.formula.words if row.cited.formula else ""
        more[row.cited.kind] = {"place": row.cited.place, "uncertainty": row.cited.uncertainty, "formula": formula}
    for kind, value in row.values.items():
        yield {"label": row.label, "kind": kind, "value": value} | {name: said for name, said in more[kind].items() if said}


def of_claim(claim):
    findings = [
        {"kind": kind, "verdict": verdict(one), "numbers": one.numbers, "reason": one.reason} for kind, one in claim.findings
    ]
    found = {"name": claim.name, "says": claim.says, "place": claim.place, "main": claim.main}
    return found | {"verdict": verdict(claim), "findings": findings}


def verdict(one):
    """That of a claim or a finding, without the word "here": what is in the file was all found here."""
    return one.verdict.removesuffix(" here")
