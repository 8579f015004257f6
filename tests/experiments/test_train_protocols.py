"""The program `train` with update protocols."""

import json
from math import prod

import numpy as np
import pytest

from gridgrad.parallel import parse_grid
from tests.experiments.programs import job

SETTINGS = ["--net", "mlp:11,7,tanh", "--batch-size", "97", "--dtype", "float64"]
EPOCHS = ["--epochs", "2"]


def report_of(tmp_path, ranks, *arguments):
    path = tmp_path / "report.json"
    length = [] if "--steps" in arguments else EPOCHS
    finished = job(ranks, "train", *SETTINGS, *length, *arguments, "--report", path)
    assert finished.status == 0, finished.stderr
    return json.loads(path.read_text()), finished.stdout


@pytest.mark.parametrize(
    ("grid", "protocol", "momentum"),
    [
        ("batch=3,model=1", "server:bsp", 0.9),
        pytest.param("batch=2,model=2", "server:bsp:single", 0.9, marks=pytest.mark.long),
        pytest.param("batch=3,model=1", "local:1", 0, marks=pytest.mark.long),
    ],
)
def test_workers_in_step_report_what_synchronous_training_reports(tmp_path, grid, protocol, momentum):
    ranks = prod(parse_grid(grid).values())
    plain, _ = report_of(tmp_path, 1, "--momentum", momentum)
    found, printed = report_of(tmp_path, ranks, "--grid", grid, "--protocol", protocol, "--momentum", momentum)
    assert (found["P"], found["grid"], found["protocol"]) == (ranks, grid, protocol)
    assert np.allclose(found["loss"], plain["loss"], rtol=1e-9)
    assert found["test_mse"] == pytest.approx(plain["test_mse"], rel=1e-9)
    assert found["effective_batch"] == 97 and found["interval"] == 1
    assert (found["protocol_memory"] > 0) == protocol.startswith("server")
    assert found["turns"] == [len(plain["loss"])] * found["workers"] and set(found["staleness"]) <= {"0"}
    assert sum(row["bytes"] for row in found["communication"] if row["layer"] == "protocol") > 0
    assert "effective batch 97, exchange in every turn" in printed


def test_an_asynchronous_server_with_a_straggler_reports_staleness(tmp_path):
    options = "--protocol", "server:asp", "--handicap", "1=3", "--profile", "--trace", tmp_path / "trace.json"
    found, printed = report_of(tmp_path, 2, "--grid", "batch=2", *options)
    assert sum(found["turns"]) == 2 * 26 and len(found["loss"]) == 26
    assert sum(found["staleness"].values()) == 2 * 52  # each of two servers has had every gradient
    assert found["effective_batch"] == 48.5 and np.isfinite(found["loss"]).all()
    assert printed.count("epoch 2: mean loss") <= 1
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@pytest.mark.long
def test_samples_move_between_workers_that_have_sorted_ones(tmp_path):
    alone, _ = report_of(tmp_path, 1, "--sorted")
    apart, _ = report_of(tmp_path, 3, "--sorted", "--grid", "batch=3", "--protocol", "parallel-sgd:epoch")
    mixed, _ = report_of(tmp_path, 3, "--sorted", "--grid", "batch=3", "--protocol", "parallel-sgd:epoch:shuffle")
    assert mixed["interval"] == 13 and mixed["workers"] == 3
    assert mixed["test_mse"] < 0.9 * apart["test_mse"] and mixed["test_mse"] < 1.5 * alone["test_mse"]


@pytest.mark.long
def test_pairs_of_workers_exchange_samples_between_epochs(tmp_path):
    found, _ = report_of(tmp_path, 4, "--sorted", "--grid", "batch=2,model=2", "--protocol", "parallel-sgd:exchange")
    simple, _ = report_of(tmp_path, 2, "--sorted", "--grid", "batch=2", "--protocol", "parallel-sgd:exchange")
    apart, _ = report_of(tmp_path, 2, "--sorted", "--grid", "batch=2", "--protocol", "parallel-sgd:epoch")
    assert found["interval"] == 13 and found["test_mse"] == pytest.approx(simple["test_mse"], rel=1e-6)
    assert simple["test_mse"] != apart["test_mse"]
    sent = [row for row in simple["communication"] if row["layer"] == "exchange: samples"]
    assert len(sent) == 1 and sent[0]["kind"] == "exchange" and sent[0]["bytes"] > 0


@pytest.mark.parametrize(
    ("ranks", "protocol", "steps"), [(2, "local:2", 7), (2, "parallel-sgd:epoch", 1), (3, "parallel-sgd", 1)]
)
def test_a_worker_may_have_no_samples_at_all(tmp_path, ranks, protocol, steps):
    options = "--grid", f"batch={ranks}", "--protocol", protocol, "--batch-size", "1", "--steps", steps
    found, _ = report_of(tmp_path, ranks, *options)
    assert found["turns"] == [steps] + [0] * (ranks - 1) and len(found["loss"]) == steps


@pytest.mark.parametrize("protocol", [pytest.param("server:asp", marks=pytest.mark.long), "local:4"])
def test_a_worker_that_diverges_ends_the_job_in_words(protocol):
    finished = job(2, "train", *SETTINGS, *EPOCHS, "--lr", "1e30", "--grid", "batch=2", "--protocol", protocol, "--quiet")
    assert finished.status == 2, finished.stderr
    assert "error: step " in finished.stderr and "Traceback" not in finished.stderr
