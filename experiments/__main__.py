"""`python -m experiments` prints a list of the programs, and `python -m experiments NAME ...` runs one."""

from experiments.common.command import main

main()
