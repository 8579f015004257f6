"""`python -m experiments NAME ...`, from the folder of the sources, is the command `gridgrad NAME ...`."""

from gridgrad.experiments.common.command import main

if __name__ == "__main__":
    main()
