"""`reproduce all`: parts that are kept and go on after a kill, items of the papers, and the page that shows them."""

import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from gridgrad.experiments import reproduce
from gridgrad.experiments.papers import page, page_text
from gridgrad.experiments.papers.cited import PRINTED, Cited
from gridgrad.experiments.papers.claims import DIFFERS, Claim, Finding, found
from gridgrad.experiments.papers.items import (
    ALONE,
    BESIDE,
    FORESEEN,
    KEPT,
    MEASURED,
    MISSING,
    PREDICTED,
    Item,
    ItemRow,
    paired,
)
from gridgrad.experiments.papers.parts import SHORT, Found, PaperPart, TimeLeft, in_turns, run_resumable
from gridgrad.parallel.job.run import UserError

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
    done = run_resumable({"a": few}, tmp_path, seconds=60, say=lambda line: None)
    assert ran == ["x", "y"] and done["a"].left_out == ["long"] and not done["a"].failures
    slow = [PaperPart("slow", lambda: time.sleep(60), 1, {})]
    done = run_resumable({"b": slow}, tmp_path, seconds=2, say=lambda line: None)
    assert done["b"].left_out == ["slow"] and not done["b"].results
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
    assert page_text.remark(both.rows[0]) == "now: one round; earlier: three rounds"
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


def test_the_deviation_is_that_of_each_quantity_and_of_one_processor():
    rows = (ItemRow("N = 1: s", printed(2.0), 1.0), ItemRow("N = 1: e", None, 5.0), ItemRow("N = 2: s", printed(4.0), 4.0),
            ItemRow("N = 2: e", printed(10), 5))  # fmt: skip
    words = "Ratio: "
    assert page_text.deviation(Item("T", "t", "s", rows)) == words + "s ■ 0.75 (0.5 to 1); e ■ 0.5"
    both = ItemRow("x", printed(2.0), 1.0, kept=4.0)
    assert page_text.deviation(Item("T", "t", "s", (both,))) == words + "■ 0.5, □ 2"
    assert page_text.deviation(Item("T", "t", "s", (ItemRow("words", printed("a"), "b"),))) == ""


EVIL = "<script>alert('x')</script>&\"><img src=x onerror=y>"


class Seen(HTMLParser):
    """The links, ids and texts of a page, and whether its tags close."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.open, self.texts, self.scripts = [], [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.scripts += tag == "script"
        assert not any(name.startswith("on") for name in given)
        if tag == "table":
            assert self.open[-1] == "div"  # whose box scrolls
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def made_up(text):
    """A Page that says `text` wherever it can."""
    rows = (ItemRow(text, Cited(text, PRINTED, text), text, kept=text, predicted=text, remark=text, kept_remark=text + "2"),)
    items = (Item(*[text] * 3, rows, *[text] * 4, reason=text, processor=text), Item("other", *[text] * 2))
    claims = Claim(text, text, text, True, Finding(DIFFERS, text, text)), Claim(text, text, text, False, found(True, text))
    return page.Page((page.Section(*[text] * 5, items, claims, text, text, (text,), 1, 3),), "kept", text)


def test_no_text_is_taken_for_markup():
    seen = Seen(page_text.html(made_up(EVIL)))
    assert seen.open == [] and seen.scripts == 1 and not any("onerror" in link for link in seen.links if link[0] != "#")
    assert "".join(seen.texts).count(EVIL) > 20


def test_the_page_of_what_is_kept_and_of_what_was_measured_now(tmp_path, monkeypatch):
    class Module:
        """A paper's functions."""

        tables = staticmethod(lambda measured: measured)
        gathered = staticmethod(lambda results, out: {"speedup": results["first"]})

    def items(tables):
        return [Item("Table 1", "a title", "section 1", (ItemRow("two ranks", printed(2.0), tables["speedup"]),), "why", "file",
                     command="reproduce a", figures=("one.png",))]  # fmt: skip

    claims = [Claim("faster", "It is faster", "section 1", True, found(True, "2"))]
    paper = SimpleNamespace(
        module=Module, items=items, claims=lambda tables: claims, where=lambda tables: "a machine" * bool(tables),
        title="Someone: Something", about="a", verdict="v", described="d", minutes=1,
    )  # fmt: skip
    monkeypatch.setattr(page, "paper_of", lambda name: paper)
    monkeypatch.setattr(page, "KEPT_RESULTS", tmp_path)
    for name, text in {"a": '{"speedup": 1.5}', "b": "{half a fi"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tables.json").write_text(text)
    (tmp_path / "a" / "one.png").write_bytes(b"a picture")
    out = tmp_path / "page"
    made = page.made(("a", "b"), {"a": Found({"first": 1.75}, left_out=["second"])}, out, SHORT)
    page.write(made, out)
    first, second = json.loads((out / "items.json").read_text())["sections"]
    values = {value["kind"]: value["value"] for value in first["items"][0]["values"]}
    assert values == {PRINTED: 2.0, MEASURED: 1.75, KEPT: 1.5} and first["left out"] == 1
    assert first["items"][0]["figures"] == [{"file": "a/kept-one.png", "kind": KEPT}] and (out / "a/kept-one.png").exists()
    assert "tables.json is damaged" in second["failures"][0]
    seen = Seen((out / "index.html").read_text())
    assert all(link[1:] in seen.ids if link.startswith("#") else (out / link).is_file() for link in seen.links)
    assert (out / "summary.md").read_text().count("It is faster") == 1


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
    modules = {"first": NoData, "second": Small}
    monkeypatch.setattr(reproduce, "NAMES", modules)
    monkeypatch.setattr(reproduce, "paper_of", lambda name: SimpleNamespace(module=modules[name]))
    seen = []

    def made(papers, found, out, form):
        seen.append(found)
        section = page.Section("first", "t", failures=tuple(found["first"].failures))
        return page.Page((section,), form, "today")

    monkeypatch.setattr(reproduce.page, "made", made)
    with pytest.raises(UserError, match="first: 1 failed, .*the first: mnist: no file x.gz; fetch it elsewhere"):
        reproduce.main(["all", "--out", str(tmp_path), "--ranks", "1,2"])
    assert seen[0]["second"].results == {"short on 2": {}}


def test_options_that_do_not_go_together_are_refused():
    for words, advice in (
        ("hegde2016 --minutes 3", "goes with all"),
        ("all --ranks 2", "hold 1"),
    ):
        with pytest.raises(UserError, match=advice):
            reproduce.main(words.split())
