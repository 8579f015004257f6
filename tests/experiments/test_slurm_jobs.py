"""Job scripts under a real Slurm of one node: a time limit, cancelled and killed jobs, and a more urgent job.

This needs the packages of Slurm (see tests/one_node_slurm.py), two cores, and ten minutes: Slurm counts time limits in minutes.
"""

import json
import os
import re
import subprocess
import time
from types import SimpleNamespace

import pytest

from tests import one_node_slurm
from tests.experiments.programs import program
from tests.killer import remove_orphaned_segments, whole_in

pytestmark = [pytest.mark.mpi, pytest.mark.long]
TRAIN = ["train", "--dataset", "airfoil", "--net", "mlp:1024,1024,relu", "--batch-size", 512, "--grid", "batch=2", "--quiet"]
SECONDS = 60  # of the training: well above the 40 that a job with a limit of a minute has at most before its signal comes
STEP = 1  # of a job that srun starts: its step 0 is `check`
PATIENCE = 900  # seconds that a test waits for a job, on a machine with other work


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A Slurm of one node. folder: for files. run(command, ..): what a command prints. submit(script, ..): the id of a job."""
    if missing := one_node_slurm.missing():
        pytest.skip(f"no Slurm here: {', '.join(missing)} not found")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks on cores of their own need two cores")
    folder = tmp_path_factory.mktemp("slurm")

    def run(*command):
        # A job inherits the environment. Open MPI's mpiexec does not start jobs of root without two of these.
        env = os.environ | {"SLURM_CONF": str(conf), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        ended = subprocess.run(list(map(str, command)), env=env, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        return ended.stdout

    started = time.time()
    with one_node_slurm.running(folder / "node") as conf:
        yield SimpleNamespace(folder=folder, run=run, submit=lambda *words: run("sbatch", "--parsable", *words).strip())
    remove_orphaned_segments(started)  # of ranks that were killed


def write(node, name, *options, words):
    """Write a job script of two ranks, and return its path."""
    path = node.folder / f"{name}.sh"
    asked = "--name", name, "--ranks-per-node", 2, "--out", path, *options
    written = program("slurm", *asked, "--", *words)
    assert written.returncode == 0, written.stderr
    return path


def state(node, job):
    """(state, number of restarts) of a job."""
    shown = node.run("scontrol", "show", "job", job)
    return re.search(r"JobState=(\w+)", shown)[1], int(re.search(r"Restarts=(\d+)", shown)[1])


def wait(node, job, reached):
    """Wait until `reached(state, restarts)`; fails, with all logs, if the job ends before, or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not reached(*(now := state(node, job))):
        over = now[0] in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        logs = (f"{path.name}:\n{path.read_text()}" for path in sorted(node.folder.glob("*.log")))
        assert not over and time.monotonic() < deadline, f"job {job}, {now}:\n" + "".join(logs)
        time.sleep(0.2)


def completed(state, restarts):
    return state == "COMPLETED"


@pytest.fixture(scope="module")
def whole(node):
    """The training that all tests do, without any interruption. words: of `train`. report: its report. every: so many steps
    are a thirtieth of it."""
    report = node.folder / "whole.json"
    for steps in (30, None):
        if steps is None:  # as many as take SECONDS
            steps = max(60, round(SECONDS / json.loads(report.read_text())["seconds_per_step"]["median"]))
        words = [*TRAIN, "--steps", steps]
        job = node.submit(write(node, "whole", "--time", 20, words=[*words, "--report", report]))
        wait(node, job, completed)
    return SimpleNamespace(words=words, report=json.loads(report.read_text()), every=max(1, steps // 30))


def assert_same_training(report, whole):
    found = json.loads(report.read_text())
    assert found["loss"] == whole.report["loss"] and found["params_digest"] == whole.report["params_digest"]


def test_a_job_that_meets_its_time_limit_goes_on(node, whole):
    report = node.folder / "limited.json"
    words = [*whole.words, "--checkpoint", node.folder / "limited", "--report", report]
    job = node.submit(write(node, "limited", "--kind", "requeue", "--time", 1, "--warn", 20, words=words))
    wait(node, job, completed)
    _, restarts = state(node, job)
    log = (node.folder / f"limited-{job}.log").read_text()
    assert restarts >= 1 and log.count("stopped early, to go on after a requeue\n") == restarts
    assert_same_training(report, whole)


def test_a_job_goes_on_however_it_ended(node, whole):
    """It is cancelled, killed, told to stop, and makes room for a more urgent job."""
    folder, report = node.folder / "checkpoints", node.folder / "ended.json"
    words = [*whole.words, "--checkpoint", folder, "--checkpoint-steps", whole.every, "--report", report]
    by_srun = write(node, "srun", "--kind", "requeue", "--time", 20, words=words)
    by_mpiexec = write(node, "mpiexec", "--kind", "requeue", "--time", 20, "--mpi", "mpiexec", words=words)

    def start(script):
        """Submit a script, and wait until its job has written a checkpoint."""
        before, job = whole_in(folder), node.submit(script)
        wait(node, job, lambda *_: whole_in(folder) - before)
        return job

    job = start(by_srun)
    node.run("scancel", job)
    wait(node, job, lambda state, _: state == "CANCELLED")
    job = start(by_srun)
    node.run("scancel", "--signal=KILL", f"{job}.{STEP}")  # its ranks, at once
    wait(node, job, lambda state, _: state == "FAILED")
    job = start(by_mpiexec)
    node.run("scancel", "--batch", "--signal=USR1", job)
    wait(node, job, lambda state, restarts: restarts == 1 and state == "RUNNING")
    node.run("scancel", job)
    wait(node, job, lambda state, _: state == "CANCELLED")
    job = start(by_srun)
    urgent = node.submit("--partition=urgent", "--ntasks=2", "--wrap=sleep 1")
    wait(node, urgent, completed)
    wait(node, job, completed)
    assert state(node, job)[1] >= 1
    assert_same_training(report, whole)
