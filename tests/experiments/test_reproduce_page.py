"""`reproduce all`: parts that are kept and go on after a kill, items of the papers, and the page that shows them."""

import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gridgrad.experiments import reproduce
from gridgrad.experiments.papers import laugier2018, page, page_html, page_markdown, page_words
from gridgrad.experiments.papers.all_papers import PAPERS
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED, PUBLISHED, Item, Row, deviation, merged, rows_of
from gridgrad.experiments.papers.parts import SHORT, Clock, Found, Part, in_turns, run_resumable
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure

SLOW = """
import sys, time
from pathlib import Path
from gridgrad.experiments.papers.parts import Part, run_resumable

def part(name, seconds):
    def run():
        with open(f"{sys.argv[1]}/ran", "a") as file:
            file.write(name + "\\n")
        time.sleep(seconds)
        return {"name": name}
    return Part(name, run, 1, {})

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

    return [Part(name, lambda name=name: run(name), 1, settings) for name in names]


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
    few = [*parts(ran, "x"), Part("long", lambda: ran.append("long"), 1e6, {}), *parts(ran, "y")]
    found = run_resumable({"a": few}, tmp_path, seconds=60, say=lambda line: None)
    assert ran == ["x", "y"] and found["a"].left_out == ["long"] and not found["a"].failures
    slow = [Part("slow", lambda: time.sleep(60), 1, {})]
    found = run_resumable({"b": slow}, tmp_path, seconds=2, say=lambda line: None)
    assert found["b"].left_out == ["slow"] and not found["b"].results
    clock = Clock(few[:1] * 60)
    clock.took(few[0], 181)
    assert clock.pace == pytest.approx(241 / 61) and clock.left() == "about 4 minutes left"
    assert [part.name for _, part in in_turns({"a": parts(ran, "abcd"), "b": parts(ran, "uv")})] == list("aubcvd")


def test_numbers_of_now_take_the_place_of_those_that_are_kept():
    row = lambda label, measured: Row(label, 2.0, measured, 3.0)  # noqa: E731
    item = lambda *rows, **more: Item("T", "t", "s", rows, command="reproduce p", **more)  # noqa: E731
    before, now = item(row("a", 1.0), row("b", 1.0), row("c", None)), item(row("a", 4.0), row("b", None), row("d", 5.0))
    (both,) = merged([now], [before], everything=False)
    assert [(one.label, one.measured, one.kept) for one in both.rows] == [
        ("a", 4.0, False), ("b", 1.0, True), ("c", None, False), ("d", 5.0, False),
    ]  # fmt: skip
    assert both.marks == {PUBLISHED, MEASURED, KEPT, PREDICTED}
    (alone,) = merged([], [before], everything=False)
    assert [one.kept for one in alone.rows] == [True, True, False]
    sums = item(row("a", 1.0), whole=True), item(row("a", 4.0), whole=True)
    assert [merged([sums[1]], [sums[0]], everything)[0].rows[0].measured for everything in (False, True)] == [1.0, 4.0]
    other = Item("T", "t", "s", (row("a", 4.0),), command="study roofline")
    assert merged([other], [other], True)[0].rows[0].kept  # no part of this run measures it


def test_the_deviation_is_that_of_each_quantity():
    lines = [
        {"n": 1, "s, p": 2.0, "s, m": 1.0, "e, p": "-", "e, m": 5.0},
        {"n": 2, "s, p": 4.0, "s, m": 4.0, "e, p": 10, "e, m": 5},
    ]
    rows = rows_of(lines, lambda line: f"N = {line['n']}", {"s": ("s, p", "s, m", None), "e": ("e, p", "e, m", None)})
    assert [row.label for row in rows] == ["N = 1: s", "N = 1: e", "N = 2: s", "N = 2: e"] and rows[1].published is None
    words = "Ratio to the published numbers, median (least to greatest): s measured 0.75 (0.5 to 1); e measured 0.5"
    assert deviation(Item("T", "t", "s", rows)) == words
    assert deviation(Item("T", "t", "s", (Row("words", "a", "b"),))) == ""


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
    (kept / "laugier2018" / "airfoil.png").write_bytes(Path("results/laugier2018/airfoil.png").read_bytes())
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
    assert {"laugier2018/airfoil.png", "grabaskas2018/figure4_1.png"} <= set(images)
    assert all(is_figure(out / image) for image in images)
    text = (out / "reproduce.md").read_text()
    assert all(f"]({image})" in text for image in images)


def test_the_page_has_every_item_and_says_what_is_missing(written):
    out, made = written
    text = " ".join(" ".join(Page((out / "index.html").read_text()).texts).split())
    markdown = (out / "reproduce.md").read_text()
    for section in made.sections:
        assert section.title in text and section.title in markdown
        for item in section.items:
            assert item.name in text and f"{item.name}" in markdown
            assert item.reproduced or item.reason in text
    assert "no file mnist.gz: fetch it <by hand>" in text and "too short for 1 part" in text
    assert "tables.json is damaged" in text
    first = made.sections[0]
    (figure,) = (item for item in first.items if item.name == "Figure 5")
    now = next(row for row in figure.rows if row.label == "airfoil, size 32, batch=2,model=1")
    assert now.measured == pytest.approx(1.5) and not now.kept and figure.figures[0][1] == MEASURED
    (figure,) = (item for item in first.items if item.name == "Figure 7")
    assert next(row for row in figure.rows if row.measured).kept and "an old machine" in text and "a new processor" in text


def test_every_number_has_a_mark_and_an_origin(written):
    _, made = written
    for section in made.sections:
        for item in section.items:
            origin = dict(page_words.provenance(section, item))
            for mark in item.marks:
                words = next((text for name, text in origin.items() if name.startswith(page_words.SYMBOLS[mark])), "")
                assert words.strip("; "), f"{section.paper}, {item.name}: where is what was {mark} from?"
            text = page_html.numbers(item)
            values = [value for row in item.rows for value in (row.published, row.measured, row.predicted) if value is not None]
            assert sum(text.count(f">{symbol}<") for symbol in page_words.SYMBOLS.values()) == len(values)
            lines = [line for line in page_markdown.of_item(section, item) if line.startswith("| ")]
            assert sum("".join(lines).count(symbol) for symbol in page_words.SYMBOLS.values()) == len(values)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "eserol2019" else ()) for name in PAPERS]
)
def test_every_item_has_a_published_value_or_a_reason(name):
    paper, items = PAPERS[name]
    for tables in (paper.tables(), json.loads((Path("results") / name / "tables.json").read_text())):
        found = items.items(tables)
        assert len({item.name for item in found}) == len(found) > 5
        for item in found:
            assert item.reason or all(row.published is not None for row in item.rows) and item.rows, item.name
            assert item.source and item.title, item.name
            assert not item.reproduced or item.why and item.command or item.model, item.name
            labels = [row.label for row in item.rows]
            assert len(set(labels)) == len(labels), f"{item.name}: two rows have one label"


class NoData:
    """A paper whose data are not there."""

    @staticmethod
    def to_measure(size, ranks, data_dir):
        raise OSError("mnist: no file x.gz; fetch it elsewhere")


class Small:
    """A paper with one part."""

    @staticmethod
    def to_measure(size, ranks, data_dir):
        return [Part(f"{size} on {max(ranks)}", dict, 1, {})]


def test_a_paper_without_data_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "PAPERS", {"first": (NoData, None), "second": (Small, None)})
    seen = []

    def write(papers, found, out, form):
        seen.append(found)
        section = page.Section("first", "t", "d", (), failures=tuple(found["first"].failures))
        return page.Page((section,), form, "today")

    monkeypatch.setattr(reproduce.page, "write", write)
    with pytest.raises(UserError, match="first: 1 failed, .*the first: mnist: no file x.gz; fetch it elsewhere"):
        reproduce.main(["all", "--out", str(tmp_path), "--ranks", "1,2"])
    assert seen[0]["second"].results == {"short on 2": {}}


def test_options_that_do_not_go_together_are_refused():
    for words, advice in (("all --full", "--long"), ("hegde2016 --long", "--full"), ("all --ranks 2", "hold 1")):
        with pytest.raises(UserError, match=advice):
            reproduce.main(words.split())


def test_what_is_on_the_page_of_the_repository_is_there():
    out = Path("results/reproduce")
    links = Page((out / "index.html").read_text()).links
    assert links and all(link.startswith("#") or (out / link).is_file() for link in links)
    assert [section["paper"] for section in json.loads((out / "items.json").read_text())["sections"]] == list(PAPERS)
