"""Start a job on this machine with the launcher that belongs to this Python, whichever MPI library that is.

    python -m experiments.launch 4 train --grid batch=2,model=2

The same as `mpiexec -n 4 python -m experiments.train ...` after setting the environment variables that the library needs:
one BLAS thread a rank, yielding while waiting where there are more ranks than cores, and permission to run as root under Open
MPI. Ctrl-C and SIGTERM end the whole job, which leaves no process and no file in /dev/shm behind.
"""

import argparse
import os
import sys

from experiments.common.options import Parser, user_input, whole
from experiments.common.programs import module_of
from parallel.job.foreground import Foreground
from parallel.job.run import run_launcher


def main():
    parser = Parser(prog="launch", description="Start a program on several ranks.")
    parser.add_argument("ranks", type=whole(1), help="number of ranks")
    parser.add_argument("program", help="the program to run, such as train, or a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    args = parser.parse_args()
    sys.path.insert(0, os.getcwd())  # where the ranks look for modules first
    with user_input():
        status = Foreground().run(args.ranks, ["-m", module_of(args.program), *args.arguments])
    sys.exit(status)


if __name__ == "__main__":
    run_launcher(main)
