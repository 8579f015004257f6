"""`reproduce`: parts that are kept, each paper from its kept results, and the page of all of them."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from gridgrad.experiments import reproduce
from gridgrad.experiments.papers import page, page_text
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, Cited
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, Claim, Finding
from gridgrad.experiments.papers.items import KEPT, MEASURED, Item, ItemRow
from gridgrad.experiments.papers.paper import NAMES, paper_of
from gridgrad.experiments.papers.parts import PaperPart, run_resumable
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure

RESULTS = Path("results")
FIGURES = {"hegde2016": 4, "marques2016": 1}  # of the kept results


# ----- parts


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
    again = run_resumable({"a": parts(ran, "xy"), "b": parts(ran, ["bad", "z"])}, tmp_path, say=lines.append)
    assert ran[4:] == ["bad"] and again["a"] == first["a"]
    run_resumable({"a": parts(ran, "xy", steps=2)}, tmp_path, say=lines.append)
    assert ran[5:] == ["x", "y"]  # of other settings
    next((tmp_path / "b").glob("z-*.json")).write_text('{"settings": {')
    run_resumable({"b": parts(ran, ["z"])}, tmp_path, say=lines.append)
    assert ran[7:] == ["z"]  # a damaged file counts as none


# ----- papers


@pytest.mark.parametrize("name", NAMES)
def test_tables_figures_and_summary_come_out_of_kept_results_without_a_measurement(name, tmp_path, monkeypatch, capsys):
    """Each item has a number of the paper or a reason, each derived number its formula, each claim a verdict."""
    monkeypatch.setattr(reproduce, "run_resumable", None)
    shutil.copy(RESULTS / name / "tables.json", tmp_path)
    reproduce.main([name, "--tables-only", "--out", str(tmp_path)])
    summary, figures = (tmp_path / "summary.md").read_text(), list(tmp_path.glob("*.png"))
    assert summary in capsys.readouterr().out
    assert len(figures) == FIGURES.get(name, 0) and all(map(is_figure, figures))
    paper = paper_of(name)
    for tables in (paper.module.tables(), json.loads((tmp_path / "tables.json").read_text())):
        items, claims = paper.items(tables), paper.claims(tables)
        assert isinstance(paper.where(tables), str)
        for item in items:
            assert item.reason or item.rows and all(row.cited for row in item.rows), item.name
        assert all(row.cited.formula for item in items for row in item.rows if row.cited and row.cited.kind == DERIVED)
        assert {claim.name for claim in claims} == set(paper.claim_data)


def test_the_page_of_all_papers_comes_out_of_kept_results(tmp_path):
    reproduce.main([*NAMES, "--tables-only", "--out", str(tmp_path)])
    sections = json.loads((tmp_path / "items.json").read_text())["sections"]
    assert [(section["paper"], section["failures"]) for section in sections] == [(name, []) for name in NAMES]
    text = (tmp_path / "index.html").read_text()
    ids, links = (set(re.findall(rf'<[^>]* {name}="([^"]+)"', text)) for name in ("id", "(?:href|src)"))
    assert [one for one in links if one.removeprefix("#") not in ids and not (tmp_path / one).is_file()] == []


def test_no_text_is_taken_for_markup():
    evil = "<script>alert('x')</script>&\"><img src=x onerror=y>"
    row = ItemRow(evil, Cited(evil, PRINTED, evil), evil, kept=evil, predicted=evil, remark=evil, kept_remark=evil + "2")
    items = (Item(*[evil] * 3, (row,), *[evil] * 4, reason=evil, processor=evil),)
    claims = Claim(evil, evil, evil, True, Finding(DIFFERS, evil, evil)), Claim(evil, evil, evil, False, Finding(HOLDS, evil))
    section = page.Section(*[evil] * 5, items, claims, evil, evil, (evil,), 1, 3)
    text = page_text.html(page.Page((section,), "kept", evil))
    assert "alert" in text and "<script>alert" not in text and "<img src=x" not in text and '&"' not in text


def test_a_paper_that_fails_does_not_stop_the_others_and_what_is_measured_stands_beside_what_is_kept(tmp_path, monkeypatch):
    def has_no_data(size, ranks, data_dir):
        raise OSError("mnist: no file x.gz; fetch it elsewhere")

    good = {
        "to_measure": lambda size, ranks, data_dir: [PaperPart("speed", lambda: max(ranks), 1, {})],
        "gathered": lambda results, out: {"speedup": results["speed"]}, "tables": lambda measured: measured,
    }  # fmt: skip
    modules = {"a": SimpleNamespace(**good), "b": SimpleNamespace(**good | {"to_measure": has_no_data})}

    def items(tables):
        row = ItemRow("two ranks", Cited(2.0, PRINTED, "section 1"), tables.get("speedup"))
        return [Item("Table 1", "a title", "section 1", (row,), "why", "file", command="reproduce a")]

    def paper_of(name):
        return SimpleNamespace(
            module=modules[name], items=items, claims=lambda tables: [], where=lambda tables: "a machine",
            title="Someone: Something", about="a", verdict="v", described="d", minutes=1,
        )  # fmt: skip

    for name, text in {"a": '{"speedup": 1.5}', "b": "{half a fi"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tables.json").write_text(text)
    for module in (page, reproduce):
        monkeypatch.setattr(module, "paper_of", paper_of)
    monkeypatch.setattr(page, "KEPT_RESULTS", tmp_path)
    monkeypatch.setattr(reproduce, "NAMES", ("b", "a"))
    with pytest.raises(UserError, match="b: 2 failed, .*the first: mnist: no file x.gz; fetch it elsewhere"):
        reproduce.main(["all", "--out", str(tmp_path), "--ranks", "1,3"])
    second, first = json.loads((tmp_path / "items.json").read_text())["sections"]
    assert {value["kind"]: value["value"] for value in first["items"][0]["values"]} == {PRINTED: 2.0, MEASURED: 3, KEPT: 1.5}
    assert "tables.json is damaged" in second["failures"][1]


def test_options_that_do_not_go_together_are_refused():
    for words, advice in (("hegde2016 --minutes 3", "goes with several"), ("all --ranks 2", "hold 1")):
        with pytest.raises(UserError, match=advice):
            reproduce.main(words.split())
