"""pytest itself is no rank of a job: tests that need ranks start jobs (tests/mpi.py)."""

import mpi4py

from nn import device
from tests import standin

mpi4py.rc.initialize = False
device.use(standin.name())
