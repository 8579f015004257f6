"""Lines of anything: which rows files have, and what is drawn of them."""

import json

import matplotlib.pyplot as plt
import pandas
import pytest

from gridgrad.experiments.plots import lines
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import program

REPORT = [{"net": "a", "seconds": {"median": 2}, "ways": [
    {"way": way, "history": [{"epoch": epoch, "loss": number + 1 / epoch} for epoch in (1, 2, 3)], "times": [1, 4]}
    for number, way in enumerate(("batch", "model"))
]}]  # fmt: skip


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(REPORT))
    return path


def shown(axes):
    """{x: y} of the markers of each line."""
    marked = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in marked]


def test_lists_of_entries_are_rows_with_what_stands_around_them(report):
    rows = lines.read([report]).to_dict("records")
    assert {(row["net"], row["seconds.median"], row["file"]) for row in rows} == {("a", 2, "r")}
    assert [(row["way"], row["epoch"], row["loss"]) for row in rows if row["epoch"] > 2] == [
        ("batch", 3, pytest.approx(1 / 3)), ("model", 3, pytest.approx(4 / 3))
    ]  # fmt: skip
    assert [(row["index"], row["times"]) for row in rows if row["times"] > 0] == [(0, 1), (1, 4)] * 2


def test_series_are_lines_and_rows_with_the_same_x_a_median_with_its_range(report, tmp_path):
    figure = lines.draw(lines.read([report]), "epoch", ["loss"], ["way"])
    made_up.assert_whole(figure)
    assert shown(figure.axes[0])[1] == pytest.approx({1: 2, 2: 1.5, 3: 4 / 3})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["batch", "model"]
    together = lines.draw(lines.read([report]), "epoch", ["loss"]).axes[0]
    assert shown(together)[0][1] == pytest.approx(1.5)
    assert together.collections[0].get_segments()[0][:, 1].tolist() == pytest.approx([1, 2])
    path = tmp_path / "t.csv"
    path.write_text("size,time,low,high,kind\n1,10,9,12,a\n2,5,4,6,a\n4,3,2,3,b\n")
    table = lines.read([path])
    [axes] = lines.draw(table, "size", ["time"], log="x,y", bars=("low", "high"), labels=("size (MB)", "s")).axes
    assert axes.get_xscale() == axes.get_yscale() == "log" and (axes.get_xlabel(), axes.get_ylabel()) == ("size (MB)", "s")
    assert axes.collections[0].get_segments()[0][:, 1].tolist() == [9, 12]
    panels = lines.draw(table, "size", ["time", "high"], panel="kind", only=["time"]).axes
    assert [axes.get_title() for axes in panels] == ["kind: a", "kind: b"] and [len(shown(axes)) for axes in panels] == [1, 1]
    assert len(lines.chosen(table, {"kind": "a", "size": "2"})) == 1


def test_a_logarithmic_axis_of_many_values_has_round_numbers():
    table = pandas.DataFrame({"size": [0.003 * 1.2**n for n in range(30)], "time": range(30)})
    [axes] = lines.draw(table, "size", ["time"], log="x").axes
    assert [text.get_text() for text in axes.get_xticklabels()][1:-1] == ["0.01", "0.1"]


def test_runs_of_a_sweep_have_the_columns_of_its_table(tmp_path):
    made_up.written(tmp_path / "s.jsonl", made_up.records())
    table = lines.read([tmp_path / "s.jsonl"])
    figure = lines.draw(table, "ranks", ["samples_a_second"], ["series"], "network", "x")
    assert shown(figure.axes[0])[0] == pytest.approx({ranks: 1000 * ranks**0.8 for ranks in (1, 2, 4)})
    out = tmp_path / "m.png"
    finished = program("plot", "lines", tmp_path / "s.jsonl", "--x", "ranks", "--y", "peak_memory_bytes", "--series", "series",
                       "--where", "ranks=2", "--out", out)  # fmt: skip
    assert finished.returncode == 0 and is_figure(out), finished.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r.json", "--x", "epoch", "--y", "los"], "there is no column los: there are "),
        (["r.json", "--x", "net", "--y", "way"], "no row has a number for way beside net"),
        (["r.json", "--x", "way", "--y", "loss", "--log", "x"], "way has no logarithm"),
        (["r.json", "--x", "epoch", "--y", "loss", "--where", "way=2d"], "no row has way=2d: there are batch, model"),
        (["r.json", "--x", "epoch", "--y", "loss", "--bars", "loss"], "--bars LOW,HIGH: two columns"),
        (["r.json", "--x", "epoch", "--y", "loss", "--series", "way", "--only", "2d"], "--only: there is no 2d: "),
        (["r.json", "--x", "epoch", "--y", "loss", "--panel", "times"], "the column times has 0 values"),
        (["bad.json", "--x", "a", "--y", "b"], "bad.json is no table or report that can be drawn"),
        (["bad.csv", "--x", "a", "--y", "b"], "bad.csv is no table or report that can be drawn"),
        (["none.csv", "--x", "a", "--y", "b"], "there is no file none.csv"),
    ],
)
def test_what_can_not_be_drawn_is_refused(report, monkeypatch, words, message):
    monkeypatch.chdir(report.parent)
    (report.parent / "bad.json").write_text("{")
    (report.parent / "bad.csv").write_text("")
    finished = program("plot", "lines", *words)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
