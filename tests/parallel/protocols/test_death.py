"""What happens when a worker dies: the others go on or, without a library that allows that, the job ends. It never hangs.

Run as `python -m ... PROTOCOL VICTIM FILE` this is the job: a training in which one worker makes the file and kills itself.
"""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from mpi4py import MPI

from gridgrad.experiments.launching.start_ranks import find_mpiexec, mpiexec
from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.job.run import end_after_death, run
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.workers import divide
from tests.parallel.protocols.training import dense, samples

pytestmark = pytest.mark.mpi  # it starts jobs
OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
SURVIVING = {"MPIEXEC": " ".join([*find_mpiexec(), "--with-ft", "ulfm"])} if OPEN_MPI else {}
STEPS, LAST = 60, 5  # the victim dies before its turn of this number, for which the others wait before theirs
needs_open_mpi = pytest.mark.skipif(not OPEN_MPI, reason="only Open MPI lets ranks survive the death of another one")


def job(monkeypatch, folder, text, victim, launcher):
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    finished = mpiexec(3, ["-m", "tests.parallel.protocols.test_death", text, str(victim), str(folder / "dying")], 120)
    assert finished.status is not None, f"{text}: still running at the time limit\n{finished.stdout}\n{finished.stderr}"
    return finished


@needs_open_mpi
@pytest.mark.parametrize(("text", "victim"), [("server:asp:single", 2), ("server:bsp:single", 2), ("downpour:2:2:single", 2),
                                              ("server:asp:single", 0), ("local:2", 1)])  # fmt: skip
def test_the_others_finish_or_where_they_need_the_dead_one_the_job_ends_and_says_why(monkeypatch, tmp_path, text, victim):
    finished = job(monkeypatch, tmp_path, text, victim, SURVIVING)
    if victim == 2:
        ends = re.findall(r"worker (\d) ends, lost 1, sum (\S+)", finished.stdout)
        assert finished.status == 0 and sorted(worker for worker, _ in ends) == ["0", "1"], finished.stdout + finished.stderr
        assert len({total for _, total in ends}) == 1
    else:
        assert finished.status != 0 and "a rank of this job has died" in finished.stderr, finished.stderr


def test_without_such_a_launcher_the_job_ends(monkeypatch, tmp_path):
    finished = job(monkeypatch, tmp_path, "server:asp:single", 1, {})
    assert finished.status != 0
    assert re.search(r"signal[: ]+9|KILLED", finished.stdout + finished.stderr, re.IGNORECASE), finished.stderr


def main():
    text, victim, dying = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    own, workers = divide(ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size))
    net, (x, y) = distribute(dense(), own), samples(dense(), 29)
    protocol = protocol_names.parse(text)(net, workers, lambda updated: SGD(updated, 0.1))
    trainer = net.trainer(LOSSES["cross-entropy"](), protocol)
    for number, turn in enumerate(protocol.turns(protocol.shares(len(x), 8, 0), STEPS)):
        if number == LAST and workers.rank == victim:
            dying.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == LAST:
            workers.wait_until(dying.exists)
        trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
    protocol.finish()
    print(f"worker {workers.rank} ends, lost {protocol.lost}, sum {net.params.sum()!r}\n", end="", flush=True)  # a single write
    if protocol.lost:
        end_after_death(0)


if __name__ == "__main__":
    run(main)
