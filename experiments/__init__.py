"""The programs: each is `gridgrad NAME`, alone or under mpiexec."""

import os
import sys

from gridgrad.startup import listen, said_of, speaks

_WORDS = sys.orig_argv
_RUN = _WORDS[_WORDS.index("-m") + 1] if "-m" in _WORDS[:-1] else ""  # of python -m gridgrad.experiments.train
if _RUN.startswith(f"{__name__}."):
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
    line = said_of(value)
    if line is None:
        sys.__excepthook__(kind, value, traceback)
    elif speaks():
        print(f"gridgrad: error: {line}", file=sys.stderr, flush=True)
    from gridgrad.parallel.job.run import end_job_early

    end_job_early()
    if line is not None:
        os._exit(2)


# A script of a user's that imports something from here has its own hook, or the one of `parallel/job/run.py`.
if _RUN == "gridgrad" or _RUN.startswith(f"{__name__}.") or os.path.basename(sys.argv[0]) == "gridgrad":
    sys.excepthook = _end_job
