"""Hostile files, odd data and accidents of checkpoints: each is read right, or refused in one line, and costs nobody anything.

    python -m tests.hostile                        all of them, as a table in Markdown; status 1 if one is wrong
    python -m tests.hostile --only npz --out FILE  those of which the kind or the name has this word; the table also in FILE

`case.py` judges a case in a child process by rules, never by words. `malicious.py`, `odd.py` and `accidents.py` are the tables;
readers, and files that are valid, are those of `tests/fuzz`.
"""
