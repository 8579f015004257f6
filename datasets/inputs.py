"""New samples for a trained network, with or without targets: chosen and standardised as those that it was trained on."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gridgrad.datasets import images, table
from gridgrad.datasets.files import data_directory
from gridgrad.datasets.part import Dataset, Part


def read_inputs(
    name: str,
    like: Dataset | Mapping[str, Any],
    directory: str | os.PathLike[str] | None = None,
    dtype: DTypeLike = np.float32,
) -> Part:
    """New samples for a network that was trained on other ones. One process calls it before the others do.

    Parameters
    ----------
    name : str
        "table:FILE", which has the columns of the training by their names, or only the inputs, in their order; "images:FOLDER",
        whose images may lie anywhere in the folder; or the name of another data set, whose samples for testing are taken.
    like : Dataset or dict
        What the network was trained on, or its `Dataset.description`, which a checkpoint can keep.
    directory : path, optional
        The folder of the data; by default that of `data_directory`.
    dtype : dtype
        Of the inputs: float32 or float64.

    Returns
    -------
    Part
        All samples, standardised by the moments of the training. Its `y` is None if the file has no targets; `unstandardise`
        gives outputs of the network in the units of the training. Of images, `x.files` has the paths.

    Raises
    ------
    ValueError
        If the samples do not fit the network, or a file is damaged. The message is one line.
    OSError
        If a file is not there.

    Examples
    --------
    >>> from gridgrad import datasets
    >>> data = datasets.load("airfoil")
    >>> part = datasets.read_inputs("airfoil", like=data.description())
    >>> len(part), part.sample_shape
    (301, (4,))
    """
    like = like.description() if isinstance(like, Dataset) else like
    directory, shape = data_directory(directory), tuple(like["sample_shape"])
    if name.startswith(table.PREFIX):
        x, y = table.new_samples(directory, name, like)
    elif name.startswith(images.PREFIX):
        x, y = images.Files(directory, name, shape[0]), None
    else:
        from gridgrad import datasets

        datasets.prepare(name, directory)
        data = datasets.load(name, directory, dtype)
        x, y = data.test.x, data.test.y if (data.loss, data.outputs) == (like["loss"], like["outputs"]) else None
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise ValueError(f"{name}: samples of the shape {x.shape[1:]}, and the network was trained on {shape}")
    x = x if x.shape[1:] == shape else x.reshape(len(x), *shape)
    return standardised(x, y, like, dtype)


def standardised(x, y, like, dtype):
    """The Part of these arrays with the moments of the training."""
    moments = (None if like[key] is None else np.array(like[key]) for key in ("x_mean", "x_std", "y_mean", "y_std"))
    return Part(x, y, *moments, dtype=np.dtype(dtype))
