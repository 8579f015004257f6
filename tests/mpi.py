"""Tests that run on several ranks: `@mpi(1, 2, 5)` runs the body once on 1, once on 2 and once on 5 ranks.

Each is a job of its own with a time limit; the body gets the communicator, and fails on any rank that raises. It runs on
the device that GRIDGRAD_TEST_DEVICE names: see `tests/standin.py`. On the sizes in `long` it is marked so: `-m "not long"`
leaves them out.
"""

import importlib
import sys

import pytest

from parallel.job.launch import mpiexec


def mpi(*sizes, long=(), timeout=120):
    cases = [pytest.param(ranks, marks=pytest.mark.long if ranks in long else ()) for ranks in sizes]

    def decorate(body):
        @pytest.mark.parametrize("ranks", cases)
        def test(ranks):
            finished = mpiexec(ranks, ["-m", "tests.mpi", f"{body.__module__}:{body.__name__}"], timeout)
            assert finished.status == 0, f"status {finished.status}\n{finished.stdout}\n{finished.stderr}"

        test.body = body
        test.__name__, test.__module__, test.__doc__ = body.__name__, body.__module__, body.__doc__
        return test

    return decorate


if __name__ == "__main__":
    from mpi4py import MPI

    from parallel.grid.devices import use_device
    from parallel.job.run import run
    from tests import standin

    def main():
        module, name = sys.argv[1].split(":")
        use_device(MPI.COMM_WORLD, standin.name())
        getattr(importlib.import_module(module), name).body(MPI.COMM_WORLD)

    run(main)
