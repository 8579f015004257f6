"""What happens when a worker dies: the others go on or, without a library that allows that, the job ends. It never hangs."""

import re

import pytest
from mpi4py import MPI

from gridgrad.experiments.launching.start_ranks import find_mpiexec, mpiexec

pytestmark = pytest.mark.mpi  # it starts jobs
OPEN_MPI = MPI.get_vendor()[0] == "Open MPI"
SURVIVING = {"MPIEXEC": " ".join([*find_mpiexec(), "--with-ft", "ulfm"])} if OPEN_MPI else {}


def job(monkeypatch, folder, text, victim, launcher):
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    words = ["-m", "tests.parallel.protocols.death_script", text, str(victim), str(folder / "dying")]
    finished = mpiexec(3, words, 120)
    assert finished.status is not None, f"{text}: still running at the time limit\n{finished.stdout}\n{finished.stderr}"
    return finished


@pytest.mark.skipif(not OPEN_MPI, reason="only Open MPI lets ranks survive the death of another one")
@pytest.mark.parametrize("text", ["server:asp:single", "server:bsp:single", "downpour:2:2:single"])
def test_the_others_finish(monkeypatch, tmp_path, text):
    finished = job(monkeypatch, tmp_path, text, 2, SURVIVING)
    assert finished.status == 0, finished.stderr
    ends = re.findall(r"worker (\d) ends, lost 1, sum (\S+)", finished.stdout)
    assert sorted(worker for worker, _ in ends) == ["0", "1"], finished.stdout + finished.stderr
    assert len({total for _, total in ends}) == 1


@pytest.mark.skipif(not OPEN_MPI, reason="only Open MPI lets ranks survive the death of another one")
@pytest.mark.parametrize(("text", "victim"), [("server:asp:single", 0), ("server:asp", 1), ("local:2", 1)])
def test_where_others_need_the_dead_one_the_job_ends_and_says_why(monkeypatch, tmp_path, text, victim):
    finished = job(monkeypatch, tmp_path, text, victim, SURVIVING)
    assert finished.status != 0
    assert "a rank of this job has died" in finished.stderr, finished.stderr


@pytest.mark.parametrize("text", ["server:asp:single", pytest.param("local:2", marks=pytest.mark.long)])
def test_without_such_a_launcher_the_job_ends(monkeypatch, tmp_path, text):
    finished = job(monkeypatch, tmp_path, text, 1, {})
    assert finished.status != 0
    assert re.search(r"signal[: ]+9|KILLED", finished.stdout + finished.stderr, re.IGNORECASE), finished.stderr
