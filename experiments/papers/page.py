"""The page of all papers: its sections, one a paper, from what was measured now and what is kept in `results`."""

import json
import shutil
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.papers import page_html, page_json, page_markdown
from gridgrad.experiments.papers.all_papers import PAPERS
from gridgrad.experiments.papers.claims import with_now
from gridgrad.experiments.papers.item_figure import draw_item
from gridgrad.experiments.papers.items import KEPT, MEASURED, paired
from gridgrad.experiments.papers.parts import Found
from gridgrad.nn.files.whole_files import written_whole
from gridgrad.parallel.job.run import one_line

KEPT_RESULTS = Path("results")  # with a folder for each paper
SHORT_IS_WHOLE = "laugier2018", "hegde2016"  # papers of whose figures a short measurement has all points


@dataclass(frozen=True)
class Section:
    """A paper on the page.

    about: what the paper did, in a sentence. described: which of its tables and figures hold no results. here: where it was
    measured now, in words; kept: where the kept results were. failures: a line for each thing that failed. left_out: how many
    parts there was no time for.
    """

    paper: str
    title: str
    about: str
    described: str
    items: tuple
    claims: tuple
    here: str = ""
    kept: str = ""
    failures: tuple = ()
    left_out: int = 0


@dataclass(frozen=True)
class Page:
    """All sections. form: how much was measured. date: of the page."""

    sections: tuple
    form: str
    date: str


def section_of(name, found, out, whole):
    """The Section of a paper; its figures go to `out`/name.

    found: what its parts found. whole: whether these were all parts of the experiments.
    """
    paper = PAPERS[name]
    failures = list(found.failures)
    before = paper.module.tables(attempt(lambda: kept_of(name), failures) or {})
    now, fresh = {}, attempt(lambda: paper.module.gathered(found.results, out / name), failures) if found.results else None
    if fresh:
        now = attempt(lambda: paper.module.tables(fresh), failures) or {}
    drawn = bool(now) and not failures and not found.left_out and (whole or name in SHORT_IS_WHOLE)
    if drawn and hasattr(paper.module, "draw"):
        attempt(lambda: paper.module.draw(now, out / name), failures)
    old = attempt(lambda: (paper.items(before), paper.claims(before)), failures) or ([], [])
    new = (now and attempt(lambda: (paper.items(now), paper.claims(now)), failures)) or ([], [])
    items, claims = paired(new[0], old[0]), with_now(old[1], new[1])
    return Section(
        name, paper.title, paper.about, paper.described,
        tuple(with_figures(item, out / name, drawn) for item in items), tuple(claims),
        paper.where(now), paper.where(before), tuple(failures), len(found.left_out),
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
        found = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): get it again, or measure with gridgrad reproduce {name}") from None
    return found


def with_figures(item, folder, drawn):
    """The item with its figures as they stand in `folder`, beside the page: (path, its kind).

    What plots the rows of the item is drawn. Others were drawn now, if `drawn`; those of the kept results are copied beside.
    """
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


def write(papers, found, out, form):
    """Write index.html, reproduce.md and items.json into the folder `out`, figures beside them; returns the Page.

    papers: their names. found: {paper: Found}. form: how much was measured: "short", "long", or "kept" for nothing.
    """
    sections = tuple(section_of(name, found.get(name, Found()), out, form == "long") for name in papers)
    page = Page(sections, form, date.today().isoformat())
    write_json(out / "items.json", page_json.content(page))
    write_text(out / "reproduce.md", page_markdown.render(page))
    write_text(out / "index.html", page_html.render(page))  # the last one: what it links to is there
    return page
