"""`python -m gridgrad NAME ...` is the command `gridgrad NAME ...`."""

from experiments.common.command import main

main()
