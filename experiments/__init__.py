"""The programs: each is `python -m experiments.NAME`, alone or under mpiexec."""

import os
import sys
import warnings

# One BLAS thread a rank unless the user says otherwise: OpenBLAS's threads spin, and where two ranks' threads share
# a core both slow down many times. It must be said before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# mpi4py warns of a launcher of another library on every rank; `parallel.job.check_launch` says it once, as an error.
warnings.filterwarnings("ignore", message="suspicious MPI execution environment")


def _end_job(kind, value, traceback):
    """What fails before `parallel.job.run` takes over, such as an import on one node, ends the whole job as well."""
    sys.__excepthook__(kind, value, traceback)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.size > 1:
        mpi.COMM_WORLD.Abort(1)


sys.excepthook = _end_job
