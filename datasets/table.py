"""Tables of one's own: inputs and targets in a text (CSV), NPY, NPZ or HDF5 file.

`prepare` reads all samples once. It writes what it finds out about them, and the arrays that can not be mapped where they lie,
into an HDF5 file in the data directory. Each rank maps the arrays, and reads only the samples and columns that it needs.
"""

import hashlib
import os
import re
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from gridgrad.datasets import rows, stored
from gridgrad.datasets.columns import SHOWN, resolve, sample_shape
from gridgrad.datasets.files import fingerprint
from gridgrad.datasets.part import Dataset, Part, regression
from gridgrad.datasets.samples import Samples
from gridgrad.datasets.survey import MOST_CLASSES, Moments, WholeNumbers, check_deviations, check_numbers
from gridgrad.datasets.table_name import parse
from gridgrad.nn.random import permutation

READING = 2  # of this way to read them: a file that was converted in another way is not used


def prepare(directory, name):
    """Read all samples, once, and convert those that can not be mapped; by one process, before the others load.

    OSError if there is no such file; ValueError naming what is wrong with it.
    """
    prepared(directory, name)


def prepared(directory, name):
    """(the Request, the halves of `resolve`, the path of the file that was written)."""
    request = parse(name)
    halves, paths = resolve(request, directory)
    key = hashlib.sha256(os.fsencode(" ".join(map(str, [READING, *paths, name])))).hexdigest()[:16]
    short = re.sub("[^\\w.-]", "_", paths[0].stem, flags=re.ASCII)[:100]  # file systems have a limit, and not all take any byte
    target, version = directory / "tables" / f"{short}-{key}.h5", fingerprint("", paths)
    if not rows.is_current(target, version):
        counts = count(request, halves)
        others = {place: array for place, array in placed(halves).items() if array.map is None}
        outline = {place: ((counts[place], *array.row_shape), array.dtype) for place, array in others.items()}
        with rows.creating(target, outline) as file:
            for place, array in others.items():
                convert(array, file[place])
            arrays = {place: file[place] if place in others else array.map for place, array in placed(halves).items()}
            file.attrs.update({"source": version} | survey(request, halves, arrays))
    return request, halves, target


def placed(halves):
    """{place: Stored} of all arrays."""
    return {columns.place: columns.array for half in halves.values() for columns in (half.x, half.y)}


def count(request, halves):
    """{place: number of rows}. ValueError if inputs and targets are not as many, or too few to train and test."""
    counts = {place: array.count() for place, array in placed(halves).items()}
    for half in halves.values():
        inputs, targets = counts[half.x.place], counts[half.y.place]
        if inputs != targets:
            raise ValueError(f"{half.x.where}: {inputs} inputs, but {targets} targets in {half.y.where}")
        if not inputs:
            raise ValueError(f"{half.x.where}: it has no rows, and so no samples")
    divide(request, counts["train/x"], halves["train"].x.where)
    return counts


def divide(request, samples, where):
    """{"train": .., "test": ..}: which of the samples in the first file are for what, an increasing index array; None for all.

    ValueError if there are too few.
    """
    if not isinstance(request.test, float):
        return {"train": None, "test": None}
    tests = round(request.test * samples)
    if not 0 < tests < samples:
        raise ValueError(
            f"{where}: too few rows: {request.test:g} of {samples} would be {tests} for testing; say another test="
        )
    order = permutation(request.seed, 0, samples, "test")
    return {"train": np.sort(order[tests:]), "test": np.sort(order[:tests])}


def convert(array, target):
    """Write the rows of a Stored to a dataset of an open file."""
    done = 0
    with tqdm(total=len(target), desc="converting", unit=" rows", delay=2, disable=None) as bar:
        for block in array.blocks():
            target[done : done + len(block)] = block[: len(target) - done]
            done += len(block)
            bar.update(len(block))
    if done != len(target):
        raise ValueError(f"{array.where}: {done} rows where there were {len(target)} before; do not change it meanwhile")


