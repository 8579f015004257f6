"""Tests that run on several ranks: `@mpi(1, 2, 5)` runs the body once on 1, once on 2 and once on 5 ranks.

The body gets a communicator of its own with all ranks. The test fails if the body raises on any of them. If the body has
a second parameter, `monkeypatch`, it gets pytest's fixture of that name, which undoes on each rank what the body changed in
modules. The tests of one number of ranks share one job (tests/jobs.py), which is started again after a failure. `timeout`:
seconds until a test is ended from outside. On the sizes in `long` it is marked so: `-m "not long"` leaves them out.

The ranks compute on the device that GRIDGRAD_TEST_DEVICE names: see tests/standin.py.
"""

import pytest

from tests.jobs import jobs


def mpi(*sizes, long=(), timeout=120):
    cases = [pytest.param(ranks, marks=pytest.mark.long if ranks in long else ()) for ranks in sizes]

    def decorate(body):
        @pytest.mark.parametrize("ranks", cases)
        def test(ranks):
            failure = jobs.run(ranks, f"{body.__module__}:{body.__name__}", timeout)
            if failure:
                pytest.fail(failure, pytrace=False)

        test.body = body
        test.__name__, test.__module__, test.__doc__ = body.__name__, body.__module__, body.__doc__
        return test

    return decorate


def ranks_of(item):
    """On how many ranks a collected test runs; 0 if it is no test of ranks."""
    return item.callspec.params["ranks"] if hasattr(getattr(item, "obj", None), "body") else 0
