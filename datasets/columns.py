"""Which columns of which arrays are the inputs and the targets of a table: what its name says, found in its files."""

import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridgrad.datasets import stored
from gridgrad.datasets.files import find
from gridgrad.nn.files import limits

SHOWN = 8  # names of columns in a message


@dataclass(frozen=True)
class Columns:
    """Some columns of a stored array.

    place: a name for the array, which columns of the same one share. chosen: the numbers of the columns, which increase.
    """

    array: stored.Stored
    place: str
    chosen: np.ndarray

    @property
    def where(self):
        return self.array.where

    @property
    def names(self):
        return [self.array.columns and self.array.columns[i] or str(i) for i in self.chosen]

    @property
    def unnamed(self):
        """The numbers of those without a name, beside others that have one, such as the index that pandas writes."""
        return [i for i in self.chosen if self.array.columns and re.match("Unnamed: [0-9]|$", self.array.columns[i])]

    def in_words(self, number=None):
        """Where they are, or the one of this number among them."""
        if not self.array.row_shape:
            return self.where
        names = self.names if number is None else [self.names[number]]
        shown = ", ".join(names[:SHOWN]) + ", .." * (len(names) > SHOWN)
        return f"{self.where}, column{'s' * (len(names) > 1)} {shown}"


@dataclass(frozen=True)
class Half:
    """The Columns with the inputs and with the targets of the samples to train on, or of those for testing."""

    x: Columns
    y: Columns


def resolve(request, directory):
    """({"train": Half, "test": Half}, paths of all files); both halves are the same one where a share of it is for testing.

    OSError for a file that is not there; ValueError for an array or a column that is not, or if they do not fit together.
    """
    path = locate(request.file, directory)
    if request.names and not stored.is_text(path):
        raise ValueError(f"{path} has no first line: leave names= out")
    arrays, x, y = stored.read(path, request.names), request.x, request.y
    if x is y is request.target is None and {"x", "y"} <= arrays.keys():
        x, y = "x", "y"
    train, paths = half("train", path, arrays, x, y, request, directory)
    if isinstance(request.test, float):
        if request.test_y is not None:
            raise ValueError(f"{path}: test_y={request.test_y} needs test=, the array or the file with the inputs")
        return {"train": train, "test": train}, paths
    if y is not None and request.test_y is None and (request.test in arrays or y not in arrays):
        raise ValueError(f"{path}: test={request.test} holds inputs alone: say test_y=, the array or file with their targets")
    if request.test in arrays:
        test, more = half("test", path, arrays, request.test, request.test_y, request, directory)
    else:
        path = locate(request.test, directory)
        arrays = stored.read(path, request.names)
        test, more = half("test", path, arrays, x, request.test_y or y, request, directory)
    for ours, theirs in ((train.x, test.x), (train.y, test.y)):
        if ours.array.width != theirs.array.width or ours.array.columns != theirs.array.columns:
            raise ValueError(f"{theirs.where}: its columns are not those of {ours.where}: for testing they must be the same")
    return {"train": train, "test": test}, [*paths, *more]


def locate(file, directory):
    """The path of a file, in the current folder before the data directory; OSError if it is in neither."""
    folders = dict.fromkeys((Path.cwd(), directory.absolute()))
    path = None
    with suppress(OSError, ValueError):  # a name that is too long, or holds a zero byte
        path = find(folders, [os.path.expanduser(file)])
    if path is None:
        raise OSError(f"table: no file {file} in {' or '.join(map(str, folders))}; give the path of one, or --data-dir")
    return path


def half(name, path, arrays, x, y, request, directory):
    """(Half, paths of its files). arrays: of the file at `path`. x, y: names of two of them, or None."""
    if x is None and len(arrays) != 1:
        raise ValueError(f"{path}: say which array has the inputs, with x=: {there_are(arrays)}")
    inputs, source = array("x", next(iter(arrays)) if x is None else x, path, arrays, directory, request)
    targets, other = (inputs, source) if y is None else array("y", y, path, arrays, directory, request)
    chosen = of_target(inputs, request.target) if y is None else np.arange(targets.width)
    x = Columns(inputs, f"{name}/x", of_inputs(inputs, request, chosen if y is None else ()))
    return Half(x, Columns(targets, f"{name}/{'x' if y is None else 'y'}", chosen)), [source, *[other] * (y is not None)]