def survey(request, halves, arrays):
    """What `load` needs to know of all samples, as attributes of an HDF5 file. ValueError if they are no good.

    arrays: {place: array or dataset of an open HDF5 file}.
    """
    train, shape = halves["train"], sample_shape(request.shape, halves["train"].x)
    chosen, different = divide(request, len(arrays["train/x"]), train.x.where)["train"], halves["test"] is not train
    found, targets = {}, {"train": WholeNumbers(), "test": WholeNumbers()}
    for letter, length in (("x", shape[-1]), ("y", len(train.y.chosen))):
        moments = Moments(length)
        for half in ("train", "test") if different else ("train",):
            columns = getattr(halves[half], letter)
            for start, values in blocks(columns, arrays[columns.place]):
                check_numbers(values, columns, start)
                if letter == "y" and length == 1:
                    targets[half].add(values[:, 0])
                if half == "train":
                    moments.add((values if chosen is None else values[within(chosen, start, len(values))]).reshape(-1, length))
        found[f"{letter}_mean"], found[f"{letter}_std"] = moments.result()
    classes = targets["train"].classes(request.kind, train.y, len(arrays["train/x"]))
    if classes and different:
        targets["test"].check_below(classes, halves["test"].y)
    return found | {"classes": classes}


def blocks(columns, array):
    """Yields (number of the first row, the Columns of some rows as float64)."""
    start = 0
    for block in stored.slices(array):
        yield start, block.reshape(len(block), -1)[:, columns.chosen].astype(np.float64)
        start += len(block)


def within(chosen, start, count):
    """The positions of those of the `chosen` that are among `count` rows from `start` on; chosen: (n,) that increase."""
    first, last = np.searchsorted(chosen, (start, start + count))
    return chosen[first:last] - start


def load(directory, dtype, name):
    """The Dataset. Arrays are mapped, not read; what has not been prepared is prepared."""
    request, halves, path = prepared(directory, name)
    train, classes = halves["train"], rows.attributes(path).get("classes")
    if not isinstance(classes, np.integer) or not 0 <= classes <= MOST_CLASSES:
        raise ValueError(f"{path}: the number of classes is missing or damaged; delete the file, and it is made anew")
    shape, outputs = sample_shape(request.shape, train.x), train.y.chosen.shape
    fitted = rows.vectors(path, {"x_mean": shape[-1], "x_std": shape[-1], "y_mean": outputs[0], "y_std": outputs[0]})
    for mean, std, columns in ((*fitted[:2], train.x), (*fitted[2:], train.y)):
        check_deviations(mean, std, dtype, columns)
    arrays = {
        place: (rows.map_rows(path, place, array.row_shape, array.dtype) if array.map is None else array.map)
        for place, array in placed(halves).items()
    }
    chosen = divide(request, len(arrays["train/x"]), train.x.where)
    train, test = (
        (
            Samples(arrays[half.x.place], half.x.chosen, shape, chosen[name]),
            Samples(arrays[half.y.place], half.y.chosen, () if classes else outputs, chosen[name]),
        )
        for name, half in halves.items()
    )
    if classes:
        parts = (Part(x, y, *fitted[:2], dtype=dtype) for x, y in (train, test))
        data = Dataset(name, *parts, "cross-entropy", int(classes), "")
    else:
        data = regression(name, train, test, "in units of the table", dtype, fitted=fitted)
    inputs, targets = ([*one.names] if len(one.array.row_shape) < 2 else None for one in (halves["train"].x, halves["train"].y))
    names = {"input_names": inputs, "target_names": targets, "classes": [str(i) for i in range(classes)] if classes else None}
    return replace(data, note=said(request, halves, classes), **names)


def said(request, halves, classes):
    """A line that says what was taken for what."""
    inputs, targets = halves["train"].x, halves["train"].y
    kind = f"{classes} labels" if classes else "values"
    guessed = " (say kind=values if they are values)" if classes and not request.kind else ""
    scaled = "inputs are" if classes else "inputs and targets are"
    moments = "the mean and deviation of the training samples"
    guesses = [array.note for array in placed(halves).values() if array.note]
    unnamed = [
        f"column {i}, counted from 0, has no name and is an input (add drop={i} if it only numbers the rows)"
        for i in inputs.unnamed[:SHOWN]
    ]
    taken = f"targets: {targets.in_words()}, taken as {kind}{guessed}; {scaled} standardised by {moments}"
    return "; ".join([taken, *dict.fromkeys(guesses), *unnamed])
