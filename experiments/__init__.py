"""The programs: each is `gridgrad NAME`, alone or under mpiexec."""

import os
import sys

from gridgrad.interrupt import listen

if __name__ == "experiments":  # python -m experiments.train, in the folder of the sources
    listen()

import mpi4py  # noqa: E402

# One BLAS thread a rank unless the user says otherwise: OpenBLAS's threads spin, and where two ranks' threads share
# a core both slow down many times. The variable must be set before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs that are ranks of a job initialise MPI in `parallel/job/run.py`, after checking that the launcher and the library
# belong together. Programs that start jobs never initialise it.
mpi4py.rc.initialize = False


def _end_job(kind, value, traceback):
    """End the whole job also where a rank fails before `parallel/job/run.py` takes over, such as in an import on one node."""
    sys.__excepthook__(kind, value, traceback)
    from gridgrad.parallel.job.run import end_job_early

    end_job_early()


sys.excepthook = _end_job


def _say_new_name():
    """End `python -m experiments.NAME` with a line where the program of this name has moved."""
    from gridgrad.experiments.common.programs import renamed

    words = sys.orig_argv
    name = words[words.index("-m") + 1].removeprefix("experiments.") if "-m" in words[:-1] else ""
    if (new := renamed(name)) is not None:
        print(f"python -m experiments.{name} is now `gridgrad {new}`", file=sys.stderr)
        sys.exit(2)


if __name__ == "experiments":
    _say_new_name()
