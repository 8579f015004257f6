"""Where the time goes: `train --trace --profile`, `plot breakdown`, `plot timeline`."""

import json

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import breakdown, curves, style, timeline
from gridgrad.experiments.scaling import study as settings
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.observe.span_observer import METHODS
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.figures import is_figure
from tests.experiments.plots import made_up_lines as made_up
from tests.experiments.programs import assert_refused, job, program
from tests.experiments.scaling.made_up_studies import BUSY


def train(ranks, *arguments):
    return job(ranks, "train", "--quiet", *arguments)


@pytest.mark.parametrize(
    ("ranks", "grid"), [(1, "batch=1"), (2, "height=2"), pytest.param(2, "model=2", marks=pytest.mark.long)]
)
def test_a_run_is_traced_and_profiled(small, tmp_path, ranks, grid):  # noqa: F811
    net = ["--dataset", "mnist", "--data-dir", small, "--net", "lenet5", "--batch-size", 5, "--steps", 10]
    reports = []
    for name, watch in (("plain", []), ("watched", ["--profile", "--trace", tmp_path / "t.json", "--trace-steps", 3])):
        finished = train(ranks, *net, "--grid", grid, "--report", tmp_path / name, *watch)
        assert (finished.status, finished.stdout, finished.stderr) == (0, "", "")
        reports.append(json.loads((tmp_path / name).read_text()))
    plain, report = reports
    assert report["params_digest"] == plain["params_digest"] and report["loss"] == plain["loss"]
    assert report["bytes"] == plain["bytes"] and "layers" not in plain
    for r in reports:
        assert 0 < r["time"]["compute"] <= r["compute_max"]
    kinds = {row["kind"] for row in report["layers"]}
    assert {"HaloConv2d" if "height" in grid else "Conv2d", "Linear", "AvgPool2d", "Tanh"} <= kinds
    assert all(row[method] >= 0 for row in report["layers"] for method in METHODS)
    assert 0 < sum(row[method] for row in report["layers"] for method in METHODS) <= report["time"]["compute"]

    timeline = json.loads((tmp_path / "t.json").read_text())
    names = [(e["pid"], e["name"]) for e in timeline["traceEvents"] if e.get("cat") == "step"]
    assert names == [(rank, f"step {step}") for rank in range(ranks) for step in (5, 6, 7)]
    shown = {e["name"].replace("HaloConv2d", "Conv2d") for e in timeline["traceEvents"]}
    assert {"optimizer SGD step", "loss SoftmaxCrossEntropy backward", "0 Conv2d forward"} <= shown
    assert any(name.startswith("reader ") and name.endswith(" load") for name in shown)
    assert timeline["otherData"]["clock accuracy in microseconds"] >= 0 and list(tmp_path.glob(".t.json*")) == []


def test_a_run_that_stops_early_is_traced_as_far_as_it_went(tmp_path):
    arguments = ["--validation", 0.2, "--patience", 1, "--lr", 0.5, "--batch-size", 400, "--net", "mlp:8,relu",
                 "--grid", "batch=2"]  # fmt: skip
    finished = train(2, *arguments, "--trace", tmp_path / "t.json", "--trace-steps", 1000, "--report", tmp_path / "r.json")
    assert finished.status == 0, finished.stderr
    report, timeline = (json.loads((tmp_path / name).read_text()) for name in ("r.json", "t.json"))
    assert report["stopped_epoch"] and report["steps"] < 30
    steps = [e for e in timeline["traceEvents"] if e.get("cat") == "step" and e["pid"] == 0]
    assert len(steps) == report["steps"] - 5


def test_what_can_not_be_watched_is_refused():
    bad = [
        (["--trace", "/proc/no/t.json"], "can not write to /proc/no"),
        (["--trace", "/dev/null"], "no ordinary file"),
        (["--trace", "t.otf2"], "OTF2 archives are gone; name a .json file"),
        (["--trace", "x.json", "--report", "./x.json"], "--report and --trace are the same file"),
        (["--trace", "x.json", "--trace-steps", "0"], "whole number of at least 1"),
        (["--core-speed"], "--core-speed needs --report"),
    ]
    assert_refused(2, "train", bad, ["--quiet", "--steps", 2])


# ----- the figure


def test_runs_with_profiles_are_drawn_in_parts_and_by_their_layers(tmp_path):
    path, one = tmp_path / "s.jsonl", tmp_path / "r.json"
    options = "--nets mlp:8,8,relu --ranks 1,2 --schemes model --steps 8 --repeats 1 --profile"
    finished = program("sweep", *options.split(), "--out", path)
    assert finished.returncode == 0, finished.stderr
    [line] = curves.read([path])
    for row in line.rows:
        for run in row.runs:
            assert sum(breakdown.parts(run).values()) == pytest.approx(sum(run["time"].values()))
            assert {f"{layer['layer']} {layer['kind']}" for layer in run["layers"]} >= {"0 Linear", "1 ReLU", "4 Linear"}
    one.write_text(json.dumps(line.rows[0].runs[0]))
    columns = ["--x", "layer", "--y", "forward,gradients,input_gradient"]
    for words in (["breakdown", path], ["lines", one, *columns]):
        finished = program("plot", *words, "--out", tmp_path / "b.png")
        assert finished.returncode == 0 and is_figure(tmp_path / "b.png"), finished.stderr
        (tmp_path / "b.png").unlink()


