"""The programs: each is `python -m experiments.NAME`, alone or under mpiexec."""

import os
import sys

import mpi4py

# One BLAS thread a rank unless the user says otherwise: OpenBLAS's threads spin, and where two ranks' threads share
# a core both slow down many times. It must be said before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs that are ranks of a job enter MPI in `parallel.job.run.run`, once they know that the launcher and the library
# belong together; programs that start jobs never do.
mpi4py.rc.initialize = False


def _end_job(kind, value, traceback):
    """What fails before `parallel.job.run.run` takes over, such as an import on one node, ends the whole job as well."""
    sys.__excepthook__(kind, value, traceback)
    from parallel.job.run import end_job_early

    end_job_early()


sys.excepthook = _end_job
