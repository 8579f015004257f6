"""Where the time goes: the figures of breakdowns, timelines and rooflines."""

import json

import matplotlib.pyplot as plt
import pytest

from gridgrad.experiments.plots import breakdown, roofline, style, timeline
from tests.experiments.scaling import made_up_studies as made_up


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    plt.close("all")


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


@pytest.fixture
def traces(tmp_path):
    """Traces of steps of 100 us on 2 ranks: backward ends after 60, the all-reduce alone takes 40, of which buckets hide 30."""
    every = {"plain": [], "overlap": []}
    for rank in range(2):

        def span(category, name, start, stop, rank=rank, **more):
            return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": stop - start} | more

        for events in every.values():
            events.append({"name": "process_name", "pid": rank, "args": {"name": f"rank {rank} (batch={rank}, model=0) on a"}})
        for at in (0, 100, 200):
            both = [span("step", f"step {at}", at, at + 100), span("layer", "0 Linear gradients", at, at + 60)]
            every["plain"] += [*both, span("collective", "gradients all-reduce", at + 55 + 5 * rank, at + 100),
                               *([] if rank else [span("waiting", "waiting", at + 55, at + 60)])]  # fmt: skip
            every["overlap"] += [*both, span("flight", "gradients all-reduce", at + 20, at + 70, tid=1, args={"bytes": 8}),
                                 span("progress", "gradients all-reduce, progress", at + 60, at + 70)]  # fmt: skip
    for name, events in every.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events}))
    return [tmp_path / "plain.json", tmp_path / "overlap.json"]


def test_what_backward_hides_of_the_all_reduce_is_told(traces):
    figure, [said] = breakdown.draw_traces(traces)
    assert said.startswith("overlap: the all-reduce of the gradients takes 0.04 ms alone") and said.endswith("75 % is hidden.")
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert heights == pytest.approx([0.0575, 0, 0.04, 0.0025, 0.09, 0, 0.01, 0])


def test_a_timeline_has_a_row_a_rank_and_a_colour_a_kind(traces):
    [axes] = timeline.draw(traces[0]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0 (batch 0)", "rank 1 (batch 1)"]
    assert axes.get_xlim() == (0, 0.1) and timeline.UNDER_WAY in legend(timeline.draw(traces[1]))


def test_a_roofline_is_drawn(tmp_path):
    point = {"family": "a", "flops": 1e9, "seconds": {"median": 0.02, "min": 0.01, "max": 0.03}}
    points = [point | {"intensity": 4.0, "pass": "forward", "algorithm": kind} for kind in ("patches", "Winograd")]
    levels = [{"name": name, "bytes_per_second": rate} for name, rate in (("L1 cache", 2e11), ("memory", 2e10))]
    versions = {"processor": "a processor", "blas": "a library 1.2.3"}
    result = {"versions": versions, "busy_cores": 2.5, "flops_per_second": 1e11, "bandwidths": levels, "points": points}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result))
    made_up.assert_whole(roofline.draw(roofline.read(path), style.Look(style.COLUMN)))
