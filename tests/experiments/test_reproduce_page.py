"""`reproduce all`: parts that are kept and go on after a kill, items of the papers, and the page that shows them."""

import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from gridgrad.experiments import reproduce
from gridgrad.experiments.papers import page, page_html, page_words
from gridgrad.experiments.papers.all_papers import PAPERS
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, READ, Cited
from gridgrad.experiments.papers.claims import DIFFERS, VERDICTS, Claim, Finding
from gridgrad.experiments.papers.items import (
    ALONE,
    BESIDE,
    FORESEEN,
    KEPT,
    KINDS,
    MEASURED,
    MISSING,
    PREDICTED,
    STATUSES,
    Item,
    ItemRow,
    deviation,
    paired,
    rows_of,
)
from gridgrad.experiments.papers.laugier2018 import experiments as laugier2018
from gridgrad.experiments.papers.parts import SHORT, Found, PaperPart, TimeLeft, in_turns, run_resumable
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure

SLOW = """
import sys, time
from pathlib import Path
from gridgrad.experiments.papers.parts import PaperPart, run_resumable

def part(name, seconds):
    def run():
        with open(f"{sys.argv[1]}/ran", "a") as file:
            file.write(name + "\\n")
        time.sleep(seconds)
        return {"name": name}
    return PaperPart(name, run, 1, {})

slow = float(sys.argv[2])
run_resumable({"paper": [part("first", 0), part("second", slow), part("third", 0)]}, Path(sys.argv[1]) / "state")
"""


def parts(ran, names, **settings):
    """Parts that note in `ran` that they ran; those whose names begin with "bad" fail."""

    def run(name):
        ran.append(name)
        if name.startswith("bad"):
            raise OSError(2, "No such file or directory", "data.gz")
        return {"name": name}

    return [PaperPart(name, lambda name=name: run(name), 1, settings) for name in names]


def test_what_is_done_is_not_done_again(tmp_path):
    ran, lines = [], []
    first = run_resumable({"a": parts(ran, "xy"), "b": parts(ran, ["bad", "z"])}, tmp_path, say=lines.append)
    assert ran == ["x", "bad", "y", "z"] and first["a"].results == {"x": {"name": "x"}, "y": {"name": "y"}}
    assert first["b"].failures == ["bad: data.gz: No such file or directory"] and list(first["b"].results) == ["z"]
    assert "about" in lines[0] and "left" in lines[-1]
    again = run_resumable({"a": parts(ran, "xy"), "b": parts(ran, ["bad", "z"])}, tmp_path, say=lines.append)
    assert ran[4:] == ["bad"] and again["a"] == first["a"]
    run_resumable({"a": parts(ran, "xy", steps=2)}, tmp_path, say=lines.append)
    assert ran[5:] == ["x", "y"]  # of other settings
    next((tmp_path / "b").glob("z-*.json")).write_text('{"settings": {')
    run_resumable({"b": parts(ran, ["z"])}, tmp_path, say=lines.append)
    assert ran[7:] == ["z"]  # a damaged file counts as none


