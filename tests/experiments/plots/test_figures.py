"""The figures over the number of ranks and of two studies: what their axes hold, what marks and words say, what is refused."""

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import compare, scaling
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.scaling.comparison import NOISE
from tests.experiments.figures import is_figure
from tests.experiments.programs import assert_refused, run_main
from tests.experiments.scaling import made_up_studies as made_up
from tests.experiments.scaling.made_up_studies import BUSY, ENVIRONMENT


@pytest.fixture(autouse=True)
def closed():
    """Figures are closed behind each test."""
    yield
    plt.close("all")


def of_colour(axes, name):
    """The points of the line with the colour of a name: {ranks: value}."""
    colour = looks.styles([name])[name].colour
    line = next(line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None")
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def drawn(folder, kind, found):
    """(figure, panels that show something) of made-up records."""
    figure, _ = scaling.draw(made_up.lines_of(folder, a=found), kind)
    made_up.assert_whole(figure)
    return figure, [axes for axes in figure.axes if axes.axison]


@pytest.mark.parametrize(("kind", "value", "ideal"), [
    ("speedup", lambda ranks: ranks**0.8, [1, 2, 4]), ("efficiency", lambda ranks: ranks**-0.2, [1, 1, 1]),
    ("time", lambda ranks: 100 / ranks**0.8, [100, 50, 25]),
])  # fmt: skip
def test_lines_go_through_the_medians_and_bars_over_the_intervals(tmp_path, kind, value, ideal):
    figure, [axes] = drawn(tmp_path, kind, made_up.spread())
    assert [int(tick) for tick in axes.get_xticks()] == [1, 2, 4] and axes.get_xscale() == "log"
    for name in ("batch", "model"):
        assert of_colour(axes, name) == pytest.approx({ranks: value(ranks) for ranks in (1, 2, 4)})
    ends = axes.collections[0].get_segments()[1][:, 1]  # of the first series on 2 ranks
    middle, many = value(2), 1.02 / 0.98
    assert ends == pytest.approx((0.98 * middle, 1.02 * middle) if kind == "time" else (middle / many, middle * many))
    line = next(line for line in axes.lines if line.get_color() == looks.GREY)
    assert list(line.get_ydata()) == pytest.approx(ideal) and legend(figure) == ["batch", "model", "ideal"]


def test_points_of_more_ranks_than_cores_and_those_of_a_busy_machine_are_marked_and_speedups_of_these_left_out(tmp_path):
    made = made_up.spread(lambda record: {"load": BUSY} if record["P"] == 2 else {}, ranks=[1, 2, 8], schemes=["batch"])
    figure, _ = drawn(tmp_path, "time", made)
    assert legend(figure) == ["batch", "ideal", "hollow: more ranks than cores", "measured on a busy machine"]
    figure, [said] = scaling.draw(made_up.lines_of(tmp_path, this=made), "speedup")
    assert said.startswith("Not drawn") and said.endswith(": batch of mlp:512,512,512,relu on 2 ranks.")
    assert 2 not in {x for line in figure.axes[0].lines if line.get_marker() == "o" for x in line.get_xdata()}


def test_figures_are_written_in_each_form_with_fonts_that_publishers_take(tmp_path, monkeypatch, capsys):
    path = made_up.written(tmp_path / "s.jsonl", made_up.spread())
    outs = [tmp_path / f"f.{end}" for end in ("png", "pdf", "svg")]
    run_main(monkeypatch, "plot", "speedup", path, *(word for out in outs for word in ("--out", out)), "--only", "model")
    assert capsys.readouterr().out == "".join(f"{out} written\n" for out in outs)
    png, pdf, svg = (out.read_bytes() for out in outs)
    assert is_figure(outs[0]) and pdf.startswith(b"%PDF") and b"/FontFile2" in pdf and b"/Type3" not in pdf and b"<svg" in svg


# ----- two studies


@pytest.fixture
def files(tmp_path):
    """Two studies, in the second of which 4 ranks are slower by a fifth, and a commit later."""
    later = lambda record: {"environment": ENVIRONMENT | {"code": "beef", "commit": "abc"}}  # noqa: E731
    slower = lambda point, repeat: made_up.spread_seconds(point, repeat) * (1.2 if point.ranks == 4 else 1)  # noqa: E731
    one = made_up.written(tmp_path / "before.jsonl", made_up.spread())
    return str(one), str(made_up.written(tmp_path / "after.jsonl", made_up.spread(later, slower)))


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
    _, *rows = capsys.readouterr().out.splitlines()
    assert ["slower" in row for row in rows[:5]].count(True) == 2 and rows[8].startswith("Of 5 points, B is slower in 2")
    assert rows[6].endswith("commit abc") and rows[7].endswith("different code of gridgrad (c0de, beef).")
    assert is_figure(files[0].replace(".jsonl", "-compare.png"))


def test_what_can_not_be_drawn_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_up.written(tmp_path / "two.jsonl", made_up.spread(repeats=2))
    (tmp_path / "r.csv").write_text("x,y,name\n1,2,a\n2,3,b\n")
    lines = "lines", "r.csv", "--x", "x", "--y"
    assert_refused(1, "plot", [
        (["speedup"], "required: FILE.jsonl"), (["speedup", "none.jsonl"], "none.jsonl"),
        (["time", "after.jsonl", "--width", 1], "at least 2.0"), (["time", "after.jsonl", "--out", "figure.xyz"], ".svg"),
        (["weak", "after.jsonl"], "weak"), (["time", "after.jsonl", "--only", "2d"], "2d"),
        (["compare", "two.jsonl", "two.jsonl"], "twice"), (["compare", "two.jsonl", "after.jsonl"], "3 times"),
        ([*lines, "los"], "los"), ([*lines, "name"], "number"), ([*lines, "y", "--where", "name=c"], "name=c"),
    ])  # fmt: skip
    assert not list(tmp_path.glob("*.png"))
