"""`python -m gridgrad NAME ...` is the command `gridgrad NAME ...`."""

import sys

from gridgrad.interrupt import listen

listen()  # before all other imports, which take most of a second


NO_MPI = "there is no MPI library: pip install mpich, or load that of your system (docs/install.md)"


def main():
    try:
        from gridgrad.experiments.common.command import main
    except (ImportError, RuntimeError) as error:  # mpi4py's, of different kinds in its versions
        if "libmpi" not in str(error) and "MPI library" not in str(error):
            raise
        print(f"gridgrad: error: {NO_MPI}", file=sys.stderr)
        sys.exit(2)
    main()


if __name__ == "__main__":
    main()