def test_a_run_that_was_killed_goes_on(tmp_path):
    words = [sys.executable, "-c", SLOW, str(tmp_path)]
    process = subprocess.Popen([*words, "60"], stderr=subprocess.DEVNULL)
    ran, limit = tmp_path / "ran", time.monotonic() + 60
    while time.monotonic() < limit and (not ran.exists() or "second" not in ran.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sorted(path.name.split("-")[0] for path in (tmp_path / "state").rglob("*"))
    assert kept == ["first", "paper"]  # no file of the second part, neither whole nor half
    subprocess.run([*words, "0"], check=True, stderr=subprocess.DEVNULL, timeout=60)
    assert ran.read_text().split() == ["first", "second", "second", "third"]


def test_parts_that_do_not_fit_into_the_time_are_left_out(tmp_path):
    ran = []
    few = [*parts(ran, "x"), PaperPart("long", lambda: ran.append("long"), 1e6, {}), *parts(ran, "y")]
    found = run_resumable({"a": few}, tmp_path, seconds=60, say=lambda line: None)
    assert ran == ["x", "y"] and found["a"].left_out == ["long"] and not found["a"].failures
    slow = [PaperPart("slow", lambda: time.sleep(60), 1, {})]
    found = run_resumable({"b": slow}, tmp_path, seconds=2, say=lambda line: None)
    assert found["b"].left_out == ["slow"] and not found["b"].results
    clock = TimeLeft(few[:1] * 60)
    clock.took(few[0], 181)
    assert clock.pace == pytest.approx(241 / 61) and clock.left() == "about 4 minutes left"
    assert [part.name for _, part in in_turns({"a": parts(ran, "abcd"), "b": parts(ran, "uv")})] == list("aubcvd")


def printed(value):
    return Cited(value, PRINTED, "section 1")


def test_numbers_of_now_stand_beside_those_that_are_kept():
    row = lambda label, measured, remark="": ItemRow(label, printed(2.0), measured, 3.0, remark)  # noqa: E731
    item = lambda *rows, **more: Item("T", "t", "s", rows, command="reproduce p", **more)  # noqa: E731
    before = item(row("a", 1.0, "three rounds"), row("b", 1.0), row("c", None))
    now = item(row("a", 4.0, "one round"), row("b", None), row("d", 5.0))
    (both,) = paired([now], [before])
    assert [(one.label, one.measured, one.kept) for one in both.rows] == [
        ("a", 4.0, 1.0), ("b", None, 1.0), ("c", None, None), ("d", 5.0, None),
    ]  # fmt: skip
    assert (both.rows[0].remark, both.rows[0].kept_remark) == ("one round", "three rounds")
    assert both.kinds == {PRINTED, MEASURED, KEPT, PREDICTED}
    assert page_words.remark(both.rows[0]) == "now: one round; earlier: three rounds"
    (alone,) = paired([], [before])
    assert [(one.measured, one.kept) for one in alone.rows] == [(None, 1.0), (None, 1.0), (None, None)]
    other = Item("T", "t", "s", (row("a", 4.0),), command="summary")
    (kept,) = paired([other], [other])  # no part of this run measures it
    assert (kept.rows[0].measured, kept.rows[0].kept) == (None, 4.0)


def test_what_was_done_of_an_item_has_four_names():
    rows = {
        BESIDE: ItemRow("a", printed(2.0), 1.0), ALONE: ItemRow("a", None, 1.0, 2.0),
        FORESEEN: ItemRow("a", printed(2.0), None, 1.0), MISSING: ItemRow("a", printed(2.0)),
    }  # fmt: skip
    assert [Item("T", "t", "s", (row,)).status for row in rows.values()] == list(rows)
    assert Item("T", "t", "s", (rows[ALONE], rows[MISSING])).status == ALONE  # what is printed stands beside nothing measured
    assert Item("T", "t", "s", (rows[ALONE], rows[BESIDE])).status == BESIDE


def test_columns_name_their_processors():
    rows = (ItemRow("a", printed(2.0), 1.0, kept=3.0), ItemRow("b", None, 4.0))
    section = page.Section("p", "t: x", "", "", (), (), here="new (family 1, model 2), MPI", kept="old, MPI")
    heads = [head for head, _ in page_words.columns(section, Item("T", "t", "s", rows), rows)]
    assert heads == ["paper", "measured now (new (family 1, model 2))", "measured earlier (old)"]
    heads = [head for head, _ in page_words.columns(section, Item("T", "t", "s", rows, processor="third"), rows[:1])]
    assert heads[-1] == "measured earlier (third)"
    assert [head for head, _ in page_words.columns(section, Item("T", "t", "s"), rows[1:])][0].startswith("measured now")


def test_the_deviation_is_that_of_each_quantity_and_of_one_processor():
    lines = [
        {"n": 1, "s, p": 2.0, "s, m": 1.0, "e, p": "-", "e, m": 5.0},
        {"n": 2, "s, p": 4.0, "s, m": 4.0, "e, p": 10, "e, m": 5},
    ]
    cited = lambda name: lambda line: None if line[name] == "-" else printed(line[name])  # noqa: E731
    rows = rows_of(
        lines, lambda line: f"N = {line['n']}", {"s": (cited("s, p"), "s, m", None), "e": (cited("e, p"), "e, m", None)}
    )
    assert [row.label for row in rows] == ["N = 1: s", "N = 1: e", "N = 2: s", "N = 2: e"] and rows[1].cited is None
    words = "Ratio to the numbers of the paper, median (least to greatest): "
    assert deviation(Item("T", "t", "s", rows)) == words + "s measured now 0.75 (0.5 to 1); e measured now 0.5"
    both = ItemRow("x", printed(2.0), 1.0, kept=4.0)
    assert deviation(Item("T", "t", "s", (both,))) == words + "measured now 0.5, measured earlier 2"
    assert deviation(Item("T", "t", "s", (ItemRow("words", printed("a"), "b"),))) == ""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a page that is made of formulas and of two made-up measurements, one now and one kept; and the Page."""
    folder = tmp_path_factory.mktemp("reproduce")
    kept, out = folder / "results", folder / "page"
    papers = {name: modules for name, modules in PAPERS.items() if name != "eserol2019"}  # whose tables take seconds
    for name in papers:
        (kept / name).mkdir(parents=True)
    grids = {"batch=1,model=1": 1.0, "batch=2,model=1": 1.5, "batch=2,model=2": 0.5}
    speedups = [speedup(*one) for one in grids.items()]
    measured = {"machine": "an old machine", "data": [], "counted": [], "scatter": [], "speedups": speedups}
    (kept / "laugier2018" / "tables.json").write_text(json.dumps(laugier2018.tables(measured)))
    for figure in ("airfoil.png", "predicted.png"):
        (kept / "laugier2018" / figure).write_bytes(Path("results/laugier2018/airfoil.png").read_bytes())
    (kept / "marques2016" / "tables.json").write_text("{half a fi")
    seconds = {"batch=1,model=1": 3.0, "batch=2,model=1": 2.0}
    results = {f"airfoil, {grid}": report(grid, number) for grid, number in seconds.items()}
    found = {
        "laugier2018": Found(results), "grabaskas2018": Found(failures=["no file mnist.gz: fetch it <by hand>"]),
        "hegde2016": Found(left_out=["2 CPU threads"]),
    }  # fmt: skip
    before, page.KEPT_RESULTS = page.KEPT_RESULTS, kept
    try:
        return out, page.write(papers, found, out, SHORT)
    finally:
        page.KEPT_RESULTS = before


def speedup(grid, value):
    about = {"data": "airfoil", "net": "mlp:32,32,32,relu", "grid": grid}
    return about | {"speedup": value, "min": value, "max": value, "oversubscribed": False}


def report(grid, seconds):
    """One of a sweep."""
    ranks = 1 if grid == "batch=1,model=1" else 2
    return {
        "dataset": "airfoil", "net": "mlp:32,32,32,relu", "grid": grid, "P": ranks, "plan": ["out"] * 4, "features": 4,
        "outputs": 1,
        "settings": {"batch_size": 100, "dtype": "float32", "plan": "out", "reduction": "plain", "grid": grid}, "repeat": 0,
        "versions": {"threads": 1, "processor": "a new processor", "mpi": "MPI"}, "slots": 2, "oversubscribed": False,
        "point": {"net": "mlp:32,32,32,relu", "grid": grid, "batch_size": 100, "dataset": "airfoil"}, "sweep": {},
        "curves": [["mlp:32,32,32,relu", "batch", "strong"]], "environment": {"processor": "a new processor"},
        "seconds_per_step": {"median": seconds}, "samples_per_step": 100.0, "communication": [],
    }  # fmt: skip


class Page(HTMLParser):
    """The links, images, ids and texts of a page, and whether its tags close."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.open, self.texts, self.widths = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.ids += [found[name] for name in ("id",) if name in found]
        assert tag != "script" and not any(name.startswith("on") for name in found)
        if tag == "table":
            assert self.open[-1] == "div"  # whose box scrolls
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_all_links_lead_somewhere(written):
    out, _ = written
    found = Page((out / "index.html").read_text())
    assert found.open == [] and len(found.ids) == len(set(found.ids))
    for link in found.links:
        assert "://" not in link and not link.startswith("/"), link
        assert link[1:] in found.ids if link.startswith("#") else (out / link).is_file(), link
    images = [link for link in found.links if link.endswith(".png")]
    assert {"laugier2018/airfoil.png", "laugier2018/kept-airfoil.png", "grabaskas2018/figure4_1.png"} <= set(images)
    assert all(is_figure(out / image) for image in images)
    text = (out / "reproduce.md").read_text()
    assert all(f"]({image})" in text for image in images)


def test_no_text_is_taken_for_markup():
    evil = "<script>alert('x')</script>&\"><img src=x onerror=y>"
    rows = (ItemRow(evil, Cited(evil, PRINTED, evil), evil, kept=evil, predicted=evil, remark=evil, kept_remark=evil + "2"),)
    items = [Item(*[evil] * 3, rows, *[evil] * 4, figures=((evil, ""),), reason=evil, processor=evil), Item(*[evil] * 3)]
    claim = Claim(evil, evil, evil, True, Finding(DIFFERS, evil, evil))
    section = page.Section(*[evil] * 4, tuple(items), (claim,), evil, evil, (evil,), 1)
    html = page_html.render(page.Page((section,), "kept", evil))
    assert "<script" not in html and "<img src=x" not in html and Page(html).open == []
    assert "".join(Page(html).texts).count(evil) > 20


def test_the_page_has_every_item_and_says_what_is_missing(written):
    out, made = written
    html = (out / "index.html").read_text()
    text = " ".join(" ".join(Page(html).texts).split())
    markdown = (out / "reproduce.md").read_text()
    for section in made.sections:
        assert section.title in text and section.title in markdown
        for item in section.items:
            assert item.name in text and f"{item.name}" in markdown
            assert item.status != MISSING or page_html.inline(item.reason) in html
    assert "no file mnist.gz: fetch it <by hand>" in text and "too short for 1 part" in text
    assert "tables.json is damaged" in text
    first = made.sections[0]
    (figure,) = (item for item in first.items if item.name == "Figure 5")
    row = next(row for row in figure.rows if row.label == "airfoil, size 32, batch=2,model=1")
    assert row.measured == pytest.approx(1.5) == row.kept  # side by side, with the names of both processors
    assert [kind for _, kind in figure.figures] == [MEASURED, KEPT]
    assert "measured now (a new processor)" in text and "measured earlier (an old machine)" in text


def test_the_summary_comes_first_and_has_the_main_claims(written):
    out, made = written
    html = (out / "index.html").read_text()
    summary = html[html.index('<section id="summary">') : html.index('<section id="contents">')]
    for section in made.sections:
        main = [claim for claim in section.claims if claim.main]
        assert 3 <= len(main) <= 8
        for claim in main:
            assert page_html.inline(claim.says) in summary and claim.verdict in summary
    order = [VERDICTS.index(claim.verdict) for claim in made.sections[0].claims]
    assert order == sorted(order)  # contrary results first
    assert html.index('id="summary"') < html.index('id="contents"') < html.index('id="laugier2018"')


def test_the_counts_add_up(written):
    _, made = written
    for what, heads, rows in page_words.counts(made):
        *papers, total = rows.values()
        assert len(papers) == len(made.sections) and len(heads) == len(total) >= 3
        assert total == [sum(column) for column in zip(*papers, strict=True)]
        if what == "tables and figures":
            assert sum(total) == sum(len(section.items) for section in made.sections)


def test_every_number_has_a_mark_and_an_origin(written):
    out, made = written
    html, markdown = (out / "index.html").read_text(), (out / "reproduce.md").read_text()
    for section in made.sections:
        for item in section.items:
            origin = dict(page_words.provenance(section, item))
            for kind in item.kinds:
                words = next((text for name, text in origin.items() if name.startswith(page_words.SYMBOLS[kind])), "")
                assert words.strip("; `"), f"{section.paper}, {item.name}: where is what was {kind} from?"
            count = sum(len(row.values) for row in item.rows)
            if item.status == MISSING:
                continue
            text = html.split(f'<article id="{page_html.anchor(section, item)}">')[1].split("</article>")[0]
            symbols = [symbol for symbol, _ in page_words.LEGEND.values()]
            assert sum(text.count(f">{symbol}<") for symbol in symbols) == count
            in_section = markdown.split(f"\n## {section.title}\n")[1]
            text = in_section.split(f"\n### {item.name}: {item.title}\n")[1].split("\n### ")[0].split("\n## ")[0]
            lines = [line for line in text.splitlines() if line.startswith("| ")]
            assert sum("".join(lines).count(symbol) for symbol in symbols) == count


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "eserol2019" else ()) for name in PAPERS]
)
def test_every_item_has_a_number_of_the_paper_or_a_reason(name):
    paper = PAPERS[name]
    for tables in (
        paper.module.tables(),
        paper.module.tables(json.loads((Path("results") / name / "tables.json").read_text())),
    ):
        found = paper.items(tables)
        assert len({item.name for item in found}) == len(found) > 5
        for item in found:
            assert item.reason or all(row.cited is not None for row in item.rows) and item.rows, item.name
            assert item.source and item.title, item.name
            assert item.status == MISSING or item.why and (item.command or item.results) or item.model, item.name
            labels = [row.label for row in item.rows]
            assert len(set(labels)) == len(labels), f"{item.name}: two rows have one label"
        claims = paper.claims(tables)
        assert claims and all(claim.verdict in VERDICTS for claim in claims)


