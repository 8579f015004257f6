"""NASA airfoil self-noise (UCI 291, CC BY 4.0; Brooks, Pope and Marcolini 1989): 1,503 samples, in this folder.

Columns: frequency (Hz), angle of attack (degrees), chord length (m), free-stream velocity (m/s), suction-side
displacement thickness (m), and the sound pressure level (dB) to predict. Laugier et al. 2018 use four features
without naming them: `airfoil` takes the first four, `airfoil5` all.
"""

from pathlib import Path

import numpy as np

from gridgrad.datasets.files import find
from gridgrad.datasets.part import regression
from gridgrad.datasets.text import read_table

NAME = "airfoil_self_noise.dat"
ROWS, TEST_ROWS = 1503, 301


def prepare(directory):
    """Nothing to do: the file is part of the project."""


def load(directory, dtype, name="airfoil"):
    """The Dataset; a file of the published name in the data directory is preferred to the project's own.

    ValueError, naming the line, if it is not the published table.
    """
    path = find([directory], [NAME]) or Path(__file__).parent / NAME
    table = read_table(path, columns=6, most=ROWS + 1)
    if len(table) != ROWS:
        raise ValueError(f"{path}: {len(table)} rows, expected {ROWS}: the file is truncated or not the published one")
    table = np.random.default_rng(0).permutation(table)  # the file is sorted by experiment
    x, y = np.ascontiguousarray(table[:, : {"airfoil": 4, "airfoil5": 5}[name]]), table[:, 5:]
    cut = ROWS - TEST_ROWS
    return regression(name, (x[:cut], y[:cut]), (x[cut:], y[cut:]), "dB", dtype)
