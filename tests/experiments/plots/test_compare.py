"""The table and the forest plot of two studies."""

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import compare
from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.scaling.comparison import NOISE
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import program
from tests.experiments.scaling.made_up_studies import ENVIRONMENT


@pytest.fixture
def files(tmp_path):
    """Two studies, in the second of which 4 ranks are slower by a fifth, and a commit later."""
    later = lambda record: {"environment": ENVIRONMENT | {"code": "beef", "commit": "abc"}}  # noqa: E731
    slower = lambda point, repeat: made_up.seconds(point, repeat) * (1.2 if point.ranks == 4 else 1)  # noqa: E731
    one = made_up.written(tmp_path / "before.jsonl", made_up.records(nets=["mlp:8,relu", "mlp:9,relu"]))
    other = made_up.records(later, slower, nets=["mlp:8,relu", "mlp:9,relu"])
    return str(one), str(made_up.written(tmp_path / "after.jsonl", other))


def test_the_figure_has_a_row_a_point_with_its_ratio_and_interval(files):
    points, found = compare.read(*files)
    words = compare.words_of(points, found)
    for width in (2.0, looks.COLUMN, looks.PAGE):
        figure = compare.draw(points, ["before", "after"], words, looks.Look(width))
        made_up.assert_whole(figure)
        plt.close(figure)
    [axes] = figure.axes[:1]
    marks = {line.get_ydata()[0]: line for line in axes.lines if len(line.get_xdata()) == 1}
    bars = [line for line in axes.lines if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2]
    assert len(marks) == len(bars) == len(points) == 10
    for place, (point, bar) in enumerate(zip(points, bars, strict=True)):
        assert marks[place].get_xdata()[0] == pytest.approx(1.2 if point.ranks == 4 else 1)
        assert list(bar.get_xdata()) == [point.ratio.low, point.ratio.high]
        assert marks[place].get_color() == ("#D55E00" if point.ranks == 4 else looks.GREY)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:3] == ["mlp:8,relu, 1 rank", "mlp:8,relu, batch, 2 ranks", "mlp:8,relu, batch, 4 ranks"]
    assert axes.get_xlabel() == "time of a step, after / before"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["after is slower", NOISE]


def test_what_differs_between_the_studies_is_said_in_a_table_and_below_it(files):
    finished = program("plot", "compare", *files)
    assert finished.returncode == 0, finished.stderr
    head, *rows = finished.stdout.splitlines()
    assert head.split()[0] == "network" and "95 % interval" in head
    assert sum("slower" in row for row in rows[:10]) == 4 and all(NOISE in row or "slower" in row for row in rows[:10])
    assert rows[10:13] == [
        f"A: {files[0]}, commit unknown",
        f"B: {files[1]}, commit abc",
        "They were measured with different code of gridgrad (c0de, beef).",
    ]
    assert rows[13].startswith("Of 10 points, B is slower in 4, faster in 0, and differs by no more than noise in 6")
    assert rows[14].startswith("All points together: B / A = 1.07") and "above 1 in 4 of 10" in rows[14]
    out = files[0].replace(".jsonl", "-compare.png")
    assert rows[15:] == [f"{out} written"] and is_figure(out)


def test_a_comparison_that_says_nothing_is_refused(files, tmp_path):
    one, _ = files
    few = made_up.written(tmp_path / "few.jsonl", [record for record in made_up.records() if record["repeat"] == 0])
    two = made_up.written(tmp_path / "two.jsonl", made_up.records(nets=["mlp:8,relu"], repeats=2))
    none = tmp_path / "none.jsonl"
    for name, message in (
        (one, "is named twice"), (few, "no point in common"), (two, "no point was run 3 times"), (none, "there is no file")
    ):  # fmt: skip
        finished = program("plot", "compare", one, name)
        assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
