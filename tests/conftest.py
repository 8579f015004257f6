"""pytest itself is no rank of a job: tests that need ranks start jobs (tests/mpi.py)."""

import os
import sys

if "pytest" in os.path.basename(sys.argv[0]) or "pytest" in sys.modules:
    import mpi4py

    mpi4py.rc.initialize = False
