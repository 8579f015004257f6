"""Fuzzed inputs: whatever is in a file or a text that a user gives, reading it ends well or in one clear line.

A target (`target.py`, the tables in `targets_*.py`) is a valid input, a strategy of hypothesis that damages it (`damage*.py`)
and the function of the product that reads it. `bounded.py` reads each input in a process with bounded memory and time.
"""