CONVOLUTION = {"layer": "0", "kind": "Conv2d"} | dict.fromkeys(METHODS, 0.01)
PROFILE = [CONVOLUTION, {"layer": "1", "kind": "ReLU"} | dict.fromkeys(METHODS, 0.002)]  # 40 ms and 8


@pytest.fixture
def drawn(tmp_path):
    """A function that draws made-up records: the figure, and the panels with bars and those with tables."""

    def draw(found, look=style.FITTING):
        figure = breakdown.draw(made_up.lines_of(tmp_path, a=found), look)
        made_up.assert_whole(figure)
        shown = [axes for axes in figure.axes if axes.axison]
        return figure, [axes for axes in shown if axes.patches], [axes for axes in shown if axes.collections]

    yield draw
    plt.close("all")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_bars_are_the_parts_of_a_step_and_the_table_has_its_efficiencies(drawn):
    figure, [bars, _], [table, _] = drawn(made_up.records())
    assert legend(figure) == ["computation", "reading", "communication", "waiting"]
    heights = [patch.get_height() for patch in bars.patches]
    steps = [100, 100 / 2**0.8, 100 / 4**0.8]  # milliseconds
    shares = [[0.9, 0.1, 0, 0], [0.7, 0.05, 0.15, 0.1], [0.7, 0.05, 0.15, 0.1]]
    assert heights == pytest.approx([step * part for step, of_step in zip(steps, shares, strict=True) for part in of_step])
    assert [text.get_text() for text in bars.texts] == ["", f"{2**0.8:.2f}", f"{4**0.8:.2f}"]  # speedups
    assert [label.get_text() for label in table.get_xticklabels()] == ["1 rank", "2 ranks", "4 ranks"]
    rows = table.collections[0].get_array()
    assert [label.get_text() for label in table.get_yticklabels()][-1] == "global" and rows.shape == (5, 3)
    assert list(rows[0]) == pytest.approx([1, 1, 1], abs=0.03) and rows[1][1] == pytest.approx(0.7 / 0.95, rel=0.03)
    assert bars.get_title() == "mlp:512,512,512,relu\nbatch, strong scaling, batch 100, airfoil"


def test_convolutions_are_told_apart_where_all_runs_have_profiles(drawn):
    profiled = made_up.records(lambda _: {"layers": PROFILE}, schemes=["batch"], ranks=[1, 2])
    figure, [bars], _ = drawn(profiled)
    assert legend(figure)[:2] == ["convolution", "other computation"] and bars.patches[0].get_height() == pytest.approx(40)
    figure, _, _ = drawn([*profiled[1:], profiled[0] | {"layers": None}])
    assert legend(figure)[0] == "computation"


def test_more_ranks_than_cores_are_hollow_and_weak_scaling_counts_samples(drawn):
    busy = lambda record: {"load": BUSY} if record["P"] == 2 else {}  # noqa: E731
    steady = made_up.records(busy, lambda *_: 0.1, scaling=["weak"], schemes=["batch"], ranks=[1, 2, 8])
    figure, [bars], [table] = drawn(steady, look=style.Look(3.5))
    assert [patch.get_facecolor()[:3] == (1, 1, 1) for patch in bars.patches] == [False] * 8 + [True] * 4
    assert [text.get_text() for text in bars.texts] == ["", "\u00d7", "8.00"]  # no speedup of a busy point
    assert legend(figure)[-2:] == ["hollow: more ranks than cores", "measured on a busy machine"]
    assert list(table.collections[0].get_array()[3]) == pytest.approx([1, 9 / 7, 9 / 7])  # computation scaling


def test_many_curves_are_panels_in_rows(drawn):
    figure, bars, tables = drawn(made_up.records(ranks=[1, 2, 4, 8], nets=["mlp:8,relu", "mlp:9,relu"]))
    assert len(bars) == len(tables) == 4 and figure.get_figwidth() == pytest.approx(7.16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compute_max": None}, "does not say how its time was spent"),
        ({"time": {"compute": 1.0}}, "does not say how its time was spent"),
        ({"predicted": True, "machine": "a"}, "nothing else"),
        ({"failed": "no memory"}, "nothing else"),
    ],
)
def test_runs_that_say_not_enough_are_refused(tmp_path, change, message):
    lines = made_up.lines_of(tmp_path, a=made_up.records(lambda _: change))
    with pytest.raises(ValueError, match=message):
        breakdown.draw(lines)


