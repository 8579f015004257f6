"""Trainings that a signal ends, or that lose a node, go on from their last checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.job.run import CHECKPOINTED
from tests.experiments.programs import job
from tests.killer import processes_with

pytestmark = pytest.mark.mpi  # these start jobs
NODE = "GRIDGRAD_PLAYED_NODE"  # the environment variable that has the name of the node on which a process is said to be
OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
# Stands for ssh: a node that has a file of its name is dead. Open MPI takes ranks with one host name for ranks of one node.
SSH = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
name=$1; shift
[ -e {folder}/$name ] && exit 255
export {variable}=$name COMMAND="$*"
exec {inside} sh -c 'exec sh -c "$COMMAND"'
"""
NAMED = "unshare --uts sh -c 'hostname ${variable}; exec \"$@\"' x"
SHORT = ["--net", "mlp:16,tanh", "--batch-size", "32", "--lr", "0.05", "--quiet"]


def start(*words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "gridgrad", *words], env=os.environ | environment, stderr=subprocess.PIPE, text=True
    )


def wait_for_checkpoint(folder, process):
    """Wait until there is a checkpoint."""
    deadline = time.monotonic() + 120
    while not found_in(folder)[0]:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["launch", "2", "train", "--grid", "batch=2"], signal.SIGTERM),
        pytest.param(["supervise", "--ranks", "2", "--", "train"], signal.SIGUSR1, marks=pytest.mark.long),
    ],
)
def test_at_a_signal_the_ranks_make_a_checkpoint(words, number, tmp_path):
    process = start(*words, *SHORT, "--steps", "1000000", "--checkpoint", str(tmp_path), "--checkpoint-steps", "20")
    wait_for_checkpoint(tmp_path, process)
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == CHECKPOINTED, printed
    stopped = int(printed.partition("stopped by a signal after step ")[2].split(",")[0])
    assert found_in(tmp_path)[0][0].step == stopped


@pytest.mark.skipif(OPEN_MPI and os.geteuid() != 0, reason="with Open MPI each node needs a host name of its own, and so root")
@pytest.mark.long
def test_a_training_that_loses_a_node_goes_on_with_the_others(tmp_path):
    (tmp_path / "nodes").write_text("left:1\nright:1\n")
    ssh, checkpoints = tmp_path / "ssh", tmp_path / "checkpoints"
    inside = NAMED.format(variable=NODE) if OPEN_MPI else ""
    ssh.write_text(SSH.format(folder=tmp_path, variable=NODE, inside=inside))
    ssh.chmod(0o700)
    launcher = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(ssh), "PRTE_MCA_plm_ssh_agent": str(ssh)}
    words = ["--nodes", str(tmp_path / "nodes"), "--ask", f"{ssh} {{node}} true", "--wait", "0.1"]
    length = ["--report", str(tmp_path / "a"), "--steps", "1500", "--checkpoint", str(checkpoints), "--checkpoint-steps", "20"]
    process = start("supervise", *words, "--", "train", *SHORT, *length, **launcher)
    wait_for_checkpoint(checkpoints, process)
    (tmp_path / "right").touch()
    for pid in processes_with(f"{NODE}=right"):
        os.kill(pid, signal.SIGKILL)
    _, printed = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert "without right, which does not answer" in printed and "1 rank, batch=1 on left" in printed
    assert not processes_with(f"{NODE}=left") and not processes_with(f"{NODE}=right")
    alone = job(1, "train", *SHORT, "--steps", 1500, "--report", tmp_path / "b")
    assert alone.status == 0, alone.stderr
    disturbed, expected = (json.loads((tmp_path / name).read_text()) for name in "ab")
    assert disturbed["P"] == 1 and disturbed["resumed"] >= 20
    np.testing.assert_allclose(disturbed["loss"], expected["loss"], rtol=2e-3)
