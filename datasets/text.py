"""Tables of numbers in text files, read in chunks and checked line by line where something is wrong."""

import warnings
from itertools import islice

import numpy as np
from tqdm import tqdm

CHUNK = 50_000  # lines
REMEDY = "mend that line, or fetch the file anew"
SHOWN = 40  # characters of what is no number


def opened(path):
    """The text file. Bytes that are no UTF-8 become marks that are no numbers."""
    return open(path, encoding="utf-8-sig", errors="replace")


def read_table(path, columns, skip=0, max_rows=None):
    """The numbers of a whitespace-separated text file as float64, (rows, columns), as `read_chunks` takes and refuses them."""
    chunks = []
    with tqdm(total=max_rows, desc=f"reading {path.name}", unit=" rows", delay=2, disable=None) as bar:
        for chunk in read_chunks(path, columns, skip=skip, max_rows=max_rows):
            chunks.append(chunk)
            bar.update(len(chunk))
    return np.concatenate(chunks) if chunks else np.empty((0, columns))


def read_chunks(path, columns, delimiter=None, skip=0, max_rows=None):
    """Yields the numbers of a text file, some thousand lines at a time: float64, (rows, columns).

    delimiter: between two numbers, by default white space. skip: header lines. max_rows: stop there. Empty lines are passed
    over. Raises ValueError naming file and line for a line that does not have `columns` finite numbers.
    """
    line, rows = skip, 0
    with opened(path) as file:
        for _ in islice(file, skip):
            pass
        while lines := list(islice(file, CHUNK if max_rows is None else min(CHUNK, max_rows - rows))):
            chunk = _numbers(path, lines, columns, delimiter, line + 1)
            line += len(lines)
            rows += len(chunk)
            yield chunk


def count_rows(path, skip):
    """How many rows `read_chunks` finds behind the header."""
    with opened(path) as file:
        return sum(1 for text in islice(file, skip, None) if text.strip())


def _numbers(path, lines, columns, delimiter, first):
    """The numbers of some lines; if they are wrong, a slower search finds the line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy's, where all lines are empty
            table = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
        if table.shape[1] == columns and np.isfinite(table).all():
            return table
    except (UserWarning, ValueError):
        pass
    good = []
    for number, text in enumerate(lines, first):
        if not text.strip():
            continue
        some = text.split() if delimiter is None else text.replace('"', "").split(delimiter)
        if len(some) != columns:
            raise ValueError(f"{path}: line {number} has {len(some)} columns, expected {columns}; {REMEDY}")
        good.append([_number(path, number, place, word) for place, word in enumerate(some)])
    return np.array(good).reshape(-1, columns)


def _number(path, line, column, word):
    try:
        value = float(word)
    except ValueError:
        shown = " ".join(word[:SHOWN].split())
        what = f"'{shown}', which is not a number" if shown else "nothing"
        raise ValueError(f"{path}: line {line} holds {what}, in column {column}, counted from 0; {REMEDY}") from None
    if not np.isfinite(value):
        raise ValueError(f"{path}: line {line} holds a NaN or an infinite value, in column {column}, counted from 0; {REMEDY}")
    return value
