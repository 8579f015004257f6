"""The study `simulators`: its comparison on small steps, and what its document says of differences."""

import json
from dataclasses import replace

import pytest

from gridgrad.experiments.studies.simulators import TEXT, Point, cause, collective, compared, document, grids, prediction
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.experiments.programs import program
from tests.experiments.test_export import NEEDS_SIMGRID

ROW = {"machine": "m", "net": "lenet5", "batch_size": 8, "grid": "model=2", "plan": "out", "ranks": 2, "predicted": 1.0}
SMALL = "--machines", "ethernet-1g", "--nets", "mlp:1024,1024,1024,relu", "--ranks", 2


def row(simulated, as_messages=None, alone=1.0, longest=1.0):
    """A made-up row of a step that is predicted to take a second."""
    found = ROW | {"simulated": simulated, "difference": simulated - 1}
    return found if as_messages is None else found | {"as_messages": as_messages, "alone": alone, "longest": longest}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (row(1.09), ""),
        (row(0.91), ""),
        (row(2.0, as_messages=1.05), "an algorithm"),
        (row(2.0, as_messages=2.0, alone=1.9), "overlap"),
        (row(1.2, as_messages=1.2, longest=1.2), "another rank"),
        (row(3.0, as_messages=2.0, longest=2.0), "several"),
        (row(0.7, as_messages=0.7) | {"formula": 0.68}, "measured collectives"),
        (row(0.9, as_messages=0.6) | {"formula": 0.61}, ""),
        (row(0.8, as_messages=0.6) | {"formula": 0.61}, "several"),
        (row(0.8, as_messages=0.8) | {"formula": 0.61}, "open"),
        (row(3.0, as_messages=3.0), "open"),
    ],
)
def test_the_cause_is_what_makes_the_two_agree(found, expected):
    assert cause(found) == expected and (not expected or f"**{expected}**" in TEXT)


def test_the_document_has_the_parts_that_there_are():
    steps = [row(1.02), row(2.0, as_messages=1.0), row(0.97)]
    alone = [{"machine": "m", "kind": "all-gather", "ranks": 16, "bytes": 65536, "predicted": 1.0, "simulated": 3.0,
              "as_messages": 1.1}]  # fmt: skip
    text = "\n".join(document({"steps": steps, "collectives": alone, "measured": [row(1.2, 1.0) | {"measured": 1.1}]}))
    assert "| m | 3 | 3.0 % | 100.0 % | 1 |" in text and "| +100.0 % | an algorithm |" in text
    assert "| m | all-gather | 16 | 64 | 1000 | +200.0 % | +10.0 % |" in text
    assert "| SMPI | m | 1 | 9.1 % | 9.1 % | 0 |" in text
    assert "## " not in "\n".join(document({"steps": [], "collectives": [], "measured": []}))


def test_the_grids_of_a_network_are_those_that_fit_it():
    assert grids("mlp:1024,1024,1024,relu", 8, 4) == [
        "batch=4,model=1", "batch=1,model=4", "batch=2,model=2", "stage=4,batch=1"
    ]  # fmt: skip
    assert "batch=1,height=4,model=1" in grids("resnet20", 8, 4)
    assert grids("resnet20", 64, 256) == ["batch=16,model=16"]  # there are too few samples for the axis batch alone


def test_the_step_of_a_pipeline_is_one_alone():
    """Beside one after another, in which the ranks begin before others have ended."""
    net, ethernet = network_names.build("mlp:64,64,64,relu", (32,), 4), machine.read("ethernet-1g")
    one, alone, asked = prediction(net, PlacementSpec({"stage": 2}, "out"), 32, ethernet)
    again, _, same = prediction(net, asked, 32, ethernet)
    assert one == alone == again and same == asked and asked.pipelines.cuts


def test_nothing_overlaps_in_a_step_alone():
    """The sum of the value of the loss, of which the latency is then counted."""
    net, ethernet = network_names.build("mlp:64,relu", (32,), 4), machine.read("ethernet-1g")
    slow = replace(ethernet, core=ethernet.core | {"flops": 1e6})
    step, alone, _ = prediction(net, PlacementSpec({"batch": 4}, "out"), 32, slow)
    assert alone - step == pytest.approx(4 * slow.links["network"]["alpha"], rel=0.01)


@NEEDS_SIMGRID
def test_a_step_and_a_collective_are_compared():
    found = compared(Point("ethernet-1g", "mlp:1024,1024,1024,relu", 1024, "batch=2,model=2"))
    assert found["ranks"] == 4 and abs(found["difference"]) < 0.05 and "as_messages" not in found
    alone = collective("ethernet-1g", 4, "reduce-scatter", 1 << 20)
    assert alone["as_messages"] == pytest.approx(alone["predicted"], rel=0.01)
    for net, batch_size, grid, expected in (
        ("mlp:64,64,relu", 64, "model=16", "an algorithm"), ("lenet5", 32, "batch=2,model=2", "overlap")
    ):  # fmt: skip
        far = compared(Point("ethernet-1g", net, batch_size, grid))
        assert far["difference"] > 0.1 and cause(far) == expected, far


@NEEDS_SIMGRID
def test_results_are_kept_and_measured_steps_are_compared(tmp_path):
    out, report = tmp_path / "s.json", tmp_path / "measured.json"
    finished = program("study", "simulators", *SMALL, "--out", out)
    assert finished.returncode == 0, finished.stderr
    first = json.loads(out.read_text())
    assert [step["grid"] for step in first["steps"]] == ["batch=2,model=1", "batch=1,model=2"] and not first["collectives"]
    first["steps"][0]["simulated"] *= 1.05  # so that one sees that it is not replayed again
    out.write_text(json.dumps(first))
    words = "--nets", "mlp:32,relu", "--dataset", "random:8,2", "--schemes", "batch", "--predict", 2, "--machine", "ethernet-1g"
    assert program("sweep", *words, "--out", report).returncode == 0
    (predicted,) = (json.loads(line) for line in report.read_text().splitlines())
    measured = predicted | {"predicted": False, "seconds_per_step": {"median": 0.1}}
    report.write_text(f"{json.dumps(predicted)}\n{json.dumps(measured)}\n")
    for _ in range(2):
        finished = program("study", "simulators", *SMALL, "--measured", report, "--machine", "ethernet-1g", "--out", out)
        assert finished.returncode == 0, finished.stderr
    found = json.loads(out.read_text())
    assert found["steps"] == first["steps"] and [step["measured"] for step in found["measured"]] == [0.1]
    assert "## Measured steps" in out.with_suffix(".md").read_text() and "Measured steps" in finished.stdout


def test_what_does_not_fit_is_refused(tmp_path):
    out, report = tmp_path / "s.json", tmp_path / "measured.json"
    report.write_text("")
    (tmp_path / "other.json").write_text("[]")
    of_other = ["--measured", report, "--machine", "ethernet-1g", *SMALL]
    for words, message in (
        (["--measured", report], "--measured and --machine belong together"),
        (["--out", tmp_path / "other.json"], "other.json holds no results of simulators"),
        (of_other, "no point that was measured and predicted for '1 Gbit Ethernet cluster'"),
    ):
        finished = program("study", "simulators", *words, *([] if "--out" in words else ["--out", out]))
        assert finished.returncode == 2 and finished.stderr.count("\n") == 1 and message in finished.stderr, finished.stderr
