"""Readers of published data sets, and of folders of images and tables of one's own.

`prepare` runs in one process, `load` in each. `DATASETS` has the names of all of them, with the two functions of each: prepare,
of a folder; and load, of a folder and the type of the numbers. Those of one's own stand there as "images:FOLDER.." and
"table:FILE..", and their functions want the whole name as well.
"""

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gridgrad.datasets import airfoil, cifar10, denoise, ethylene, images, made_up, mnist, table, table_name
from gridgrad.datasets.files import data_directory
from gridgrad.datasets.inputs import read_inputs
from gridgrad.datasets.part import Dataset, Part
from gridgrad.datasets.views import Augmented, hold_out

Functions = tuple[Callable[..., None], Callable[..., Dataset]]

DATASETS: dict[str, Functions] = {
    "airfoil": (airfoil.prepare, airfoil.load),
    "airfoil5": (airfoil.prepare, partial(airfoil.load, name="airfoil5")),
    "mnist": (mnist.prepare, mnist.load),
    "cifar10": (cifar10.prepare, cifar10.load),
    "denoise": (denoise.prepare, denoise.load),
    "ethylene": (ethylene.prepare, ethylene.load),
    "ethylene-synthetic": (ethylene.prepare_synthetic, partial(ethylene.load, name="ethylene-synthetic")),
    images.NAME: (images.prepare, images.load),
    table_name.NAME: (table.prepare, table.load),
    made_up.NAME: (made_up.prepare, made_up.load),
}
OWN = {images.PREFIX: images.NAME, table_name.PREFIX: table_name.NAME, made_up.PREFIX: made_up.NAME}


def prepare(name: str, directory: str | PathLike[str] | None = None) -> None:
    """Download, convert and check what `load` needs. One process does it, before any loads.

    Parameters
    ----------
    name : str
        One of `DATASETS`, such as "mnist", "random:8,1" or "table:houses.csv,target=price".
    directory : path, optional
        The folder of the data; by default that of `data_directory`.

    Raises
    ------
    ValueError
        If there is no such data set, or a file is damaged. The message is one line.
    OSError
        If a file is not there and can not be had.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> datasets.prepare("airfoil")
    """
    _of(name)[0](data_directory(directory))


def load(name: str, directory: str | PathLike[str] | None = None, dtype: DTypeLike = np.float32) -> Dataset:
    """The data set of a name, for which `prepare` has been called. Of large ones nothing is read before it is asked for.

    Parameters
    ----------
    name : str
        One of `DATASETS`, such as "mnist", "random:8,1" or "table:houses.csv,target=price".
    directory : path, optional
        The folder of the data; by default that of `data_directory`.
    dtype : dtype
        Of the inputs, and of the targets in a regression: float32 or float64.

    Returns
    -------
    Dataset
        Its samples to train on, and those for testing.

    Raises
    ------
    ValueError
        If there is no such data set, or a file is damaged. The message is one line.
    OSError
        If a file is not there.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> data = datasets.load("airfoil")
    >>> len(data.train), len(data.test), data.sample_shape, data.outputs
    (1202, 301, (4,), 1)
    """
    return _of(name)[1](data_directory(directory), np.dtype(dtype))


def _of(name: str) -> Functions | list[Any]:
    """The functions of a name; ValueError if there is no such data set."""
    for beginning, form in OWN.items():
        if name.startswith(beginning):
            return [partial(function, name=name) for function in DATASETS[form]]
    if name not in DATASETS:
        raise ValueError(f"unknown data set '{name}': use one of {', '.join(DATASETS)}")
    return DATASETS[name]


__all__ = ["Augmented", "data_directory", "Dataset", "DATASETS", "hold_out", "load", "Part", "prepare", "read_inputs"]
