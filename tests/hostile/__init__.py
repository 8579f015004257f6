"""Hostile files, odd data and accidents of checkpoints: each is read right, or refused in one line, and costs nobody anything.

    python -m tests.hostile                        all of them, as a table; status 1 if one is wrong
    python -m tests.hostile --only npz             those of which the kind or the name has this word
    python -m tests.hostile --write                also write results/hostile.md

`case.py` judges a case in child processes by rules, never by words. `malicious.py`, `odd.py` and `accidents.py` are the tables:
large files are made when their case is tried. Readers, and files that are valid, are those of `tests/fuzz`.
"""
