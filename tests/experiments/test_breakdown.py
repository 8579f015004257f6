"""Where the time goes: `train --trace --profile`, and the figures of breakdowns, timelines, pipelines and rooflines."""

import json

import matplotlib.pyplot as plt
import pytest
from mpi4py import MPI

from gridgrad.experiments.plots import breakdown, roofline, style, timeline
from gridgrad.parallel.observe.span_observer import METHODS
from tests.experiments.programs import called
from tests.experiments.scaling import made_up_studies as made_up


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    plt.close("all")


def test_a_run_is_traced_and_profiled(tmp_path):
    words = ["--dataset", "random:12x12x1,3", "--net", "lenet5", "--batch-size", 5, "--steps", 10, "--quiet", "--profile"]
    trace, path = tmp_path / "t.json", tmp_path / "r.json"
    with called(MPI.COMM_SELF, "train", [*words, "--trace", trace, "--trace-steps", 3, "--report", path]) as main:
        main()
    report, events = json.loads(path.read_text()), json.loads(trace.read_text())["traceEvents"]
    assert {row["kind"] for row in report["layers"]} >= {"Conv2d", "Linear", "AvgPool2d", "Tanh"}
    assert 0 < sum(row[method] for row in report["layers"] for method in METHODS) <= report["time"]["compute"]
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 5", "step 6", "step 7"]
    assert {"optimizer SGD step", "loss SoftmaxCrossEntropy backward", "0 Conv2d forward"} <= {e["name"] for e in events}


# ----- bars and efficiencies of runs


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_bars_are_the_parts_of_a_step_and_the_table_has_its_efficiencies(tmp_path):
    figure = breakdown.draw(made_up.lines_of(tmp_path, a=made_up.spread()))
    made_up.assert_whole(figure)
    shown = [axes for axes in figure.axes if axes.axison]
    bars, table = next(axes for axes in shown if axes.patches), next(axes for axes in shown if axes.collections)
    assert legend(figure) == ["computation", "reading", "communication", "waiting"]
    steps = [100, 100 / 2**0.8, 100 / 4**0.8]  # milliseconds
    shares = [[0.9, 0.1, 0, 0], [0.7, 0.05, 0.15, 0.1], [0.7, 0.05, 0.15, 0.1]]
    expected = [step * part for step, of_step in zip(steps, shares, strict=True) for part in of_step]
    assert [patch.get_height() for patch in bars.patches] == pytest.approx(expected)
    efficiencies = 1, 0.7 / 0.95, 0.7 / 0.95, 9 / 7 / 2**0.2, 0.9 / 0.95 / 2**0.2  # of 2 ranks: balance, communication, ..
    assert list(table.collections[0].get_array()[:, 1]) == pytest.approx(efficiencies, rel=0.03)


# ----- traces


def span(rank, category, name, start, stop, thread=0, **more):
    return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": start, "dur": stop - start} | more


def write_trace(path, places, spans):
    """places: what stands in the brackets behind each rank."""
    named = [{"name": "process_name", "pid": rank, "args": {"name": f"rank {rank} ({place}) on a"}}
             for rank, place in enumerate(places)]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": [*named, *spans]}))
    return path


@pytest.fixture
def traces(tmp_path):
    """Traces of steps of 100 us on 2 ranks: backward ends after 60, the all-reduce alone takes 40, of which buckets hide 30."""
    plain, overlap = [], []
    for rank in range(2):
        for at in (0, 100, 200):
            both = [span(rank, "step", f"step {at // 100}", at, at + 100),
                    span(rank, "layer", "0 Linear gradients", at, at + 60)]  # fmt: skip
            plain += [*both, span(rank, "collective", "gradients all-reduce", at + 55 + 5 * rank, at + 100)]
            overlap += [*both, span(rank, "flight", "gradients all-reduce", at + 20, at + 70, 1, args={"bytes": 8}),
                        span(rank, "progress", "gradients all-reduce, progress", at + 60, at + 70)]  # fmt: skip
            if rank == 0:
                plain.append(span(0, "waiting", "waiting", at + 55, at + 60))
    places = "batch=0, model=0", "batch=1, model=0"
    return [write_trace(tmp_path / f"{name}.json", places, spans) for name, spans in (("plain", plain), ("overlap", overlap))]


def test_what_backward_hides_of_the_all_reduce_is_told(traces):
    figure, [said] = breakdown.draw_traces(traces)
    made_up.assert_whole(figure)
    assert said.startswith("overlap: the all-reduce of the gradients takes 0.04 ms alone") and said.endswith("75 % is hidden.")
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert heights == pytest.approx([0.0575, 0, 0.04, 0.0025, 0.09, 0, 0.01, 0])


def test_a_timeline_has_a_row_a_rank_and_a_colour_a_kind(traces):
    plain, overlap = traces
    figure = timeline.draw(plain)
    made_up.assert_whole(figure)
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0 (batch 0)", "rank 1 (batch 1)"]
    assert legend(figure) == ["compute", "communicate", "wait"] and axes.get_xlim() == (0, 0.1)
    assert timeline.UNDER_WAY in legend(timeline.draw(overlap))


# ----- rooflines


def test_a_roofline_is_drawn(tmp_path):
    point = {"family": "a", "flops": 1e9, "seconds": {"median": 0.02, "min": 0.01, "max": 0.03}}
    points = [point | {"intensity": 4.0, "pass": "forward", "algorithm": kind} for kind in ("patches", "Winograd")]
    levels = [{"name": name, "bytes_per_second": rate} for name, rate in (("L1 cache", 2e11), ("memory", 2e10))]
    versions = {"processor": "a processor", "blas": "a library 1.2.3"}
    result = {"versions": versions, "busy_cores": 2.5, "flops_per_second": 1e11, "bandwidths": levels, "points": points}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result))
    made_up.assert_whole(roofline.draw(roofline.read(path), style.Look(style.COLUMN)))
