"""The page of a study: what it says, that nothing of a record is taken for markup, and that it needs nothing beside it."""

import re
import shlex
import tomllib
from html.parser import HTMLParser

import pytest

from gridgrad.experiments.plots.style import plt
from gridgrad.experiments.scaling import page
from gridgrad.experiments.scaling.records import lines, tags
from gridgrad.experiments.scaling.records import read as read_records
from gridgrad.experiments.scaling.study import Study, check_settings
from gridgrad.experiments.scaling.summary import rows
from tests.experiments.programs import program
from tests.experiments.scaling import made_up_studies as made_up

MACHINE = "ethernet-1g"
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
    figure, panel = plt.subplots()
    found = [row for row in rows(records) if row.speedup and not row.is_predicted]
    if not found:
        raise ValueError("there is no run on 1 rank to compare with")
    for curve in dict.fromkeys(row.curve for row in found):
        points = [(row.ranks, row.speedup.value) for row in found if row.curve == curve]
        panel.plot(*zip(*points, strict=True), "o-", label=f"{curve.network}, {curve.series}")
    panel.set(xlabel="ranks P", ylabel="speedup over 1 rank")
    panel.legend()
    return figure


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
    read = Read(page.render(study(), "A study", {"Speedup": speedup}))
    measured = read.cells("measured")
    assert [(one["series"], one["ranks"]) for one in measured] == [(s, p) for s in ("batch", "model") for p in "124"]
    assert (measured[2]["speedup"], measured[2]["efficiency %"], measured[2]["MB sent a step"]) == ("2", "50", "0.003")
    assert [(one["what"], one["ranks"], one["reason"]) for one in read.cells("left-out")] == [
        ("busy", "4", made_up.BUSY["verdict"]), ("failed", "8", "ended with status 1: no memory")]  # fmt: skip
    planner = read.cells("planner")
    assert [(one["ranks"], one["grid"], one["plan"], one["of"]) for one in planner] == [
        (p, f"batch={p}", "in,out", "all grids") for p in "24"]  # fmt: skip
    assert planner[1]["measured fastest"].startswith("batch=1,model=4 (model)")  # its slowest run does not count
    text = " ".join(read.text)
    assert all(words in text for words in ("1 network, 31 runs, 7 predictions", "a library 1.0", "c0de", "2.01 (1.92 to 2.1)"))
    assert len(read.cells("predicted")) == len(rows([one for one in study() if one.get("predicted")]))
    records = [one for one in study() if one["point"]["grid"] != "auto"]
    assert {one["of"] for one in Read(page.render(records, "A study", {})).cells("planner")} == {"the series here"}
    with pytest.raises(ValueError, match="there are no runs"):
        page.render([], "A study")


@pytest.mark.parametrize("disturbed", [[1], [2, 4], [1, 2, 4]])
def test_no_speedup_is_told_of_runs_in_unlike_conditions(disturbed):
    found = made_up.records(lambda point, n: 0.04 if point.ranks in disturbed else 0.001, schemes=["batch"])
    found = [one | {"load": made_up.BUSY if one["P"] in disturbed else None} for one in found]
    read = Read(page.render(found, "A study", {}))
    text = " ".join(read.text)
    assert "times" not in text.split("Measured")[0]
    assert all(
        (one.get("speedup", "") in ("", "-")) == (len(disturbed) < 3) for one in read.cells("measured") if one["ranks"] != "1"
    )
    assert ("No speedup of" in text) == (len(disturbed) < 3)


def test_nothing_of_a_record_is_taken_for_markup():
    records = study(network=[{"net": "mlp:8,relu", "name": EVIL}])
    for record in records:
        record["environment"] = record["environment"] | {"mpi": EVIL, EVIL: EVIL}
        record["dataset"] = EVIL
        if record.get("failed"):
            record["failed"] = f"{EVIL}<img src=x onerror=y>"
    text = page.render(records, EVIL, {EVIL: speedup, f"{EVIL}2": lambda records: fails(EVIL)})
    read = Read(text)
    assert [tag for tag, _ in read.elements].count("script") == 1 and "alert(" not in text.split("<script>")[1]
    assert not any(tag == "img" or name.startswith("on") for tag, attributes in read.elements for name in attributes)
    assert "".join(read.text).count(EVIL) > 10


def fails(words):
    raise ValueError(words)


