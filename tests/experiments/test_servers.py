"""servers, small: its three parts in one job, the files that it writes, and the server by one-sided communication."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.experiments.studies.servers import __main__ as servers
from gridgrad.experiments.studies.servers import limit as server_limit
from gridgrad.experiments.studies.servers.one_sided import OneSidedServer
from gridgrad.nn import SGD
from tests.experiments.programs import program
from tests.mpi import mpi

SMALL = (
    "--rounds", "1", "--steps", "1", "--seconds", "0.03", "--net", "mlp:5,relu", "--shape", "4", "--outputs", "3",
    "--batch-size", "7", "--sizes", "20", "--served", "30",
)  # fmt: skip


@pytest.mark.long
def test_all_parts_are_measured_and_written(tmp_path):
    out = tmp_path / "found.json"
    finished = program("launch", "3", "study", "servers", *SMALL, "--out", out)
    assert finished.returncode == 0, finished.stderr
    results = {result["part"]: result for result in json.loads(out.read_text())}
    assert list(results) == ["steps", "access", "limit"] and all(result["ranks"] == 3 for result in results.values())
    assert finished.stdout.count("\nserver:asp:greedy ") == 1

    steps = {row["way"]: row for row in results["steps"]["rows"]}
    assert len(steps) == 7 and steps["sync"]["ratio"] == 1 and steps["sync"]["messages"] is None
    parameters = (4 * 5 + 5 + 5 * 3 + 3) * 4  # bytes
    for name, row in steps.items():
        assert 0 < row["fastest"] <= row["seconds"] <= row["slowest"], name
        if "single" in name:  # two of three workers push and fetch by messages
            fewest = {"server:bsp:single": 4, "server:asp:single": 8}[name]
            assert row["messages"] == fewest and row["bytes"] == 4 * parameters + fewest * 48, name
            assert row["most_bytes"] == 2 * parameters + fewest // 4 * 2 * 48, f"{name}: the server sends to both"
    access = results["access"]["rows"]
    assert [(row["way"], row["parameters"]) for row in access] == [("served", 20), ("one-sided", 20)]
    assert all(row[name]["median"] > 0 for row in access for name in ("computes", "waits", "speed"))

    limit = results["limit"]
    assert [row["workers"] for row in limit["rows"]] == [1, 2] and len(limit["idle"]) == 3
    assert all(0 < row["least"] <= row["measured"] <= row["most"] for row in limit["rows"])
    assert all(share > 0 for share in limit["idle"])


def test_a_simulated_server_is_as_fast_as_the_formula_says():
    compute, alone, tau = 0.1, 0.05, 0.03  # one worker's cycle is 0.15 s: 5 of them keep the server busy
    for workers in (1, 2, 4, 5, 8):
        found = server_limit.simulated(workers, compute, alone, tau, seconds=20)
        assert found == pytest.approx(server_limit.predicted(workers, compute, alone, tau), rel=0.01), workers
    assert server_limit.predicted(8, compute, alone, tau) == 1 / tau


@mpi(3)
def test_no_update_by_one_sided_communication_is_lost(comm):
    server = OneSidedServer(comm, np.zeros(7), lambda updated: SGD(updated, lr=1.0))
    counts = [5, 0, 9][comm.rank]
    for _ in range(counts):
        server.push_and_fetch(np.full(7, -1.0))
    comm.Barrier()
    assert server.push_and_fetch(np.zeros(7)).tolist() == [14.0] * 7
    server.free()

    server = OneSidedServer(comm, np.full(7, 2.0), lambda updated: SGD(updated, lr=0.5, momentum=0.5))
    for turn in range(3):  # in turns, so that the velocity must travel from one rank to the next
        if comm.rank == turn:
            server.push_and_fetch(np.ones(7))
        comm.Barrier()
    expected = 2.0 - 0.5 * (1 + 1.5 + 1.75 + 0.875)
    if comm.rank == 0:
        assert server.push_and_fetch(np.zeros(7)) == pytest.approx(expected)
    server.free()


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="there is no part 'all': use steps, access, limit"):
        servers.parts_of("steps,all")
    with pytest.raises(ValueError, match="--batch-size 1 leaves some of 2 ranks without samples"):
        servers.measure("steps", servers.options().parse_args(["--batch-size", "1"]), SimpleNamespace(size=2))
    finished = program("study", "servers", "--out", tmp_path / "found.json")
    assert finished.returncode == 2 and "start at least 2 ranks" in finished.stderr and finished.stderr.count("\n") == 1
