"""The page of all papers: its sections, one a paper, from what was measured now and what is kept in `results`.

`items.json` has all that is on it, for other programs:

    {"form", "date", "sections": [
        {"paper", "title", "about", "described", "processors", "failures", "left out",
         "items": [{"name", "title", "status", "values": [{"label", "kind", "value", "place", ..}, ..], ..}, ..],
         "claims": [{"name", "says", "place", "main", "verdict",
                     "findings": [{"kind", "verdict", "numbers", "reason"}, ..]}, ..],
         "contradictions": [the same of passages of the paper that contradict each other]}, ..]}
"""

import json
import shutil
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from textwrap import fill

from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.papers import page_text
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, READ
from gridgrad.experiments.papers.claims import CONTRADICTORY, with_now
from gridgrad.experiments.papers.items import KEPT, MEASURED, OURS, PREDICTED, is_number, paired
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.experiments.papers.parts import Found
from gridgrad.experiments.plots.style import plt, save
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.parallel.job.run import one_line

KEPT_RESULTS = Path("results")  # with a folder for each paper
COLOURS = {PRINTED: "#777777", READ: "#999999", DERIVED: "#bbbbbb", MEASURED: "#1f77b4", KEPT: "#8fbbdb", PREDICTED: "#e39a3b"}
KIND_WORDS = {PRINTED: "printed in the paper", READ: "read off the paper", DERIVED: "derived from the paper",
         **OURS}  # fmt: skip
SHORT_IS_WHOLE = "laugier2018", "hegde2016"  # papers of whose figures a short measurement has all points


@dataclass(frozen=True)
class Section:
    """A paper on the page.

    about: what the paper claims. answer: whether it holds here, in a sentence or two. described: which of its tables and
    figures hold no results. here: where it was measured now, in words; kept: where the kept results were. failures: a line for
    each thing that failed. left_out: how many parts there was no time for. minutes: that its experiments take.
    """

    paper: str
    title: str
    about: str = ""
    answer: str = ""
    described: str = ""
    items: tuple = ()
    claims: tuple = ()
    here: str = ""
    kept: str = ""
    failures: tuple = ()
    left_out: int = 0
    minutes: int | None = None


@dataclass(frozen=True)
class Page:
    """All sections. form: how much was measured. date: of the page."""

    sections: tuple
    form: str
    date: str


def section_of(name, found, out, whole):
    """The Section of a paper; its figures go to `out`/name. found: what its parts found. whole: whether these were all parts of
    the experiments."""
    failures = list(found.failures)
    if (paper := attempt(lambda: paper_of(name), failures)) is None:
        return Section(name, name, failures=tuple(failures))
    before = paper.module.tables(attempt(lambda: kept_of(name), failures) or {})
    now, fresh = {}, attempt(lambda: paper.module.gathered(found.results, out / name), failures) if found.results else None
    if fresh:
        now = attempt(lambda: paper.module.tables(fresh), failures) or {}
    drawn = bool(now) and not failures and not found.left_out and (whole or name in SHORT_IS_WHOLE)
    if drawn:
        attempt(lambda: paper.draw(now, out / name), failures)
    old = attempt(lambda: (paper.items(before), paper.claims(before)), failures) or ([], [])
    new = (now and attempt(lambda: (paper.items(now), paper.claims(now)), failures)) or ([], [])
    items, claims = paired(new[0], old[0]), with_now(old[1], new[1])
    return Section(
        name, paper.title, paper.about, paper.verdict, paper.described,
        tuple(with_figures(item, out / name, drawn) for item in items), tuple(claims),
        paper.where(now), paper.where(before), tuple(failures), len(found.left_out), paper.minutes,
    )  # fmt: skip


def attempt(action, failures):
    """What a function returns; None, and a line in `failures`, if it fails."""
    try:
        return action()
    except Exception as error:  # whatever it is, the rest of the page is none the worse
        failures.append(f"{type(error).__name__}: {one_line(error)}")
        return None


def kept_of(name):
    """The kept measurement of a paper, {} where there is none; ValueError if its file holds none."""
    path = KEPT_RESULTS / name / "tables.json"
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): get it again, or measure with gridgrad reproduce {name}") from None


