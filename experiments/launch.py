"""Start a job on this machine with the launcher that belongs to this Python, whichever MPI library that is.

    python -m experiments.launch 4 experiments.train --grid batch=2,model=2

The same as `mpiexec -n 4 python -m experiments.train ...` after setting the environment variables that the library needs:
one BLAS thread a rank, yielding while waiting where there are more ranks than cores, and permission to run as root under Open
MPI. Ctrl-C and SIGTERM end the whole job, which leaves no process and no file in /dev/shm behind.
"""

import argparse
import sys
from importlib.util import find_spec

from experiments.common.options import Parser, user_input, whole
from parallel.job.launch import foreground
from parallel.job.run import run_launcher


def check_program(name):
    """Raise ValueError unless Python finds a module or package of this name that it can run."""
    try:
        spec = find_spec(name)
        if spec and spec.submodule_search_locations is not None:  # a package
            spec = find_spec(f"{name}.__main__")
    except (ImportError, ValueError, TypeError):
        spec = None
    if spec is None:
        raise ValueError(f"there is no program {name}: give the name of a module, such as experiments.train")


def main():
    parser = Parser(prog="launch", description="Start a program on several ranks.")
    parser.add_argument("ranks", type=whole(1), help="number of ranks")
    parser.add_argument("program", help="the module to run, such as experiments.train")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    args = parser.parse_args()
    with user_input():
        check_program(args.program)
        status = foreground(args.ranks, ["-m", args.program, *args.arguments])
    sys.exit(status)


if __name__ == "__main__":
    run_launcher(main)