def array(option, name, path, arrays, directory, request):
    """(Stored, path of its file): the array of this name among `arrays`, of the file at `path`, or in a file of this name."""
    if name not in arrays:
        if "" not in arrays and not Path(name).suffix:
            raise ValueError(f"{path}: no array '{name}' for {option}: {there_are(arrays)}")
        path = locate(name, directory)
        arrays = stored.read(path, request.names)
        if len(arrays) != 1:
            raise ValueError(f"{path}: for {option} it must hold one array, and {there_are(arrays)}")
        name = next(iter(arrays))
    found = arrays[name]
    most = limits.BUDGET // 8
    if not found.is_of_numbers:
        raise ValueError(f"{found.where}: it holds {found.dtype}, no numbers; write it as numbers")
    if not 0 < found.width <= most:
        raise ValueError(f"{found.where}: rows of the shape {found.row_shape} have no numbers, or more than {most}")
    return found, path


def there_are(arrays):
    return f"there are {', '.join(arrays)}" if arrays else "there are none"


def of_target(array, target):
    """The numbers of the columns that are targets, which increase: those that are named, by default the last one."""
    if len(array.row_shape) != 1 or array.width < 2:
        raise ValueError(f"{array.where}: rows of the shape {array.row_shape} have no column for a target; say y=")
    return named("target", array, target) if target else np.array([array.width - 1])


def of_inputs(array, request, targets):
    """The numbers of the columns that are inputs, which increase: those that are named, by default all that are left.

    targets: the numbers of those that are not to be among them.
    """
    option, names = ("inputs", request.inputs) if request.inputs else ("drop", request.drop)
    found = named(option, array, names) if names else np.array([], int)
    if len(both := np.intersect1d(found, targets)):
        raise ValueError(f"{array.where}: {option}={names} names column {both[0]}, which is a target: say another target=")
    found = found if request.inputs else np.setdiff1d(np.arange(array.width), [*found, *targets])
    if not len(found):
        raise ValueError(f"{array.where}: no column is left for the inputs: leave one out of target= or drop=")
    return found


def named(option, array, names):
    """The numbers of the columns that an option names, with colons between them; they increase."""
    if len(array.row_shape) != 1:
        raise ValueError(f"{array.where}: {option}={names} names columns, and rows of the shape {array.row_shape} have none")
    chosen = [column(array, word) for word in names.split(":")]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{array.where}: {option}={names} names a column twice")
    return np.sort(chosen)


def column(array, word):
    """The number of a column that is named, or counted from 0, or from the end as -1."""
    names = array.columns or ()
    if names.count(word) > 1:
        raise ValueError(f"{array.where}: there are {names.count(word)} columns {word}: give the number of one, counted from 0")
    if word in names:
        return names.index(word)
    if re.fullmatch("-?[0-9]{1,10}", word, re.ASCII) and -array.width <= int(word) < array.width:
        return int(word) % array.width
    named = f"there are {', '.join(names)}, or" if names else "use"
    raise ValueError(f"{array.where}: no column {word}: {named} a number from 0 to {array.width - 1}")


def sample_shape(asked, inputs):
    """The shape of a sample: `asked` if it is not None, else that of a row. ValueError if that has another size, or is neither.

    inputs: Columns.
    """
    features = len(inputs.chosen)
    of_row = inputs.array.row_shape if features == inputs.array.width else ()
    shape = asked or of_row or (features,)
    if math.prod(shape) != features or len(shape) not in (1, 3):
        example = "x".join(map(str, (*shape, 1))) if len(shape) == 2 else features  # of grey images that do not say so
        raise ValueError(
            f"{inputs.where}: {features} inputs are no sample of the shape {'x'.join(map(str, shape))}: say another one with "
            f"shape=, HEIGHTxWIDTHxCHANNELS or FEATURES, such as shape={example}"
        )
    return shape