class NoData:
    """A paper whose data are not there."""

    @staticmethod
    def to_measure(size, ranks, data_dir):
        raise OSError("mnist: no file x.gz; fetch it elsewhere")


class Small:
    """A paper with one part."""

    @staticmethod
    def to_measure(size, ranks, data_dir):
        return [PaperPart(f"{size} on {max(ranks)}", dict, 1, {})]


def test_a_paper_without_data_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "PAPERS", {"first": SimpleNamespace(module=NoData), "second": SimpleNamespace(module=Small)})
    seen = []

    def write(papers, found, out, form):
        seen.append(found)
        section = page.Section("first", "t", "a", "d", (), (), failures=tuple(found["first"].failures))
        return page.Page((section,), form, "today")

    monkeypatch.setattr(reproduce.page, "write", write)
    with pytest.raises(UserError, match="first: 1 failed, .*the first: mnist: no file x.gz; fetch it elsewhere"):
        reproduce.main(["all", "--out", str(tmp_path), "--ranks", "1,2"])
    assert seen[0]["second"].results == {"short on 2": {}}


def test_options_that_do_not_go_together_are_refused():
    for words, advice in (
        ("hegde2016 --minutes 3", "goes with all"),
        ("hegde2016 --long", "--full"),
        ("all --ranks 2", "hold 1"),
    ):
        with pytest.raises(UserError, match=advice):
            reproduce.main(words.split())


def test_what_is_on_the_page_of_the_repository_is_there():
    out = Path("results/reproduce")
    links = Page((out / "index.html").read_text()).links
    assert links and all(link.startswith("#") or (out / link).is_file() for link in links)
    sections = json.loads((out / "items.json").read_text())["sections"]
    assert [section["paper"] for section in sections] == list(PAPERS)
    for section in sections:
        assert {claim["verdict"] for claim in section["claims"]} <= {"holds", "does not hold", "can not be decided"}
        assert {item["status"] for item in section["items"]} <= set(STATUSES)
        for value in (value for item in section["items"] for value in item["values"]):
            assert value["kind"] in KINDS and (value["kind"] not in (PRINTED, READ, DERIVED) or value["place"])
