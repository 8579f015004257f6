"""What the figure of a pipeline shows: which steps, and how long they take."""

import json

import pytest

from gridgrad.experiments.plots.timeline import draw_pipelines, measured, predicted, steps_shown
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.pipeline.schedule import Instruction
from gridgrad.parallel.pipeline.simulate import Event
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.experiments.figures import is_figure


def found(pipeline, **options):
    net = network_names.build("mlp:64,64,64,64,relu", (64,), 10)
    return pipeline_step_time(net, PlacementSpec({"stage": 3}, "out", pipelines=Pipelines(pipeline, **options)), 48,
                              read("cori-haswell"))  # fmt: skip


def test_the_predicted_step_is_one_of_the_steady_state():
    time = found("zb-h1", micro_batches=6)
    run = predicted(time)
    assert run.seconds == pytest.approx(time.seconds)
    for row, of_step in zip(run.rows, run.shown, strict=True):
        assert len(row) == 3 * len(of_step)
        assert [str(event.instruction) for event in of_step if event.instruction.op == "F"] == [
            f"{of_step[0].instruction.chunk}F{number}" for number in range(6)
        ]
        assert of_step[-1].instruction.op == "U"


def test_of_an_asynchronous_pipeline_several_minibatches_are_shown():
    time = found("async:3")
    run = predicted(time, 4)
    assert run.seconds == pytest.approx(4 * time.seconds, rel=0.3)
    assert [event.instruction.op for event in run.shown[0]].count("U") == 4


def span(rank, name, start, stop):
    more = {"name": name, "pid": rank, "ts": start * 1e6, "dur": (stop - start) * 1e6}
    return {"cat": "instruction", "ph": "X", "tid": 0} | more


def write_trace(path, durations):
    """The timeline of ranks 0 to 3 on a grid of 2 stages and 2 ranks a stage: a step of each duration in seconds."""
    events, now = [], 0.0
    for rank in range(4):
        named = {"name": f"rank {rank} (stage={rank // 2}, batch={rank % 2}, height=0, model=0) on node9=3"}
        events.append({"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": named})
    for seconds in durations:
        for rank in range(4):
            events += [span(rank, f"{rank // 2}F0", now, now + seconds / 4), span(rank, "U0", now + seconds / 2, now + seconds)]
        now += seconds
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_of_a_trace_the_first_rank_of_each_stage_and_the_median_step_are_shown(tmp_path):
    run = measured(write_trace(tmp_path / "t.json", [9, 1, 5, 2]))
    assert len(run.rows) == 2 and run.seconds == pytest.approx(2)
    assert [[event.instruction.chunk for event in row] for row in run.shown] == [[0, None], [1, None]]
    assert measured(write_trace(tmp_path / "t.json", [3])).seconds == pytest.approx(3)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": []}', '{"traceEvents": [1]}', '{"traceEvents": [{"name": 1}]}']
)
def test_what_is_no_trace_of_a_pipeline_is_said(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match="is no timeline"):
        measured(tmp_path / "t.json")


def test_a_trace_without_a_whole_step_is_said():
    with pytest.raises(ValueError, match="less than 1 updates"):
        steps_shown("measured", ((Event(Instruction("F", 0, 0), 0.0, 1.0),),), 1)


@pytest.mark.parametrize("pipeline", ["sequential", "1f1b", "interleaved:2", "zbv", "async:2"])
def test_every_schedule_can_be_drawn(tmp_path, pipeline):
    time, updates = found(pipeline), 3 if pipeline.startswith("async") else 1
    draw_pipelines([predicted(time, updates), predicted(time, updates)], pipeline, tmp_path / "s.png")
    assert is_figure(tmp_path / "s.png")
