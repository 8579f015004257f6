"""The programs: each is `python -m experiments.NAME`, alone or under mpiexec."""

import os
import sys

import mpi4py

# One BLAS thread a rank unless the user says otherwise: OpenBLAS's threads spin, and where two ranks' threads share
# a core both slow down many times. It must be said before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _widest_kernels(cpuinfo="/proc/cpuinfo"):
    """OpenBLAS 0.3.31 takes an AMD Zen 5 for a Zen 2, and runs at half its speed: name the kernels of AVX-512 to it.

    Any AMD processor that has all that these kernels need may use them; Intel's are told apart well. A user's own
    OPENBLAS_CORETYPE stands.
    """
    try:
        with open(cpuinfo) as file:
            lines = file.read().splitlines()
    except OSError:
        return
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    is_amd = any(line.endswith("AuthenticAMD") for line in lines if line.startswith("vendor_id"))
    if is_amd and {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= set(flags):
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")


_widest_kernels()

# Programs that are ranks of a job enter MPI in `parallel.job.run`, once they know that the launcher and the library
# belong together; programs that start jobs never do.
mpi4py.rc.initialize = False


def _end_job(kind, value, traceback):
    """What fails before `parallel.job.run` takes over, such as an import on one node, ends the whole job as well."""
    sys.__excepthook__(kind, value, traceback)
    from parallel.job import end_job_early

    end_job_early()


sys.excepthook = _end_job