def test_the_page_needs_nothing_beside_it():
    text = page.render(study(), "A study", {"Speedup": speedup, "Again": speedup})
    read = Read(text)
    addresses = [value for _, attributes in read.elements for name, value in attributes.items()
                 if name in ("src", "href", "xlink:href")]  # fmt: skip
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert addresses and all(one.startswith("#") and one[1:] in ids for one in addresses)
    assert len(ids) == len(set(ids))
    assert all(one in ids for one in re.findall(r"url\(#([^)]+)\)", text))
    assert [attributes["aria-label"] for tag, attributes in read.elements if tag == "svg"] == ["Speedup", "Again"]
    assert text == page.render(study(), "A study", {"Speedup": speedup, "Again": speedup})  # the same bytes


def test_a_figure_that_can_not_be_drawn_is_a_reason():
    records = [one for one in study() if one["P"] > 1 and not one.get("predicted")]
    text = page.render(records, "A study", {"Speedup": speedup})
    assert "<svg" not in text and "Speedup is not drawn: there is no run on 1 rank to compare with" in text


def test_boxes_that_scroll_can_be_reached_with_the_keyboard_and_have_names():
    boxes = [attributes for tag, attributes in Read(page.render(study(), "A study", {"S": speedup})).elements
             if attributes.get("class") == "box"]  # fmt: skip
    assert len(boxes) > 5 and all(one["tabindex"] == "0" and one["role"] == "region" and one["aria-label"] for one in boxes)


@pytest.mark.parametrize(
    "settings",
    [
        {"nets": ["mlp:8,relu"], "ranks": [1, 2], "interval": 2.5, "profile": True},
        {
            "network": [{"net": "mlp:8,relu", "name": 'a "name" \\ of ü\U0001f600'}],
            "series": [{"name": "2-D", "grid": "batch=*,model=2", "batch_size": 7}],
            "scaling": ["weak", "strong"],
            "ranks": [2, 4],
        },  # fmt: skip
    ],
)
def test_the_settings_on_the_page_are_those_of_the_study(settings):
    [repeat] = page.commands(made_up.records(**settings))
    found = tomllib.loads(repeat["settings"])
    check_settings(found)
    assert found == {"ranks": [1, 2, 4], "schemes": ["batch", "model"]} | settings
    assert (repeat["command"], repeat["remark"]) == ("gridgrad sweep study.toml --out study.jsonl", "")


def test_commands_of_predictions():
    of = [one for one in study() if one.get("predicted")]
    [repeat] = page.commands(of)
    assert repeat["command"] == "gridgrad sweep study.toml --out study.jsonl --predict 1,2,4 --machine machine.json"
    assert "machine.json stands for 'a machine'" in repeat["remark"]
    known = [one | {"machine": name} for name in ("Cori Haswell", "1 Gbit Ethernet cluster") for one in of]
    assert [one["command"].split()[-1] for one in page.commands(known)] == ["cori-haswell", "ethernet-1g"]
    page_text = page.render([one | {"sweep": {}} for one in of], "A study", {})
    assert page.NO_SETTINGS in Read(page_text).text and "study.toml" not in page_text


@pytest.mark.parametrize(
    "options",
    [
        ["--nets", "mlp:8,relu;mlp:16,relu", "--shape", 7, "--outputs", 3, "--schemes", "batch,auto", "--machine", MACHINE],
        ["--nets", "lenet5;mlp:8,relu", "--grids", "batch=*;batch=8", "--weak"],
        ["--nets", "mlp:8,relu", "--dataset", "airfoil", "--vary", "batch-size=20;40"],
    ],
)
def test_the_command_of_predictions_predicts_the_same(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    first = program("sweep", "--predict", "1,2", *options, "--out", "first.jsonl")
    assert first.returncode == 0, first.stderr
    [repeat] = page.commands(read_records("first.jsonl"))
    (tmp_path / "study.toml").write_text(repeat["settings"])
    assert program(*shlex.split(repeat["command"])[1:]).returncode == 0 and repeat["remark"] == ""
    without = lambda path: [one | {"sweep": None} for one in read_records(path)]  # noqa: E731
    assert without("study.jsonl") == without("first.jsonl")


def test_the_program_writes_the_page_and_what_the_points_say(tmp_path):
    path, out = tmp_path / "s.jsonl", tmp_path / "s.html"
    path.write_text(lines(study()))
    finished = program("plot", "speedup", path, "--model", "--out", out)
    assert finished.returncode == 0 and finished.stdout.endswith(f"\n{out} written\n"), finished.stderr
    text = out.read_text()
    assert all("Serial fractions of strong scaling" in one for one in (finished.stdout, text))
    assert "<h1>Scaling study s</h1>" in text
    path.write_text('{"net": 1}\n')
    finished = program("plot", "speedup", path, "--out", out)
    assert finished.returncode == 2 and "line 1, is no report of a sweep" in finished.stderr
    finished = program("study", "scaling-page", path)
    assert finished.returncode == 2 and "the study scaling-page is gone: use gridgrad plot speedup" in finished.stderr
