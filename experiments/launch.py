"""Start a job on this machine with the launcher that belongs to this Python, whichever MPI library that is.

    python -m experiments.launch 4 experiments.train --grid batch=2,model=2

The same as `mpiexec -n 4 python -m experiments.train ...` after setting what the library wants of its environment:
one BLAS thread a rank, calm oversubscription where there are more ranks than cores, and for root under Open MPI.
"""

import argparse
import os
import sys

from experiments.common.options import Parser, user_input, whole
from parallel.job.run import run_launcher
from parallel.job.launch import environment, find_mpiexec


def main():
    parser = Parser(prog="launch", description="Start a program on several ranks.")
    parser.add_argument("ranks", type=whole(1), help="how many")
    parser.add_argument("program", help="such as experiments.train")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    args = parser.parse_args()
    with user_input():
        launcher = find_mpiexec()
        command = [*launcher, "-n", str(args.ranks), sys.executable, "-m", args.program, *args.arguments]
        os.execve(launcher[0], command, environment(args.ranks, launcher[0]))


if __name__ == "__main__":
    run_launcher(main)
