"""The programs: each is `python -m experiments.NAME`, alone or under mpiexec."""

import os

# One BLAS thread a rank: OpenBLAS's threads spin, and two ranks' threads on one core slow each other many times.
# It must be said before NumPy is imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
