"""Readers of published data sets, of folders of images and tables of one's own, and made-up data.

`prepare` runs in one process, `load` in each. `DATASETS` has two functions for each name: one prepares, of a folder and a name;
one loads, of a folder, the type of the numbers and a name.
"""

import math
import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gridgrad.datasets import cifar10, images, made_up, mnist, stored, table, uci
from gridgrad.datasets.files import data_directory
from gridgrad.datasets.part import MOMENTS, Dataset, Part
from gridgrad.datasets.views import Augmented, hold_out

Functions = tuple[Callable[..., Any], Callable[..., Dataset]]

DATASETS: dict[str, Functions] = {
    "airfoil": (lambda directory, name: None, uci.load_airfoil),
    "airfoil5": (lambda directory, name: None, uci.load_airfoil),
    "mnist": (mnist.prepare, mnist.load),
    "fashion-mnist": (mnist.prepare, mnist.load),
    "cifar10": (cifar10.prepare, cifar10.load),
    "denoise": (cifar10.prepare_denoise, cifar10.load_denoise),
    "ethylene": (uci.prepare_ethylene, uci.load_ethylene),
    "ethylene-synthetic": (uci.prepare_synthetic, uci.load_ethylene),
    **{kind.NAME: (kind.prepare, kind.load) for kind in (images, table, made_up)},
}


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
    ValueError, OSError
        If there is no such data set, a file is damaged, or one is not there and can not be had. The message is one line.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> datasets.prepare("airfoil")
    """
    folder = data_directory(directory)
    _functions(name, folder)[0](folder, name)


def load(name: str, directory: str | PathLike[str] | None = None, dtype: DTypeLike = np.float32) -> Dataset:
    """The data set of a name, for which `prepare` has been called. Large ones are mapped: what is asked for is read.

    Parameters
    ----------
    name, directory
        As for `prepare`, which says what is raised.
    dtype : dtype
        Of the inputs, and of the targets in a regression: float32 or float64.

    Returns
    -------
    Dataset
        Its samples to train on, and those for testing.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> data = datasets.load("airfoil")
    >>> len(data.train), len(data.test), data.sample_shape, data.outputs
    (1202, 301, (4,), 1)
    """
    folder = data_directory(directory)
    return _functions(name, folder)[1](folder, np.dtype(dtype), name)


def read_inputs(
    name: str,
    like: Dataset | Mapping[str, Any],
    directory: str | PathLike[str] | None = None,
    dtype: DTypeLike = np.float32,
) -> Part:
    """New samples for a network that was trained on other ones; ValueError if they do not fit it. Raises what `prepare` does.

    One process calls it before the others do.

    Parameters
    ----------
    name : str
        "table:FILE", which has the columns of the training by their names, or only the inputs, in their order; "images:FOLDER",
        whose images may lie anywhere in the folder; or the name of another data set, whose samples for testing are taken.
    like : Dataset or dict
        What the network was trained on, or its `Dataset.description`, which a checkpoint can keep.
    directory, dtype
        As for `load`.

    Returns
    -------
    Part
        All samples, standardised as in the training. `y` is None if there are no targets. Of images, `x.files` has the paths.
        Of a table in a text, `x.kept` has the names of the columns that are neither inputs nor targets, and a function that
        yields their words row by row.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> data = datasets.load("airfoil")
    >>> part = datasets.read_inputs("airfoil", like=data.description())
    >>> len(part), part.sample_shape
    (301, (4,))
    """
    like = like.description() if isinstance(like, Dataset) else like
    folder, shape = data_directory(directory), tuple(like["sample_shape"])
    x: Any
    y: Any
    if name.startswith(table.PREFIX):
        x, y = table.new_samples(folder, name, like)
    elif name.startswith(images.PREFIX):
        x, y = images.new_images(folder, name, shape[0]), None
    else:
        prepare(name, folder)
        data = load(name, folder, dtype)
        x, y = data.test.x, data.test.y if (data.loss, data.outputs) == (like["loss"], like["outputs"]) else None
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise ValueError(f"{name}: samples of the shape {x.shape[1:]}, and the network was trained on {shape}")
    x = x if x.shape[1:] == shape else x.reshape(len(x), *shape)
    moments: dict[str, Any] = {key: None if like[key] is None else np.array(like[key]) for key in MOMENTS}
    return Part(x, y, dtype=np.dtype(dtype), **moments)


def _functions(name: str, folder: Path) -> Functions:
    """The functions of a name; ValueError, with what was perhaps meant, if there is no such data set."""
    key = next((kind.NAME for kind in (images, table, made_up) if name.startswith(kind.PREFIX)), name)
    if key in DATASETS:
        return DATASETS[key]
    paths = [os.path.join(place, os.path.expanduser(name.partition(",")[0])) for place in ("", folder)]
    if any(os.path.isfile(path) and path.lower().endswith(tuple(stored.FORMATS)) for path in paths):
        meant = f"did you mean {table.PREFIX}{name}?"
    elif name and any(os.path.isdir(path) for path in paths):
        meant = f"did you mean {images.PREFIX}{name}?"
    else:
        near = get_close_matches(name, DATASETS, 1)
        meant = f"did you mean {near[0]}? The names are" if near else "use one of"
        meant += f" {', '.join(DATASETS)}"
    raise ValueError(f"unknown data set '{name}': {meant}")


__all__ = ["Augmented", "data_directory", "Dataset", "DATASETS", "hold_out", "load", "Part", "prepare", "read_inputs"]
