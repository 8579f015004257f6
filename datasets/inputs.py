"""New samples for a trained network, with or without targets: chosen and standardised as those that it was trained on."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gridgrad.datasets import columns, images, stored, table_name
from gridgrad.datasets.files import data_directory
from gridgrad.datasets.part import Dataset, Part

FREE = "file", "names", "x", "y"  # what the name of a table may say of new samples; the rest is as it was in training


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
    if name.startswith(table_name.PREFIX):
        x, y = of_table(name, like, directory)
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


def of_table(name, like, directory):
    """(inputs, targets or None), as arrays of all samples in a file."""
    request = table_name.parse(name)
    usual = vars(table_name.TableName(request.file))
    if said := [option for option, value in vars(request).items() if option not in FREE and value != usual[option]]:
        raise ValueError(f"data set '{name}': leave {said[0]}= out: new samples have the columns and the shape of the training")
    path = columns.locate(request.file, directory)
    arrays = stored.read(path, request.names)
    x = request.x or ("x" if "x" in arrays else None)
    if x is None and len(arrays) != 1:
        raise ValueError(f"{path}: say which array has the inputs, with x=: {columns.there_are(arrays)}")
    array, _ = columns.array("x", x or next(iter(arrays)), path, arrays, directory, request)
    y = request.y or ("y" if {"x", "y"} <= arrays.keys() and x == "x" else None)
    targets = y and columns.array("y", y, path, arrays, directory, request)[0]
    wanted, others = like["input_names"], like["target_names"]
    found, y = np.concatenate([*array.blocks()]), None if targets is None else np.concatenate([*targets.blocks()])
    if wanted is not None and len(array.row_shape) == 1 and (array.columns or array.width != len(wanted)):
        names = array.columns or tuple(map(str, range(array.width)))
        if targets is None and others and all(word in names for word in others):
            y = found[:, [columns.column(array, word) for word in others]]
        found = found[:, [columns.column(array, word) for word in wanted]]
    if y is not None and like["classes"]:
        y = y.reshape(len(y)).astype(np.int64)
    return found, y
