"""The page of a study: what it says, that nothing of a record is taken for markup, and that it needs nothing beside it."""

import re
import shlex
import tomllib
from html.parser import HTMLParser

import pytest

from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.scaling import page
from gridgrad.experiments.scaling.records import lines, tags
from gridgrad.experiments.scaling.records import read as read_records
from gridgrad.experiments.scaling.study import Study
from tests.experiments.programs import run_main
from tests.experiments.scaling import made_up_studies as made_up

EVIL = '<script>alert("x")</script>'


class Read(HTMLParser):
    """What a page has: elements with attributes, the texts of tables by the id of their section, and all text."""

    VOID = {"meta", "br", "img", "link"}

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.tables, self.text, self.section = [], [], {}, [], None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "section":
            self.section = dict(attributes)["id"]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.tables.setdefault(self.section, []).append([])
        if tag in ("td", "th"):
            self.tables[self.section][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[self.section][-1][-1] += data

    def cells(self, section):
        """The rows of a table, as dicts."""
        head, *lines = self.tables[section]
        return [dict(zip(head, line, strict=True)) for line in lines]


def speedup(records):
    """A figure of the speedups."""
    return scaling.draw(curves.of_files({"this": [one for one in records if not one.get("predicted")]}), "speedup")[0]


def study(**settings):
    """The records of a study with a run that failed, a busy one, and predictions."""
    found = made_up.records(lambda point, n: (0.01 + 1e-4 * n) / point.ranks**0.5, **settings)
    found[-1]["load"] = made_up.BUSY
    of = Study(found[0]["sweep"] | {"schemes": ["batch", "model", "auto"]})
    for point in of.points:
        auto = point.settings["grid"] == "auto"
        found.append({
            "predicted": True, "machine": "a machine", "net": point.settings["net"], "dataset": "airfoil", "P": point.ranks,
            "grid": f"batch={point.ranks}" if auto else point.settings["grid"], "plan": "in,out", "point": point.settings,
            "repeat": 0, "environment": {"processor": "a machine"}, "seconds_per_step": {"median": 0.009 / point.ranks},
            "settings": {"batch_size": 100}, "fits": True, **tags(of, point),
        })  # fmt: skip
    eight = Study({"ranks": [8], "schemes": ["batch"]} | settings)
    failed = {"time": None, "bytes": None, "seconds_per_step": None, "failed": "ended with status 1: no memory"}
    return [*found, made_up.record(eight, eight.points[0]) | failed]


def test_the_page_says_what_was_measured_what_failed_and_what_the_planner_would_choose():
    read = Read(page.render(study(), "A study", {}))
    measured = read.cells("measured")
    assert [(one["series"], one["ranks"]) for one in measured] == [(s, p) for s in ("batch", "model") for p in "124"]
    assert (measured[2]["speedup"], measured[2]["efficiency %"], measured[2]["MB sent a step"]) == ("2", "50", "0.003")
    assert [(one["what"], one["ranks"], one["reason"]) for one in read.cells("left-out")] == [
        ("busy", "4", made_up.BUSY["verdict"]), ("failed", "8", "ended with status 1: no memory")]  # fmt: skip
    planner = read.cells("planner")
    assert [(one["ranks"], one["grid"], one["plan"]) for one in planner] == [(p, f"batch={p}", "in,out") for p in "24"]
    assert planner[1]["measured fastest"].startswith("batch=1,model=4 (model)")  # its slowest run does not count
    text = " ".join(read.text)
    assert all(words in text for words in ("1 network, 31 runs, 7 predictions", "a library 1.0", "c0de", "2.01 (1.92 to 2.1)"))
    with pytest.raises(ValueError, match="there are no runs"):
        page.render([], "A study")


def fails(records):
    raise ValueError(EVIL)


def test_nothing_of_a_record_is_taken_for_markup():
    records = study(network=[{"net": "mlp:8,relu", "name": EVIL}])
    for record in records:
        record["environment"] = record["environment"] | {"mpi": EVIL, EVIL: EVIL}
        record["dataset"] = EVIL
        if record.get("failed"):
            record["failed"] = f"{EVIL}<img src=x onerror=y>"
    text = page.render(records, EVIL, {EVIL: fails})
    read = Read(text)
    assert [tag for tag, _ in read.elements].count("script") == 1 and "alert(" not in text.split("<script>")[1]
    assert not any(tag == "img" or name.startswith("on") for tag, attributes in read.elements for name in attributes)
    assert "".join(read.text).count(EVIL) > 10


def test_the_page_needs_nothing_beside_it():
    text = page.render(study(), "A study", {"Speedup": speedup, "Again": speedup})
    read = Read(text)
    addresses = [value for _, attributes in read.elements for name, value in attributes.items()
                 if name in ("src", "href", "xlink:href")]  # fmt: skip
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert addresses and all(one.startswith("#") and one[1:] in ids for one in addresses)
    assert len(ids) == len(set(ids)) and all(one in ids for one in re.findall(r"url\(#([^)]+)\)", text))
    assert [attributes["aria-label"] for tag, attributes in read.elements if tag == "svg"] == ["Speedup", "Again"]
    assert text == page.render(study(), "A study", {"Speedup": speedup, "Again": speedup})  # the same bytes


def test_the_settings_on_the_page_are_those_of_the_study():
    settings = {"network": [{"net": "mlp:8,relu", "name": 'a "name" \\ of ü\U0001f600'}], "interval": 2.5, "profile": True,
                "series": [{"name": "2-D", "grid": "batch=*,model=2", "batch_size": 7}], "scaling": ["weak", "strong"],
                "ranks": [2, 4]}  # fmt: skip
    [repeat] = page.commands(made_up.records(**settings))
    assert tomllib.loads(repeat["settings"]) == {"schemes": ["batch", "model"]} | settings
    assert (repeat["command"], repeat["remark"]) == ("gridgrad sweep study.toml --out study.jsonl", "")


@pytest.mark.parametrize("options", [
    ["--nets", "mlp:8,relu;mlp:16,relu", "--shape", 7, "--outputs", 3, "--schemes", "batch,auto", "--machine", "ethernet-1g"],
    ["--nets", "mlp:8,relu", "--dataset", "airfoil", "--weak", "--vary", "batch-size=20;40"],
])  # fmt: skip
def test_the_command_of_predictions_predicts_the_same(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    run_main(monkeypatch, "sweep", "--predict", "1,2", *options, "--out", "first.jsonl")
    [repeat] = page.commands(read_records("first.jsonl"))
    (tmp_path / "study.toml").write_text(repeat["settings"])
    run_main(monkeypatch, *shlex.split(repeat["command"])[1:])
    first, again = ([one | {"sweep": None} for one in read_records(path)] for path in ("first.jsonl", "study.jsonl"))
    assert first == again and repeat["remark"] == ""


def test_the_program_writes_the_page_and_what_the_points_say(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "s.jsonl", tmp_path / "s.html"
    path.write_text(lines(study()))
    run_main(monkeypatch, "plot", "speedup", path, "--model", "--out", out)
    said, text = capsys.readouterr().out, out.read_text()
    assert said.endswith(f"\n{out} written\n") and "<h1>Scaling study s</h1>" in text
    assert all("Serial fractions of strong scaling" in one for one in (said, text))
