"""A rank of a job that runs tests: `mpiexec -n P python -m tests.worker FOLDER`, started by tests/jobs.py."""

import faulthandler
import functools
import importlib
import inspect
import json
import socket
import sys
import traceback
from pathlib import Path

import pytest
from mpi4py import MPI

from gridgrad.nn import graphs
from gridgrad.parallel.choose import reductions
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.job.run import run
from gridgrad.parallel.job.waiting import meet
from tests import standin
from tests.isolation import LeftBehind, left_as_found


@functools.wraps(reductions.fastest_reduction)
def chosen_without_time(net, question, measured=reductions.fastest_reduction):
    """What a test does not name is not to depend on a measurement: for "auto" gradients are summed plainly."""
    return "plain" if question == "auto" else measured(net, question)


def main():
    reductions.fastest_reduction = chosen_without_time
    graphs.PLAIN_RUNS = int("gpu" in standin.names())  # the stand-in needs none: every step of a test is a graph there
    world, folder = MPI.COMM_WORLD, Path(sys.argv[1])
    world.allreduce(0)  # mpi4py keeps a communicator for such calls from the first one on: no test has leaked it
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        say(connection, world.rank)
        for line in connection.makefile():  # until pytest closes its end
            order = json.loads(line)
            with open(folder / f"hung-{world.rank}", "w") as places:
                # The margin lets this be written before pytest ends the job.
                faulthandler.dump_traceback_later(max(order["timeout"] - 1, 0.1), repeat=True, file=places)
                failure = run_test(world, order["test"], order["argument"])
                faulthandler.cancel_dump_traceback_later()
            say(connection, failure)


def say(connection, what):
    connection.sendall((json.dumps(what) + "\n").encode())


def run_test(world, test, argument):
    """Run a test on this rank, until all ranks have finished it. Returns its traceback, or "" if it passed.

    argument: what its body gets beside the communicator, if anything.
    """
    try:
        module, function = test.split(":")
        body = getattr(importlib.import_module(module), function).body
        standin.forget()
        use_device(world, ",".join(standin.names().split(",")[: world.size]))
        with left_as_found(), pytest.MonkeyPatch.context() as monkeypatch:
            comm = world.Dup()
            body(comm, *given(body, argument, monkeypatch))
            meet(world)  # those of a test that failed do not come
            if comm.Iprobe():  # the next test might get it
                raise LeftBehind("the test leaves a message behind that nobody has received")
            comm.Free()
        sys.stdout.flush()
    except LeftBehind as failure:
        return f"{failure}\n"
    except BaseException as failure:
        return words(failure)
    return ""


def given(body, argument, monkeypatch):
    """The arguments of the body of a test behind the communicator."""
    if argument is not None:
        return (argument,)
    return (monkeypatch,) if "monkeypatch" in inspect.signature(body).parameters else ()


def words(failure):
    """The traceback of an exception, without the part that is in this file."""
    place = failure.__traceback__
    while place.tb_next and place.tb_frame.f_code.co_filename == __file__:
        place = place.tb_next
    return "".join(traceback.format_exception(type(failure), failure, place))


if __name__ == "__main__":
    run(main)
