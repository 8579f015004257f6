"""The figures over the number of ranks: what their axes hold, what marks and legends say, and what is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.plots import style as looks
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import program
from tests.experiments.scaling.made_up_studies import BUSY

PATH_NAME = "mlp:512,512,512,relu"


@pytest.fixture(autouse=True)
def closed():
    """Figures are closed behind each test."""
    yield
    plt.close("all")


def drawn(folder, kind, found=None, look=looks.FITTING, **more):
    """(figure, panels that show something) of made-up records."""
    lines = made_up.lines_of(folder, a=found or made_up.records(**more))
    figure, _ = scaling.draw(lines, kind, look)
    made_up.assert_whole(figure)
    return figure, [axes for axes in figure.axes if axes.axison]


def of_colour(axes, name, styles=None):
    """The points of the line with the colour of a name: {ranks: value}."""
    colour = looks.styles([name])[name].colour
    line = next(line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None")
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def words(figure):
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.mark.parametrize(
    ("kind", "value", "label"),
    [
        ("speedup", lambda ranks: ranks**0.8, "speedup over 1 rank"),
        ("efficiency", lambda ranks: ranks**-0.2, "efficiency"),
        ("time", lambda ranks: 100 / ranks**0.8, "ms a step"),
    ],
)
def test_lines_go_through_the_medians_and_bars_over_the_intervals(tmp_path, kind, value, label):
    figure, [axes] = drawn(tmp_path, kind)
    assert axes.get_ylabel() == label and axes.get_xlabel() == "ranks"
    assert [int(tick) for tick in axes.get_xticks()] == [1, 2, 4] and axes.get_xscale() == "log"
    for name in ("batch", "model"):
        assert of_colour(axes, name) == pytest.approx({ranks: value(ranks) for ranks in (1, 2, 4)})
    ends = axes.collections[0].get_segments()[1][:, 1]  # of the first series on 2 ranks
    middle, many = value(2), 1.02 / 0.98
    assert ends == pytest.approx((0.98 * middle, 1.02 * middle) if kind == "time" else (middle / many, middle * many))
    assert legend(figure) == ["batch", "model", "ideal"]
    assert words(figure).startswith("Measured on a processor, 4 cores, a library 1.0, a BLAS. Points are ")
    assert axes.get_title() == f"{PATH_NAME}\nstrong scaling, batch 100, airfoil"


@pytest.mark.parametrize(
    ("kind", "scalings", "ideal"),
    [
        ("speedup", ["strong"], [1, 2, 4]),
        ("time", ["strong"], [100, 50, 25]),
        ("time", ["weak"], [100, 100, 100]),
        ("weak", ["weak"], [1, 1, 1]),
    ],
)
def test_ideal_lines(tmp_path, kind, scalings, ideal):
    _, [axes] = drawn(tmp_path, kind, scaling=scalings)
    line = next(line for line in axes.lines if line.get_color() == looks.GREY)
    assert list(line.get_ydata()) == pytest.approx(ideal)


def test_strong_and_weak_scaling_are_panels_and_each_kind_of_efficiency_shows_its_own(tmp_path):
    made = made_up.records(nets=["mlp:8,relu", "mlp:9,relu"], scaling=["strong", "weak"])
    figure, panels = drawn(tmp_path, "speedup", made)
    titles = [axes.get_title() for axes in panels]
    assert titles == [f"mlp:{net},relu\n{scaling}, airfoil" for net in (8, 9)
                      for scaling in ("strong scaling, batch 100", "weak scaling, batch 100 a rank")]  # fmt: skip
    assert len({axes.get_ylim() for axes in panels}) == 1  # they compare
    for kind in ("efficiency", "weak"):
        figure, panels = drawn(tmp_path, kind, made)
        assert len(panels) == 2 and all(axes.get_ylim()[0] == 0 for axes in panels)
        assert all(("weak" in axes.get_title()) == (kind == "weak") for axes in panels)
    _, panels = drawn(tmp_path, "weak", made)
    assert of_colour(panels[0], "batch")[4] == pytest.approx(4**0.8)  # the made-up steps get shorter as the batch grows


def test_points_of_more_ranks_than_cores_are_hollow_and_those_of_a_busy_machine_crossed(tmp_path):
    made = made_up.records(lambda record: {"load": BUSY} if record["P"] == 2 else {}, ranks=[1, 2, 8], schemes=["batch"])
    figure, [axes] = drawn(tmp_path, "time", made)
    marks = {tuple(line.get_xdata()): line for line in axes.lines if line.get_marker() not in ("None", None, "", "_", "|")}
    assert marks[1, 2, 8].get_markerfacecolor() == marks[1, 2, 8].get_markeredgecolor() != "white"
    assert marks[8,].get_markerfacecolor() == "white"
    assert marks[2,].get_marker() == "x"
    assert legend(figure) == ["batch", "ideal", "hollow: more ranks than cores", "measured on a busy machine"]
    some = made_up.records(lambda record: {"load": BUSY} if record["repeat"] == 1 else {}, schemes=["batch"])
    figure, _ = drawn(tmp_path, "time", some)
    assert "measured on a busy machine" not in legend(figure)  # those runs do not count, others do


def test_a_speedup_of_a_busy_point_over_a_quiet_one_is_left_out_and_said(tmp_path):
    busy = lambda ranks: lambda record: {"load": BUSY} if record["P"] in ranks else {}  # noqa: E731
    lines = curves.of_files({"this": made_up.records(busy([2]), ranks=[1, 2, 4], schemes=["batch"])})
    figure, [said] = scaling.draw(lines, "speedup")
    assert said.startswith("Not drawn, as either it or the run on 1 rank was measured beside other programs")
    assert said.endswith(": batch of mlp:512,512,512,relu on 2 ranks.")
    assert 2 not in {x for line in figure.axes[0].lines if line.get_marker() == "o" for x in line.get_xdata()}
    assert scaling.draw(lines, "time")[1] == []
    alone = curves.of_files({"this": made_up.records(busy([1]), ranks=[1, 2, 4], schemes=["batch"])})
    assert scaling.draw(alone, "efficiency")[1][0].endswith("on 2 ranks; batch of mlp:512,512,512,relu on 4 ranks.")


def test_predictions_are_dashed_beside_what_was_measured_and_alone(tmp_path):
    of_model = [record | {"fits": record["P"] < 64} for record in made_up.predicted(ranks=[1, 8, 64], schemes=["batch"])]
    figure, [axes] = drawn(tmp_path, "speedup", [*made_up.records(schemes=["batch"]), *of_model])
    colour = looks.styles(["batch"])["batch"].colour
    lines = [line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None"]
    assert {tuple(line.get_xdata()): line.is_dashed() for line in lines} == {(1, 2, 4): False, (1, 8, 64): True}
    marks = ["dashed: predicted", "needs more memory than a rank has", "a full node: 2 ranks"]
    assert legend(figure) == ["batch", "ideal", *marks]
    assert figure.legends[0].handlelength > 3 > drawn(tmp_path, "speedup")[0].legends[0].handlelength  # it shows dashes
    assert words(figure).endswith("Predicted by the cost model for Cori Haswell.")
    figure, [axes] = drawn(tmp_path, "speedup", of_model)
    assert words(figure) == "Predicted by the cost model for Cori Haswell."
    assert legend(figure)[:2] == ["batch", "ideal"] and axes.get_title() == f"{PATH_NAME}\nstrong scaling, batch 100"
    assert not any(len(found.get_segments()) for found in axes.collections)  # no bars


def test_lines_without_a_run_on_one_rank_are_left_out_and_named(tmp_path):
    lines = made_up.lines_of(tmp_path, a=made_up.records(schemes=["batch"]), b=made_up.records(schemes=["model"], ranks=[2, 4],
                             seed=1))  # fmt: skip
    figure, said = scaling.draw(lines, "speedup")
    assert said == [f"Not drawn, as there is no run on 1 rank: model of {PATH_NAME}."]
    assert legend(figure) == ["batch", "ideal"] and said[0][:60] in words(figure)
    figure, said = scaling.draw(lines, "time")
    assert legend(figure) == ["batch", "model", "ideal"] and said == []
    for kind in ("speedup", "efficiency"):
        with pytest.raises(ValueError, match="add 1 to the ranks of the sweep, or draw time, which needs no run"):
            scaling.draw(lines[1:], kind)


def test_failures_and_few_runs_are_said(tmp_path):
    failed = lambda record: {"failed": "no memory", "seconds_per_step": None} if record["P"] == 4 else {}  # noqa: E731
    few = [record for record in made_up.records(failed, schemes=["batch"]) if record["repeat"] < 3]
    figure, [axes] = drawn(tmp_path, "time", few)
    said = words(figure)
    assert "Failed: batch on 4 ranks." in said
    assert of_colour(axes, "batch").keys() == {1, 2}
    with pytest.raises(ValueError, match="give more --steps"):
        scaling.draw(made_up.lines_of(tmp_path, a=made_up.records(seconds=lambda *_: None)), "time")


def test_figures_are_written_in_each_form_with_fonts_that_publishers_take(tmp_path):
    path = made_up.written(tmp_path / "s.jsonl", made_up.records())
    outs = [tmp_path / f"f.{end}" for end in ("png", "pdf", "svg")]
    finished = program("plot", "speedup", path, *(word for out in outs for word in ("--out", out)), "--only", "model")
    assert (finished.returncode, finished.stdout) == (0, "".join(f"{out} written\n" for out in outs)), finished.stderr
    png, pdf, svg = (out.read_bytes() for out in outs)
    assert is_figure(outs[0]) and pdf.startswith(b"%PDF") and b"/FontFile2" in pdf and b"/Type3" not in pdf and b"<svg" in svg
    finished = program("plot", "time", path, "--width", "column")
    assert finished.returncode == 0 and is_figure(tmp_path / "s-time.png"), finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speedup"], "required: FILE.jsonl"),
        (["speedup", "none.jsonl"], "there is no file none.jsonl"),
        (["time", "s.jsonl", "--width", 1], "must be a number at least 2.0 and below 40.0, not '1'"),
        (["time", "s.jsonl", "--out", "figure.xyz"], "name a .png, .pdf or .svg file"),
        (["weak", "s.jsonl"], "no run of weak scaling"),
        (["time", "s.jsonl", "--only", "2d"], "there is no series 2d: there are batch; model"),
        (["memory", "s.jsonl"], "memory is gone: gridgrad plot lines"),
    ],
)
def test_bad_figures_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    made_up.written(tmp_path / "s.jsonl", made_up.records())
    finished = program("plot", *arguments)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("name", ["speedup", "breakdown"])
def test_kept_results_are_drawn(name):
    lines = curves.read([f"results/{name}.jsonl"])
    assert {line.name for line in lines} <= {"batch", "model", "2d", "height", "auto"}
    figure, said = scaling.draw(lines, "speedup")
    made_up.assert_whole(figure)
    assert said == [] and np.isfinite([line.get_ydata() for axes in figure.axes for line in axes.lines if axes.axison][0]).all()