def with_figures(item, folder, drawn):
    """The item with its figures as they stand in `folder`, beside the page: (path, its kind). What plots the rows of the item
    is drawn. Others were drawn now, if `drawn`; those of the kept results are copied beside."""
    found = []
    for figure in item.figures:
        path, kept = folder / Path(figure).name, KEPT_RESULTS / folder.name / figure
        if drawn and "/" not in figure and path.exists():
            found.append((f"{folder.name}/{path.name}", MEASURED))
        if kept.exists():
            copy = folder / f"kept-{path.name}"
            with written_whole(copy) as beside:
                shutil.copyfile(kept, beside)
            found.append((f"{folder.name}/{copy.name}", KEPT if KEPT in item.kinds else ""))
    if item.plot:
        draw_item(item, folder / item.plot)
        found.append((f"{folder.name}/{item.plot}", ""))
    return replace(item, figures=tuple(found))


def draw_item(item, path):
    """Draw a panel for each quantity of an item, with bars for each of its rows, and write it to `path`."""
    quantities = list(dict.fromkeys(row.quantity for row in item.rows))
    size = 7, 0.8 + 2.4 * len(quantities)
    figure, panels = plt.subplots(len(quantities), 1, figsize=size, layout="constrained", squeeze=False)
    shown = set()
    for panel, quantity in zip(panels[:, 0], quantities):
        rows = [row for row in item.rows if row.quantity == quantity]
        for place, row in enumerate(rows):
            values = {kind: value for kind, value in row.values.items() if is_number(value)}
            for number, (kind, value) in enumerate(values.items()):
                at = place + 0.26 * (number - (len(values) - 1) / 2)
                bars = panel.bar(at, value, 0.24, color=COLOURS[kind])
                panel.bar_label(bars, fmt="%.3g", fontsize=8)
                shown.add(kind)
        labels = [fill(row.label.removesuffix(f": {quantity}"), 60 // len(rows)) for row in rows]
        panel.set_xticks(range(len(rows)), labels, fontsize=8)
        panel.set_ylabel(quantity)
        panel.margins(y=0.15)
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind]) for kind in COLOURS if kind in shown]
    figure.legend(handles, [KIND_WORDS[kind] for kind in COLOURS if kind in shown], loc="outside lower center", ncols=4)
    figure.suptitle(fill(f"{item.name}: {item.title}", 90), fontsize=10)
    save(figure, path)


def made(papers, found, out, form):
    """The Page, whose figures go to the folder `out`. papers: their names. found: {paper: Found}. form: how much was measured:
    "short", "long", or "kept" for nothing."""
    sections = tuple(section_of(name, found.get(name, Found()), out, form == "long") for name in papers)
    return Page(sections, form, date.today().isoformat())


def of_one(name, tables, form):
    """The Page of one paper, from its tables alone."""
    paper = paper_of(name)
    shown = paper.title, paper.about, paper.verdict, paper.described, tuple(paper.items(tables)), tuple(paper.claims(tables))
    return Page((Section(name, *shown, here=paper.where(tables), minutes=paper.minutes),), form, date.today().isoformat())


def write(page, out):
    """Write index.html, summary.md and items.json into the folder `out`."""
    write_json(out / "items.json", content(page))
    write_text(out / "summary.md", page_text.markdown(page))
    write_text(out / "index.html", page_text.html(page))  # the last one: what it links to is there


# ----- items.json


def content(page):
    """All that is on a Page, as what JSON knows."""
    return {"form": page.form, "date": page.date, "sections": [of_section(section) for section in page.sections]}


def of_section(section):
    claims = {word: [of_claim(claim) for claim in section.claims if (claim.verdict == CONTRADICTORY) == contradicts]
              for word, contradicts in (("claims", False), ("contradictions", True))}  # fmt: skip
    return {
        "paper": section.paper, "title": section.title, "about": section.about, "described": section.described,
        "processors": {MEASURED: section.here, KEPT: section.kept}, "failures": list(section.failures),
        "left out": section.left_out, "items": [of_item(item, section) for item in section.items], **claims,
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
        more[row.cited.kind] = {name: getattr(row.cited, name) for name in ("place", "uncertainty", "formula")}
    for kind, value in row.values.items():
        yield {"label": row.label, "kind": kind, "value": value} | {name: said for name, said in more[kind].items() if said}


def of_claim(claim):
    findings = [{"kind": kind, "verdict": in_file(one.verdict), "numbers": one.numbers, "reason": one.reason}
                for kind, one in claim.findings]  # fmt: skip
    found = {"name": claim.name, "says": claim.says, "place": claim.place, "main": claim.main}
    return found | {"verdict": in_file(claim.verdict), "findings": findings}


def in_file(verdict):
    """A verdict without the word "here": what is in the file was all found here."""
    return verdict.removesuffix(" here")
