"""Fuzzed inputs: whatever is in a file or a text that a user gives, reading it ends well or in one clear line.

    python -m tests.fuzz --examples 10000 --seed 1          all targets; failures and the inputs behind them in --out
    python -m tests.fuzz --target reports --input FILE       what one input does

A target (`target.py`, the tables in `targets_*.py`) is a valid input, a way to damage it and the function of the product that
reads it. `bounded.py` reads each input in a child process with bounded memory and time. `damage*.py` make the inputs.
"""
