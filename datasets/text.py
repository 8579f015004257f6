"""Tables of numbers in text files, read in chunks and checked line by line where something is wrong."""

from itertools import islice

import numpy as np
from tqdm import tqdm

CHUNK = 50_000  # lines


def read_table(path, columns, skip=0, max_rows=None):
    """The numbers of a whitespace-separated text file as float64, (rows, columns).

    skip: header lines. max_rows: stop there. Raises ValueError naming file and line for a line that does not have
    `columns` finite numbers.
    """
    chunks, line, rows = [], skip, 0
    bar = tqdm(total=max_rows, desc=f"reading {path.name}", unit=" rows", delay=2, disable=None)
    with open(path, encoding="ascii", errors="replace") as file, bar:
        for _ in islice(file, skip):
            pass
        while lines := list(islice(file, CHUNK if max_rows is None else min(CHUNK, max_rows - rows))):
            chunks.append(_numbers(path, lines, columns, line + 1))
            line += len(lines)
            rows += len(chunks[-1])
            bar.update(len(chunks[-1]))
    return np.concatenate(chunks) if chunks else np.empty((0, columns))


def _numbers(path, lines, columns, first):
    """The numbers of some lines; if they are wrong, a slower search finds the line."""
    try:
        table = np.array(" ".join(lines).split(), dtype=np.float64).reshape(-1, columns)
        regular = len(table) == len(lines) and np.isfinite(table).all()
    except ValueError:
        regular = False
    # As many numbers as there should be, and then as many in each line.
    if regular and all(len(text.split()) == columns for text in lines):
        return table
    good = []
    for number, text in enumerate(lines, first):
        words = text.split()
        if not words:
            continue
        if len(words) != columns:
            raise ValueError(f"{path}: line {number} has {len(words)} columns, expected {columns}; fetch the file anew")
        try:
            values = [float(word) for word in words]
        except ValueError:
            raise ValueError(f"{path}: line {number} holds something that is not a number; fetch the file anew") from None
        if not np.isfinite(values).all():
            raise ValueError(f"{path}: line {number} holds a NaN or an infinite value; remove or mend that line")
        good.append(values)
    return np.array(good).reshape(-1, columns)
