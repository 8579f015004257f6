"""Calling programs in the process of a test or on its ranks, and starting them as a user would.

What matters about most programs shows when their main function is called in processes that are there: `run_main`, `trained`
and `assert_refused` do that. `job` starts processes, which takes longer.
"""

import contextlib
import io
import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.experiments.common.programs import module
from gridgrad.experiments.launching.start_ranks import PASSED_ON, mpiexec
from gridgrad.parallel import ProcessGrid, divide
from gridgrad.parallel.job.run import UserError, one_line
from tests.jobs import jobs
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder


@contextlib.contextmanager
def signals_kept():
    """Signals mean afterwards what they meant before; what a process is to ignore, those that it starts ignore as well."""
    before = {number: signal.getsignal(number) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_main(monkeypatch, name, *arguments):
    """Call the main function of a program or study with these arguments: `run_main(monkeypatch, "explain", "--ranks", 4)`."""
    program = module(name)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.setattr(program, "run", lambda main: main(), raising=False)  # which would end this process after an error
    with np.errstate(), signals_kept():  # programs change them
        program.main()


@contextlib.contextmanager
def called(comm, name, words):
    """The main function of a program for these words, to be called by the ranks of a communicator.

    In the `with` block the program takes these for all ranks of the job. Communicators that it leaves for the end of the
    process are freed, as are grids if it refuses the words.
    """
    program, train, grids, workers = module(name), module("train"), [], []

    def grid(*arguments, **sizes):
        grids.append(ProcessGrid(*arguments, **sizes))
        return grids[-1]

    def divided(grid):
        workers.append(divide(grid))
        return workers[-1]

    with pytest.MonkeyPatch.context() as patch, np.errstate(), signals_kept():
        patch.setattr(sys, "argv", [name, *map(str, words)])
        patch.setattr(program, "MPI", SimpleNamespace(COMM_WORLD=comm), raising=False)
        patch.setattr(train, "ProcessGrid", grid)
        patch.setattr(train, "divide", divided)
        try:
            yield program.main
        except UserError:
            for one in grids:
                one.free()
            raise
        finally:
            for own, between in workers:
                between.comm.Free()
                own.free()


def trained(comm, *words, name="train"):
    """(its report, what it has printed) of a training by the ranks of a communicator. Collective."""
    said = io.StringIO()
    with folder(comm) as place, called(comm, name, [*words, "--report", f"{place}/report.json"]) as main:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
        assert comm.rank == 0 or not said.getvalue()
        return comm.bcast((json.loads(Path(place, "report.json").read_text()), said.getvalue()) if comm.rank == 0 else None)


def alone(comm, *words, name="train"):
    """The same of one rank, the first. Collective."""
    return comm.bcast(trained(MPI.COMM_SELF, *words, name=name) if comm.rank == 0 else None)


def refusal(comm, name, words):
    """The message of the UserError with which a program refuses these words on each rank; it prints nothing. Collective."""
    said = io.StringIO()
    with pytest.raises(UserError) as caught, called(comm, name, words) as main, contextlib.redirect_stdout(said):
        main()
    message = one_line(caught.value)
    assert comm.allgather((message, said.getvalue())) == [(message, "")] * comm.size, words
    return message


def assert_refused(ranks, name, cases, options=()):
    """Each rank refuses these command lines of a program with the same UserError of one line, and prints nothing.

    cases: (arguments, words that stand in the message). options: arguments in front of those of every case. How a job ends
    after a UserError is tested in tests/parallel/job/test_job.py.
    """
    order = [name, [([str(word) for word in (*options, *arguments)], words) for arguments, words in cases]]
    if ranks == 1:
        refuses.body(MPI.COMM_SELF, order)
    elif failure := jobs.run(ranks, f"{__name__}:refuses", 120, order):
        pytest.fail(failure, pytrace=False)


@mpi()
def refuses(comm, order):
    name, cases = order
    messages = [(refusal(comm, name, arguments), words) for arguments, words in cases]
    assert [(words, message) for message, words in messages if words not in message] == []


def job(ranks, *arguments, timeout=120):
    """A program on so many ranks, started as a user would: `job(4, "train", "--grid", "model=4")`. Returns a Finished."""
    return mpiexec(ranks, ["-m", "gridgrad", *map(str, arguments)], timeout)
