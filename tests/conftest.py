"""pytest itself is no rank of a job: tests that need ranks start jobs (tests/mpi.py)."""

import atexit
import os
import shutil
import tempfile

import mpi4py

from nn import device
from tests import standin

mpi4py.rc.initialize = False
device.use(standin.name())

os.environ["GRIDGRAD_CACHE"] = tempfile.mkdtemp(prefix="gridgrad-test-")  # not the user's own
atexit.register(shutil.rmtree, os.environ["GRIDGRAD_CACHE"], ignore_errors=True)
