"""pytest itself is no rank of a job: tests that need ranks start jobs (tests/mpi.py)."""

import mpi4py

mpi4py.rc.initialize = False
