"""pytest itself is a job of one rank: tests that need more of them run in jobs that it starts (tests/mpi.py)."""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from mpi4py import MPI

from gridgrad.nn import device
from gridgrad.nn.kernels import kernel_table
from gridgrad.nn.kernels.kernel_table import shipped
from gridgrad.nn.kernels.processor import blas, processor
from tests import selection, standin
from tests.jobs import NoJob, jobs
from tests.mpi import ranks_of

assert MPI.Is_initialized()  # by its import, before a test uses MPI without a job

JOBS = Path(__file__).parent / "parallel" / "job"

device.use(standin.name())
signal.signal(signal.SIGINT, signal.default_int_handler)  # else programs that tests start ignore it in a shell's background

os.environ["GRIDGRAD_CACHE"] = tempfile.mkdtemp(prefix="gridgrad-test-")  # not the user's own
atexit.register(shutil.rmtree, os.environ["GRIDGRAD_CACHE"], ignore_errors=True)
if not kernel_table.named() and not shipped(processor(), blas()):  # jobs would measure such a processor, and say so
    os.environ["GRIDGRAD_KERNELS"] = "plain"


@pytest.fixture(autouse=True)
def kernels_stay():
    """A test may use another table of kernels; the next one gets this one again."""
    table = kernel_table.kernels()
    yield
    kernel_table.use(table)


def pytest_addoption(parser):
    selection.add_options(parser)


def pytest_itemcollected(item):
    """Marks what depends on the MPI library: tests of ranks, and those of jobs."""
    if ranks_of(item) or JOBS in item.path.parents:
        item.add_marker("mpi")


def pytest_collection_modifyitems(config, items):
    """Tests of ranks go last, sorted by the number of ranks, so that each number needs one job."""
    selection.select(config, items)
    items.sort(key=ranks_of)


def pytest_sessionfinish(session):
    try:
        jobs.end()
    except NoJob as failure:
        print(f"\n{failure}")
        session.exitstatus = 1
