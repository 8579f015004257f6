"""The programs: each is `python -m experiments.NAME`, alone or under mpiexec."""

import os
import warnings

# One BLAS thread a rank unless the user says otherwise: OpenBLAS's threads spin, and where two ranks' threads share
# a core both slow down many times. It must be said before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# mpi4py warns of a launcher of another library on every rank; `parallel.job.check_launch` says it once, as an error.
warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
