"""Which launcher starts a job, how often, and on how many ranks."""

import sys

import pytest

from gridgrad.experiments.launching.start_ranks import FALSE_START, STARTS, cores, find_mpiexec, mpiexec, slots


@pytest.mark.parametrize("false_starts, status", [(2, 0), (3, 213)])
def test_a_launcher_that_fails_before_the_ranks_run_is_started_again(tmp_path, monkeypatch, false_starts, status):
    launcher, starts = tmp_path / "mpiexec", tmp_path / "starts"
    launcher.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit\necho >> {starts}\n'
        f'if [ $(wc -l < {starts}) -le {false_starts} ]; then echo "{FALSE_START}. We cannot" >&2; exit 213; fi\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setenv("MPIEXEC", str(launcher))
    assert mpiexec(2, ["-c", ""], 10).status == status
    assert len(starts.read_text()) == STARTS


def test_a_launcher_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("MPIEXEC", "/no/such/mpiexec --flag")
    with pytest.raises(OSError, match="no launcher '/no/such/mpiexec'.*set MPIEXEC"):
        find_mpiexec()
    monkeypatch.setenv("MPIEXEC", f"{sys.executable} --mpi=pmi2")
    assert find_mpiexec() == [sys.executable, "--mpi=pmi2"]


def test_the_ranks_of_an_allocation(tmp_path, monkeypatch):
    for name in ("SLURM_NTASKS", "PBS_NODEFILE"):
        monkeypatch.delenv(name, raising=False)
    assert slots() == len(cores())
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    assert slots() == 4
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "none"))
    assert slots() == len(cores())
    monkeypatch.setenv("SLURM_NTASKS", "64")
    assert slots() == 64
