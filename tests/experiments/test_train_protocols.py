"""The program `train` with update protocols, each of which is tested in tests/parallel/protocols."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.programs import alone, refusal, trained
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder

SETTINGS = "--net", "mlp:11,7,tanh", "--batch-size", 97, "--dtype", "float64", "--epochs", 2


@mpi(2, 3)
def test_workers_in_step_report_what_synchronous_training_reports(comm):
    for protocol, momentum in (("server:bsp", 0.9), ("local:1", 0)):
        plain, _ = alone(comm, *SETTINGS, "--momentum", momentum)
        words = "--grid", f"batch={comm.size}", "--protocol", protocol, "--momentum", momentum
        found, printed = trained(comm, *SETTINGS, *words)
        assert (found["P"], found["workers"], found["protocol"]) == (comm.size, comm.size, protocol)
        assert np.allclose(found["loss"], plain["loss"], rtol=1e-9)
        assert found["test_mse"] == pytest.approx(plain["test_mse"], rel=1e-9)
        assert found["effective_batch"] == 97 and found["interval"] == 1
        assert (found["protocol_memory"] > 0) == protocol.startswith("server")
        assert found["turns"] == [len(plain["loss"])] * comm.size and set(found["staleness"]) <= {"0"}
        assert sum(row["bytes"] for row in found["communication"] if row["layer"] == "protocol") > 0
        assert comm.rank or "effective batch 97, exchange in every turn" in printed


@mpi(2)
def test_an_asynchronous_server_with_a_straggler_reports_staleness(comm):
    with folder(comm) as place:
        words = "--grid", "batch=2", "--protocol", "server:asp", "--handicap", "1=3", "--trace", f"{place}/trace.json"
        found, _ = trained(comm, *SETTINGS, *words)
        assert json.loads(Path(place, "trace.json").read_text())["traceEvents"]
    assert sum(found["turns"]) == 2 * 26 and len(found["loss"]) == 26
    assert sum(found["staleness"].values()) == 2 * 52  # each of two servers has had every gradient
    assert found["effective_batch"] == 48.5 and np.isfinite(found["loss"]).all()


@mpi(2)
def test_samples_move_between_workers_that_have_sorted_ones(comm):
    """All that a worker has otherwise is one half of the range of the targets."""
    ways = "parallel-sgd:epoch", "parallel-sgd:epoch:shuffle", "parallel-sgd:exchange"
    words = *SETTINGS, "--sorted", "--grid", "batch=2", "--protocol"
    apart, shuffled, exchanged = (trained(comm, *words, way)[0] for way in ways)
    assert apart["interval"] == shuffled["interval"] == exchanged["interval"] == 13
    assert shuffled["test_mse"] < 0.9 * apart["test_mse"] and exchanged["test_mse"] != apart["test_mse"]
    sent = [row for row in exchanged["communication"] if row["layer"] == "exchange: samples"]
    assert len(sent) == 1 and sent[0]["kind"] == "exchange" and sent[0]["bytes"] > 0


@mpi(2, 3)
def test_a_worker_may_have_no_samples_at_all(comm):
    for protocol, steps in (("local:2", 7), ("parallel-sgd", 1)):
        words = "--grid", f"batch={comm.size}", "--protocol", protocol, "--batch-size", 1, "--steps", steps
        found, _ = trained(comm, *SETTINGS[:-2], *words)
        assert found["turns"] == [steps] + [0] * (comm.size - 1) and len(found["loss"]) == steps


@mpi(2)
def test_a_worker_that_diverges_ends_the_job_in_words(comm):
    words = *SETTINGS, "--lr", 1e30, "--grid", "batch=2", "--protocol", "local:4", "--quiet"
    assert re.match(r"step \d+", refusal(comm, "train", words))
