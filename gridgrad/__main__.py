"""`python -m gridgrad NAME ...` is the command `gridgrad NAME ...`."""

import sys

from gridgrad.startup import listen, said_of, speaks

listen()  # before all other imports, which take most of a second


def main():
    try:
        from gridgrad.experiments.common.command import main as run_program

        run_program()  # which imports it
    except Exception as error:
        if (line := said_of(error)) is None:
            raise
        if speaks():
            print(f"gridgrad: error: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
