"""The death of a rank that the others survive: User-Level Failure Mitigation (ULFM), an extension of MPI.

Open MPI 5 has it in jobs started by `mpiexec --with-ft ulfm`. Other libraries, and Slurm's srun, end a job when one of its
ranks dies. Messages between survivors still arrive. Windows, files and Cartesian communicators do not survive, and collectives
in which the dead one would have taken part fail.
"""

import os
import sys
import time

from mpi4py import MPI

# Libraries without it have no such classes of errors, and mpi4py then gives the names the number of another one.
CLASSES = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING) if MPI.get_vendor()[0] == "Open MPI" else ()
DRAIN = 0.2  # seconds that the launcher gets to pass on what was printed
NEEDED = "a rank of this job has died, and what it computes needs all ranks: start it again"


class Death(RuntimeError):
    """A rank has died without which this one can not go on."""

    def __init__(self):
        super().__init__(NEEDED)


def is_death(error):
    """Whether an exception says that another rank has died."""
    return isinstance(error, Death) or isinstance(error, MPI.Exception) and error.Get_error_class() in CLASSES


def end_after_death(status):
    """End this process with an exit status, without the others: after a death MPI_Abort and MPI_Finalize may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(DRAIN)
    os._exit(status)


def dead(comm):
    """The ranks of a communicator that are known to have died: a set. Afterwards receives from any rank work again."""
    comm.Ack_failed()
    failed, everyone = comm.Get_failed(), comm.Get_group()
    ranks = set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), everyone))
    failed.Free(), everyone.Free()
    return ranks
