"""`python -m gridgrad NAME ...` is the command `gridgrad NAME ...`."""

from gridgrad.experiments.common.command import main

if __name__ == "__main__":
    main()