def test_efficiencies():
    def run(ranks, compute, largest, communicate, wait):
        time = {"compute": compute, "read": 5.0, "communicate": communicate, "wait": wait}
        return {"P": ranks, "time": time, "compute_max": largest, "samples": 10}

    one, four = run(1, 8.0, 8.0, 0.0, 0.0), run(4, 2.5, 3.0, 1.0, 0.5)
    assert set(breakdown.efficiencies(one, breakdown.computing(one)).values()) == {1.0}
    assert breakdown.efficiencies(four, breakdown.computing(one)) == pytest.approx(
        {"load balance": 2.5 / 3, "communication": 3 / 4, "parallel": 2.5 / 4, "computation scaling": 0.8, "global": 0.5}
    )


def test_convolutions_are_told_apart():
    rows = [{"layer": "0", "kind": kind} | dict.fromkeys(METHODS, 0.5) for kind in ("Conv2d", "HaloConv2d", "Linear")]
    time = {"compute": 7.0, "read": 0.5, "communicate": 1.0, "wait": 2.0}
    found = breakdown.parts({"layers": rows, "compute_max": 7.0, "time": time})
    assert found == {"convolution": 4, "other computation": 3, "reading": 0.5, "communication": 1, "waiting": 2}


def test_the_breakdown_settings_are_good():
    study = Study(settings.read("breakdown.toml"))
    assert len(study.points) == 6 and all(point.settings["profile"] is True for point in study.points)


# ----- of traces


def span(rank, category, name, start, stop, thread=0, **more):
    return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": start, "dur": stop - start} | more


@pytest.fixture
def traces(tmp_path):
    """Traces of steps of 100 us on 2 ranks: backward ends after 60, the all-reduce alone takes 40, of which buckets hide 30."""
    found = {}
    for name in ("plain", "overlap"):
        events = [{"name": "process_name", "pid": rank, "args": {"name": f"rank {rank} (batch={rank}, model=0) on a"}}
                  for rank in (0, 1)]  # fmt: skip
        for rank in (0, 1):
            for step in range(3):
                at = 100 * step
                events.append(span(rank, "step", f"step {step}", at, at + 100))
                events.append(span(rank, "layer", "0 Linear gradients", at, at + 60))
                if name == "plain":
                    events.append(span(rank, "collective", "gradients all-reduce", at + 55 + 5 * rank, at + 100))
                    events.append(span(0, "waiting", "waiting", at + 55, at + 60)) if not rank else None
                else:
                    args = {"args": {"bytes": 8, "ranks": [0, 1]}}
                    events.append(span(rank, "flight", "gradients all-reduce", at + 20, at + 70, 1, **args))
                    events.append(span(rank, "progress", "gradients all-reduce, progress", at + 60, at + 70))
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events}))
        found[name] = tmp_path / f"{name}.json"
    return found


def test_what_backward_hides_of_the_all_reduce_is_told(traces):
    figure, [said] = breakdown.draw_traces(traces.values())
    made_up.assert_whole(figure)
    assert said.startswith("overlap: the all-reduce of the gradients takes 0.04 ms alone") and said.endswith("75 % is hidden.")
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert heights == pytest.approx([0.0575, 0, 0.04, 0.0025, 0.09, 0, 0.01, 0])
    assert breakdown.draw_traces([traces["overlap"]])[1] == []
    flights = [(0.0, 10), (2.0, 30)]  # which alone take 1 and 3 seconds of 4
    assert breakdown.least_exposed(flights, end=3.0, alone=4.0) == pytest.approx(2.0)
    assert breakdown.least_exposed(flights, end=6.0, alone=4.0) == 0
    assert breakdown.least_exposed([(0.0, 5), (0.0, 5)], end=1.0, alone=4.0) == pytest.approx(3.0)


def test_a_timeline_has_a_row_a_rank_and_a_colour_a_kind(traces, tmp_path):
    figure = timeline.draw(traces["plain"])
    made_up.assert_whole(figure)
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0 (batch 0)", "rank 1 (batch 1)"]
    assert legend(figure) == ["compute", "communicate", "wait"] and axes.get_xlim() == (0, 0.1)
    assert timeline.draw(traces["plain"], (0, 1)).axes[0].get_xlim() == (0, 0.2)
    assert timeline.UNDER_WAY in legend(timeline.draw(traces["overlap"]))
    finished = program("plot", "timeline", traces["overlap"], "--steps", "1-2", "--out", tmp_path / "t.png")
    assert finished.returncode == 0 and is_figure(tmp_path / "t.png"), finished.stderr
    with pytest.raises(ValueError, match="the trace has the steps 0 to 2"):
        timeline.draw(traces["plain"], (7, 7))
    plt.close("all")
