"""The figures over the number of ranks and of two studies: what their axes hold, what marks and words say, what is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gridgrad.experiments.plots import compare, curves, scaling
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.scaling.comparison import NOISE
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import assert_refused, run_main
from tests.experiments.scaling.made_up_studies import BUSY, ENVIRONMENT

PATH_NAME = "mlp:512,512,512,relu"


@pytest.fixture(autouse=True)
def closed():
    """Figures are closed behind each test."""
    yield
    plt.close("all")


def drawn(folder, kind, found=None, **more):
    """(figure, panels that show something) of made-up records."""
    figure, _ = scaling.draw(made_up.lines_of(folder, a=found or made_up.records(**more)), kind)
    made_up.assert_whole(figure)
    return figure, [axes for axes in figure.axes if axes.axison]


def of_colour(axes, name):
    """The points of the line with the colour of a name: {ranks: value}."""
    colour = looks.styles([name])[name].colour
    line = next(line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None")
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def words(figure):
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.mark.parametrize(
    ("kind", "value", "ideal"),
    [
        ("speedup", lambda ranks: ranks**0.8, [1, 2, 4]),
        ("efficiency", lambda ranks: ranks**-0.2, [1, 1, 1]),
        ("time", lambda ranks: 100 / ranks**0.8, [100, 50, 25]),
    ],
)
def test_lines_go_through_the_medians_and_bars_over_the_intervals(tmp_path, kind, value, ideal):
    figure, [axes] = drawn(tmp_path, kind)
    assert [int(tick) for tick in axes.get_xticks()] == [1, 2, 4] and axes.get_xscale() == "log"
    for name in ("batch", "model"):
        assert of_colour(axes, name) == pytest.approx({ranks: value(ranks) for ranks in (1, 2, 4)})
    ends = axes.collections[0].get_segments()[1][:, 1]  # of the first series on 2 ranks
    middle, many = value(2), 1.02 / 0.98
    assert ends == pytest.approx((0.98 * middle, 1.02 * middle) if kind == "time" else (middle / many, middle * many))
    line = next(line for line in axes.lines if line.get_color() == looks.GREY)
    assert list(line.get_ydata()) == pytest.approx(ideal) and legend(figure) == ["batch", "model", "ideal"]
    assert words(figure).startswith("Measured on a processor, 4 cores, a library 1.0, a BLAS. Points are ")


def test_strong_and_weak_scaling_are_panels_and_each_kind_of_efficiency_shows_its_own(tmp_path):
    made = made_up.records(nets=["mlp:8,relu"], scaling=["strong", "weak"])
    _, panels = drawn(tmp_path, "speedup", made)
    assert [axes.get_title() for axes in panels] == [
        "mlp:8,relu\nstrong scaling, batch 100, airfoil", "mlp:8,relu\nweak scaling, batch 100 a rank, airfoil"
    ]  # fmt: skip
    for kind in ("efficiency", "weak"):
        _, [axes] = drawn(tmp_path, kind, made)
        assert ("weak" in axes.get_title()) == (kind == "weak")
    assert of_colour(axes, "batch")[4] == pytest.approx(4**0.8)  # the made-up steps get shorter as the batch grows


def test_points_of_more_ranks_than_cores_are_hollow_and_those_of_a_busy_machine_crossed(tmp_path):
    made = made_up.records(lambda record: {"load": BUSY} if record["P"] == 2 else {}, ranks=[1, 2, 8], schemes=["batch"])
    figure, [axes] = drawn(tmp_path, "time", made)
    marks = {tuple(line.get_xdata()): line for line in axes.lines if line.get_marker() not in ("None", None, "", "_", "|")}
    assert marks[8,].get_markerfacecolor() == "white" != marks[1, 2, 8].get_markerfacecolor()
    assert marks[2,].get_marker() == "x"
    assert legend(figure) == ["batch", "ideal", "hollow: more ranks than cores", "measured on a busy machine"]


def test_a_speedup_of_a_busy_point_over_a_quiet_one_is_left_out_and_said(tmp_path):
    busy = made_up.records(lambda record: {"load": BUSY} if record["P"] == 2 else {}, schemes=["batch"])
    lines = made_up.lines_of(tmp_path, this=busy)
    figure, [said] = scaling.draw(lines, "speedup")
    assert said.startswith("Not drawn") and said.endswith(f": batch of {PATH_NAME} on 2 ranks.")
    assert 2 not in {x for line in figure.axes[0].lines if line.get_marker() == "o" for x in line.get_xdata()}
    assert scaling.draw(lines, "time")[1] == []


def test_predictions_are_dashed_beside_what_was_measured(tmp_path):
    of_model = [record | {"fits": record["P"] < 64} for record in made_up.predicted(ranks=[1, 8, 64], schemes=["batch"])]
    figure, [axes] = drawn(tmp_path, "speedup", [*made_up.records(schemes=["batch"]), *of_model])
    colour = looks.styles(["batch"])["batch"].colour
    lines = [line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None"]
    assert {tuple(line.get_xdata()): line.is_dashed() for line in lines} == {(1, 2, 4): False, (1, 8, 64): True}
    marks = ["dashed: predicted", "needs more memory than a rank has", "a full node: 2 ranks"]
    assert legend(figure) == ["batch", "ideal", *marks]
    assert words(figure).endswith("Predicted by the cost model for Cori Haswell.")


def test_lines_without_a_run_on_one_rank_and_failures_are_named(tmp_path):
    failed = lambda record: {"failed": "no memory", "seconds_per_step": None} if record["P"] == 4 else {}  # noqa: E731
    whole, part = made_up.records(failed, schemes=["batch"]), made_up.records(schemes=["model"], ranks=[2, 4], seed=1)
    lines = made_up.lines_of(tmp_path, a=whole, b=part)
    figure, said = scaling.draw(lines, "speedup")
    assert said == [f"Not drawn, as there is no run on 1 rank: model of {PATH_NAME}."] and said[0][:60] in words(figure)
    assert "Failed: batch on 4 ranks." in words(figure) and of_colour(figure.axes[0], "batch").keys() == {1, 2}
    assert scaling.draw(lines, "time")[1] == []
    with pytest.raises(ValueError, match="add 1 to the ranks of the sweep, or draw time, which needs no run"):
        scaling.draw(lines[1:], "speedup")


def test_figures_are_written_in_each_form_with_fonts_that_publishers_take(tmp_path, monkeypatch, capsys):
    path = made_up.written(tmp_path / "s.jsonl", made_up.records())
    outs = [tmp_path / f"f.{end}" for end in ("png", "pdf", "svg")]
    run_main(monkeypatch, "plot", "speedup", path, *(word for out in outs for word in ("--out", out)), "--only", "model")
    assert capsys.readouterr().out == "".join(f"{out} written\n" for out in outs)
    png, pdf, svg = (out.read_bytes() for out in outs)
    assert is_figure(outs[0]) and pdf.startswith(b"%PDF") and b"/FontFile2" in pdf and b"/Type3" not in pdf and b"<svg" in svg


def test_a_kept_result_is_drawn():
    figure, said = scaling.draw(curves.read(["results/speedup.jsonl"]), "speedup")
    made_up.assert_whole(figure)
    assert said == [] and np.isfinite([line.get_ydata() for axes in figure.axes for line in axes.lines if axes.axison][0]).all()


# ----- two studies


@pytest.fixture
def files(tmp_path):
    """Two studies, in the second of which 4 ranks are slower by a fifth, and a commit later."""
    later = lambda record: {"environment": ENVIRONMENT | {"code": "beef", "commit": "abc"}}  # noqa: E731
    slower = lambda point, repeat: made_up.seconds(point, repeat) * (1.2 if point.ranks == 4 else 1)  # noqa: E731
    one = made_up.written(tmp_path / "before.jsonl", made_up.records())
    return str(one), str(made_up.written(tmp_path / "after.jsonl", made_up.records(later, slower)))


def test_a_comparison_has_a_row_a_point_with_its_ratio_and_interval(files):
    points, found = compare.read(*files)
    figure = compare.draw(points, ["before", "after"], compare.words_of(points, found), looks.Look(looks.COLUMN))
    made_up.assert_whole(figure)
    [axes] = figure.axes[:1]
    marks = {line.get_ydata()[0]: line for line in axes.lines if len(line.get_xdata()) == 1}
    bars = [line for line in axes.lines if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2]
    assert len(marks) == len(bars) == len(points) == 5
    for place, (point, bar) in enumerate(zip(points, bars, strict=True)):
        assert marks[place].get_xdata()[0] == pytest.approx(1.2 if point.ranks == 4 else 1)
        assert list(bar.get_xdata()) == [point.ratio.low, point.ratio.high]
        assert marks[place].get_color() == ("#D55E00" if point.ranks == 4 else looks.GREY)
    assert legend(figure) == ["after is slower", NOISE]


def test_a_comparison_is_a_table_and_says_in_what_the_studies_differ(files, monkeypatch, capsys):
    run_main(monkeypatch, "plot", "compare", *files)
    head, *rows = capsys.readouterr().out.splitlines()
    assert "95 % interval" in head and ["slower" in row for row in rows[:5]].count(True) == 2
    assert rows[5:8] == [
        f"A: {files[0]}, commit unknown",
        f"B: {files[1]}, commit abc",
        "They were measured with different code of gridgrad (c0de, beef).",
    ]
    assert rows[8].startswith("Of 5 points, B is slower in 2, faster in 0") and "above 1 in 2 of 5" in rows[9]
    assert is_figure(files[0].replace(".jsonl", "-compare.png"))


def test_what_can_not_be_drawn_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_up.written(tmp_path / "few.jsonl", [record for record in made_up.records() if record["repeat"] == 0])
    made_up.written(tmp_path / "two.jsonl", made_up.records(repeats=2))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "r.csv").write_text("x,y,name\n1,2,a\n2,3,b\n")
    lines = "lines", "r.csv", "--x", "x", "--y"
    assert_refused(1, "plot", [
        (["speedup"], "required: FILE.jsonl"), (["speedup", "none.jsonl"], "none.jsonl"),
        (["time", "after.jsonl", "--width", 1], "at least 2.0"), (["time", "after.jsonl", "--out", "figure.xyz"], ".svg"),
        (["weak", "after.jsonl"], "no run of weak scaling"), (["time", "after.jsonl", "--only", "2d"], "no series 2d"),
        (["compare", "few.jsonl", "few.jsonl"], "is named twice"), (["compare", "after.jsonl", "few.jsonl"], "no point"),
        (["compare", "two.jsonl", "after.jsonl"], "no point was run 3 times"),
        ([*lines, "los"], "no column los"), ([*lines, "name"], "no row has a number"),
        ([*lines, "y", "--where", "name=c"], "no row has name=c"), ([*lines, "y", "--bars", "y"], "--bars LOW,HIGH"),
        (["lines", "empty.csv", "--x", "a", "--y", "b"], "empty.csv is no table"),
    ])  # fmt: skip
    assert not list(tmp_path.glob("*.png"))
