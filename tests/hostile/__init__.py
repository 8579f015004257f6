"""Hostile files, odd data and accidents of checkpoints: each is read right, or refused in one line, and costs nobody anything.

`case.py` judges a case in a child process by rules, never by words. `malicious.py`, `odd.py` and `accidents.py` are the tables:
large files are made when their case is tried. Readers, and files that are valid, are those of `tests/fuzz`.
"""
