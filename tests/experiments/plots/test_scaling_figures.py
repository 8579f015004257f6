"""The figures over the number of ranks: what their axes hold, what marks and legends say, and what is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gridgrad.experiments.plots import paper, scaling
from gridgrad.experiments.plots.curves import of_files
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


def drawn(folder, kind, found=None, width=None, machine=None, **more):
    """(figure, panels that show something) of made-up records."""
    lines = made_up.lines_of(folder, a=found or made_up.records(**more))
    figure, _ = scaling.draw(lines, kind, width, machine)
    made_up.assert_whole(figure)
    return figure, [axes for axes in figure.axes if axes.axison]


def of_colour(axes, name, styles=None):
    """The points of the line with the colour of a name: {ranks: value}."""
    colour = paper.styles([name])[name].colour
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
        ("throughput", lambda ranks: 1000 * ranks**0.8, "samples a second"),
    ],
)
def test_lines_go_through_the_medians_and_bars_over_the_intervals(tmp_path, kind, value, label):
    figure, [axes] = drawn(tmp_path, kind)
    assert axes.get_ylabel() == label and axes.get_xlabel() == "ranks"
    assert [int(tick) for tick in axes.get_xticks()] == [1, 2, 4] and axes.get_xscale() == "log"
    for name in ("batch", "model"):
        assert of_colour(axes, name) == pytest.approx({ranks: value(ranks) for ranks in (1, 2, 4)})
    ends = axes.collections[0].get_segments()[1][:, 1]  # of the first series on 2 ranks
    many = 1 / 0.98 if kind in ("time", "throughput") else 1.02 / 0.98
    middle = value(2)
    expected = {"time": (0.98 * middle, 1.02 * middle), "throughput": (middle / 1.02, middle / 0.98)}
    assert ends == pytest.approx(expected.get(kind, (middle / many, middle * many)))
    assert legend(figure) == ["batch", "model", "ideal"]
    sure = "medians, bars their 95 % confidence intervals."
    if kind in ("speedup", "efficiency"):
        sure = "ratios of medians, bars intervals of at least 93 % confidence."
    assert words(figure) == f"Measured on a processor, 4 cores, a library 1.0, a BLAS. Points are {sure}"
    assert axes.get_title() == f"{PATH_NAME}\nstrong scaling, batch 100, airfoil"


@pytest.mark.parametrize(
    ("kind", "scalings", "ideal"),
    [
        ("speedup", ["strong"], [1, 2, 4]),
        ("time", ["strong"], [100, 50, 25]),
        ("time", ["weak"], [100, 100, 100]),
        ("weak", ["weak"], [1, 1, 1]),
        ("throughput", ["weak"], [1000, 2000, 4000]),
    ],
)
def test_ideal_lines(tmp_path, kind, scalings, ideal):
    _, [axes] = drawn(tmp_path, kind, scaling=scalings)
    line = next(line for line in axes.lines if line.get_color() == paper.GREY)
    assert list(line.get_ydata()) == pytest.approx(ideal)


def grey(axes):
    """The ideal lines of a panel: {ranks: value} of each."""
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines if line.get_color() == paper.GREY]


def as_long_as(samples):
    """The seconds of steps of which a sample takes so many seconds."""
    return lambda point, _: samples * point.settings["batch_size"] / point.ranks**0.8


def test_each_batch_has_an_ideal_line_of_its_own(tmp_path):
    made = made_up.records(seconds=as_long_as(1e-3), batch_size=[64, 256])
    figure, [axes] = drawn(tmp_path, "time", made)
    assert grey(axes) == [pytest.approx({ranks: first / ranks for ranks in (1, 2, 4)}) for first in (64, 256)]
    assert legend(figure)[-1] == "ideal"
    for kind, values in (("throughput", {1: 1e3, 2: 2e3, 4: 4e3}), ("speedup", {1: 1, 2: 2, 4: 4})):
        _, [axes] = drawn(tmp_path, kind, made)
        assert grey(axes) == [pytest.approx(values)]  # the same for both


def test_where_many_ideal_lines_would_differ_none_is_drawn_and_the_words_say_so(tmp_path):
    made = made_up.records(seconds=as_long_as(1e-3), batch_size=[2**n for n in range(4, 9)], schemes=["batch"])
    figure, [axes] = drawn(tmp_path, "time", made)
    assert grey(axes) == [] and "ideal" not in legend(figure)
    assert "Where more than 4 ideal lines differ, none is drawn." in words(figure)
    figure, [axes] = drawn(tmp_path, "speedup", made)
    assert len(grey(axes)) == 1 and "ideal" in legend(figure) and "ideal" not in words(figure)


def test_without_a_run_on_one_rank_the_ideal_line_begins_at_the_best_point_on_the_fewest(tmp_path):
    slow = lambda point, _: (0.1 if point.settings["grid"].startswith("batch=1") else 0.06) / point.ranks  # noqa: E731
    _, [axes] = drawn(tmp_path, "time", made_up.records(seconds=slow, ranks=[2, 4]))
    assert grey(axes) == [pytest.approx({2: 30, 4: 15})]


def test_what_was_measured_and_what_is_predicted_have_ideal_lines_of_their_own_as_far_as_they_go(tmp_path):
    _, [axes] = drawn(tmp_path, "time", [*made_up.records(), *made_up.predicted(ranks=[1, 8, 64], schemes=["batch"])])
    assert [line for line in grey(axes) if len(line) > 2] == [
        pytest.approx({1: 100, 2: 50, 4: 25}), pytest.approx({1: 80, 8: 10, 64: 1.25})
    ]  # fmt: skip


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
    assert marks[1, 2].get_markerfacecolor() == marks[1, 2].get_markeredgecolor() != "white"
    assert marks[8,].get_markerfacecolor() == "white"
    assert marks[2,].get_marker() == "x"
    assert legend(figure) == ["batch", "ideal", "hollow: more ranks than cores", "measured on a busy machine"]
    some = made_up.records(lambda record: {"load": BUSY} if record["repeat"] == 1 else {}, schemes=["batch"])
    figure, _ = drawn(tmp_path, "time", some)
    assert "measured on a busy machine" not in legend(figure)  # those runs do not count, others do


def test_a_speedup_of_a_busy_point_over_a_quiet_one_is_left_out_and_said(tmp_path):
    busy = lambda ranks: lambda record: {"load": BUSY} if record["P"] in ranks else {}  # noqa: E731
    lines = of_files({"this": made_up.records(busy([2]), ranks=[1, 2, 4], schemes=["batch"])})
    figure, [said] = scaling.draw(lines, "speedup")
    assert said.startswith("Not drawn, as either it or the run on 1 rank was measured beside other programs")
    assert said.endswith(": batch of mlp:512,512,512,relu on 2 ranks.")
    assert 2 not in {x for line in figure.axes[0].lines if line.get_marker() == "o" for x in line.get_xdata()}
    assert scaling.draw(lines, "time")[1] == []
    alone = of_files({"this": made_up.records(busy([1]), ranks=[1, 2, 4], schemes=["batch"])})
    assert scaling.draw(alone, "efficiency")[1][0].endswith("on 2 ranks; batch of mlp:512,512,512,relu on 4 ranks.")


def test_predictions_are_dashed_beside_what_was_measured_and_alone(tmp_path):
    of_model = [record | {"fits": record["P"] < 64} for record in made_up.predicted(ranks=[1, 8, 64], schemes=["batch"])]
    figure, [axes] = drawn(tmp_path, "speedup", [*made_up.records(schemes=["batch"]), *of_model])
    colour = paper.styles(["batch"])["batch"].colour
    lines = [line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None"]
    assert {tuple(line.get_xdata()): line.is_dashed() for line in lines} == {(1, 2, 4): False, (1, 8, 64): True}
    assert legend(figure) == [
        "batch",
        "ideal",
        "dashed: predicted",
        "needs more memory than a rank has",
        "a full node: 2 ranks",
    ]
    assert words(figure).endswith("Predicted by the cost model for Cori Haswell.")
    figure, [axes] = drawn(tmp_path, "speedup", of_model)
    assert words(figure) == "Predicted by the cost model for Cori Haswell: nothing is measured."
    assert legend(figure)[:2] == ["batch", "ideal"] and axes.get_title() == f"{PATH_NAME}\nstrong scaling, batch 100"
    assert not any(len(found.get_segments()) for found in axes.collections)  # no bars


def test_bytes_have_their_calls_below_and_memory_is_that_of_a_rank(tmp_path):
    _, [sent, calls] = drawn(tmp_path, "bytes")
    assert of_colour(sent, "batch") == pytest.approx({2: 0.001, 4: 0.003})
    assert of_colour(calls, "batch") == pytest.approx({1: 1, 2: 1, 4: 1})
    assert list(sent.get_xticks()) == list(calls.get_xticks()) == [1, 2, 4] and sent.get_xlim() == calls.get_xlim()
    shown = [text.get_text() for text in calls.get_yticklabels()]  # of what is the same everywhere
    assert len(shown) == len({*shown}) > 2 and calls.get_ylim() == pytest.approx((1 / 1.02, 1.02))
    assert "MB" in sent.get_ylabel() and calls.get_ylabel().startswith("collectives and messages")
    figure, [axes] = drawn(tmp_path, "memory")
    assert of_colour(axes, "model") == {1: 64, 2: 64, 4: 64} and axes.get_ylim()[0] == 0
    assert words(figure).endswith("Points are medians of 6 runs, which agree.")


@pytest.mark.parametrize(
    ("kind", "entry", "unit"), [("bytes", lambda value: {"bytes": {"x": value}}, 1e6), ("memory", lambda value: {
        "peak_memory": value}, 2**20)]
)  # fmt: skip
def test_bytes_and_memory_that_differ_between_runs_have_bars_from_the_least_to_the_greatest(tmp_path, kind, entry, unit):
    made = made_up.records(lambda record: entry(unit * (100 + record["repeat"] * record["P"])), schemes=["batch"])
    figure, [axes, *_] = drawn(tmp_path, kind, made)
    assert of_colour(axes, "batch") == pytest.approx({ranks: 100 + 2.5 * ranks for ranks in (1, 2, 4)})
    ends = [segment[:, 1].tolist() for segment in axes.collections[0].get_segments()]
    assert ends == [pytest.approx([100, 100 + 5 * ranks]) for ranks in (1, 2, 4)]
    assert words(figure).endswith("Points are medians of 6 runs, bars from the least to the greatest.")
    silent = [record | entry(0 if record["repeat"] else 3 * unit) for record in made]  # as no logarithmic axis shows 0
    _, [axes, *_] = drawn(tmp_path, kind, silent)
    assert of_colour(axes, "batch") == {1: 3, 2: 3, 4: 3}


def test_the_throughput_is_a_share_of_the_peak_of_the_ranks(tmp_path):
    _, [rate, share] = drawn(tmp_path, "throughput", machine="cori-haswell")
    flops = 1000 * 1000 * 4**0.8  # a sample has 1000 operations
    assert of_colour(share, "batch")[4] == pytest.approx(100 * flops / (4 * 73.6e9))
    assert share.get_ylabel() == "% of the peak of\nCori Haswell"
    ends = share.collections[0].get_segments()[2][:, 1]  # of the first series on 4 ranks: the interval of its time
    assert ends == pytest.approx([100 * flops / (4 * 73.6e9) / 1.02, 100 * flops / (4 * 73.6e9) / 0.98])


@pytest.mark.parametrize(
    ("change", "settings"),
    [(lambda _: {}, {"threads": 2}), (lambda _: {"versions": {"threads": 2}}, {})],
    ids=["asked for", "of the environment"],
)
def test_the_peak_of_a_rank_is_that_of_all_its_threads(tmp_path, change, settings):
    one, two = (drawn(tmp_path, "throughput", made_up.records(how, **more), machine="cori-haswell")[1][1]
                for how, more in ((lambda _: {}, {}), (change, settings)))  # fmt: skip
    expected = {ranks: value / 2 for ranks, value in of_colour(one, "batch").items()}
    assert of_colour(two, "batch") == pytest.approx(expected)


def test_what_only_some_runs_say_is_drawn_of_these_and_what_none_says_is_named(tmp_path):
    few = made_up.records(lambda record: {"flops_a_sample": None}, nets=["mlp:8,relu"])
    figure, panels = drawn(tmp_path, "throughput", few, machine="cori-haswell")
    assert len(panels) == 1 and words(figure).endswith(
        "Not drawn, as no run says it: % of the peak of Cori Haswell; measure again, with this version."
    )
    made = [*few, *made_up.records(nets=["mlp:9,relu"])]
    figure, [_, _, empty, full] = drawn(tmp_path, "throughput", made, 7, "cori-haswell")
    assert [text.get_text() for text in empty.texts] == ["no run says it"] and "Not drawn" not in words(figure)
    assert list(empty.get_xticks()) == [1, 2, 4] and not list(empty.get_yticks()) and of_colour(full, "batch")


def test_lines_without_a_run_on_one_rank_are_left_out_and_named(tmp_path):
    lines = made_up.lines_of(tmp_path, a=made_up.records(schemes=["batch"]), b=made_up.records(schemes=["model"], ranks=[2, 4],
                             seed=1))  # fmt: skip
    figure, said = scaling.draw(lines, "speedup")
    assert said == [f"Not drawn, as there is no run on 1 rank: model of {PATH_NAME}."]
    assert legend(figure) == ["batch", "ideal"] and said[0][:60] in words(figure)
    figure, said = scaling.draw(lines, "time")
    assert legend(figure) == ["batch", "model", "ideal"] and said == []
    for kind in ("speedup", "efficiency"):
        with pytest.raises(ValueError, match="add 1 to the ranks of the sweep, or draw time or throughput"):
            scaling.draw(lines[1:], kind)


def test_predictions_are_not_said_to_be_missing_where_they_never_are(tmp_path):
    made = made_up.records(schemes=["batch"])
    predicted = [{name: value for name, value in record.items() if name not in ("bytes", "communication")}
                 | {"predicted": True, "machine": "a machine"} for record in made if record["repeat"] == 0]  # fmt: skip
    figure, _ = drawn(tmp_path, "bytes", made + predicted)
    assert "Not drawn" not in words(figure)


def test_what_no_run_has_is_refused(tmp_path):
    lines = made_up.lines_of(tmp_path, a=made_up.records(lambda record: {"peak_memory": None, "bytes": None}))
    for kind, message in (("memory", "no run has the memory"), ("bytes", "no run has the bytes"),
                          ("weak", "no run of weak scaling")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            scaling.draw(lines, kind)
    with pytest.raises(ValueError, match="give more --steps"):
        scaling.draw(made_up.lines_of(tmp_path, a=made_up.records(seconds=lambda *_: None)), "time")


def test_few_runs_have_their_range_as_bars_and_failures_are_named(tmp_path):
    failed = lambda record: {"failed": "no memory", "seconds_per_step": None} if record["P"] == 4 else {}  # noqa: E731
    figure, [axes] = drawn(tmp_path, "time", made_up.records(failed, schemes=["batch"], repeats=3))
    assert "Points are medians of 6 runs" not in words(figure)
    few = [record for record in made_up.records(failed, schemes=["batch"]) if record["repeat"] < 3]
    figure, [axes] = drawn(tmp_path, "time", few)
    said = words(figure)
    assert "Points are medians of 3 runs, bars from the least to the greatest." in said and "Failed: batch on 4 ranks." in said
    assert of_colour(axes, "batch").keys() == {1, 2}
    figure, _ = drawn(tmp_path, "speedup", few)
    assert "Points are ratios of medians of 3 runs, bars between the extreme ratios." in words(figure)
    some = [record for record in made_up.records(schemes=["batch"]) if record["repeat"] < 3 or record["P"] == 1]
    figure, _ = drawn(tmp_path, "time", some)
    assert "95 % confidence intervals or, of fewer than 6 runs, from the least to the greatest." in words(figure)
    figure, _ = drawn(tmp_path, "time", [record for record in few if not record["repeat"]])
    assert "Points are of one run each." in words(figure)


@pytest.mark.parametrize("width", [paper.NARROWEST, paper.COLUMN, paper.PAGE])
def test_figures_of_any_width_are_legible_and_nothing_is_cut_off(tmp_path, width):
    nets = [f"mlp:{','.join(['1024'] * 9)},relu", "mlp:8,relu"]
    long = {"processor": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz (Sapphire Rapids, 4 sockets)", "mpi": "a library 1.0"}
    made = made_up.records(lambda record: {"environment": long}, nets=nets, ranks=[1, 2, 8, 64], scaling=["strong", "weak"])
    for kind in ("speedup", "bytes"):
        figure, _ = drawn(tmp_path, kind, [*made, *made_up.predicted(nets=nets, ranks=[1, 2, 4096, 16384])], width)
        assert figure.get_figwidth() == pytest.approx(width)
        plt.close(figure)


def test_many_series_differ_in_colour_or_marker():
    found = paper.styles(["batch", "auto", *map(str, range(50))])
    assert len({(style.colour, style.marker, style.pattern) for style in found.values()}) == 52
    assert found["auto"] == paper.styles(["auto"])["auto"]  # the same in all figures


def test_numbers_of_ranks_that_do_not_fit_are_not_written():
    _, axes = plt.subplots()
    ranks = [2**n for n in range(15)]
    paper.ranks_axis(axes, ranks, 1.5)
    shown = axes.get_xticks()
    assert set(shown) < set(ranks) and ranks[-1] in shown and 2 < len(shown) < 12
    paper.ranks_axis(axes, [4], 1.5)
    assert list(axes.get_xticks()) == [4] and axes.get_xlim()[0] < 4 < axes.get_xlim()[1]


@pytest.mark.parametrize(
    ("least", "most", "base"),
    [(1, 1, 10), (0.95, 1.1, 10), (2, 7, 10), (1e-3, 5e-2, 10), (1e-6, 1e3, 10), (0.02, 4, 2), (1, 2**14, 2)],
)
def test_logarithmic_axes_have_a_few_round_numbers(least, most, base):
    _, axes = plt.subplots()
    paper.log_axis(axes, [least, most], base)
    low, high = axes.get_ylim()
    assert low < least and most < high
    shown = [value for value in axes.get_yticks() if low <= value <= high]
    assert (1 if most == least else 2) <= len(shown) <= 11


def test_texts_are_broken_behind_commas_and_where_they_must():
    text = paper.wrapped("mlp:1024,1024,1024,relu", 0.6, 8)
    assert text.replace("\n", "") == "mlp:1024,1024,1024,relu" and all(line.endswith(",") for line in text.split("\n")[:-1])
    assert all(paper.width_of(line, 8) <= 0.6 for line in paper.wrapped("x" * 40, 0.6, 8).split("\n"))


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_figures_are_written(tmp_path, suffix):
    made_up.written(tmp_path / "s.jsonl", made_up.records())
    finished = program("plot", "speedup", tmp_path / "s.jsonl", "--out", tmp_path / f"figure.{suffix}", "--width", 3.5)
    assert (finished.returncode, finished.stdout) == (0, f"{tmp_path / f'figure.{suffix}'} written\n"), finished.stderr
    begin = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(begin[suffix])


@pytest.mark.parametrize("name", ["s", "before.v2"])
def test_the_name_of_a_figure_says_its_kind(tmp_path, name):
    made_up.written(tmp_path / f"{name}.jsonl", made_up.records())
    for kind in ("time", "breakdown"):
        finished = program("plot", kind, tmp_path / f"{name}.jsonl")
        assert finished.returncode == 0 and finished.stdout == f"{tmp_path / f'{name}-{kind}.png'} written\n", finished.stderr
        assert is_figure(tmp_path / f"{name}-{kind}.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speedup"], "required: FILE.jsonl"),
        (["speedup", "none.jsonl"], "there is no file none.jsonl"),
        (["time", "s.jsonl", "--width", 1], "must be a number at least 2.0 and below 40.0, not '1'"),
        (["throughput", "s.jsonl", "--machine", "nowhere"], "machine 'nowhere': no such file"),
        (["time", "s.jsonl", "--out", "figure.xyz"], "'xyz' is not supported"),
        (["weak", "s.jsonl"], "no run of weak scaling"),
    ],
)
def test_bad_figures_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    made_up.written(tmp_path / "s.jsonl", made_up.records())
    finished = program("plot", *arguments)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("name", ["speedup", "breakdown", "scaling_predicted"])
def test_kept_results_are_drawn(name):
    from gridgrad.experiments.plots import curves

    figure, said = scaling.draw(curves.read([f"results/{name}.jsonl"]), "speedup")
    made_up.assert_whole(figure)
    assert said == [] and np.isfinite([line.get_ydata() for axes in figure.axes for line in axes.lines if axes.axison][0]).all()
