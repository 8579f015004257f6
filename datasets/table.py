"""Tables of one's own: inputs and targets in a text (CSV), NPY, NPZ or HDF5 file.

`prepare` reads all samples once. It writes what it finds out about them, and the arrays that can not be mapped where they lie,
into an HDF5 file in the data directory. Each rank maps the arrays, and reads only the samples and columns that it needs.
"""

import hashlib
import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gridgrad.datasets import files, stored
from gridgrad.datasets.part import Dataset, Part, Samples
from gridgrad.datasets.stored import is_name, is_word, number
from gridgrad.nn.files import limits
from gridgrad.nn.random import permutation

PREFIX = "table:"
NAME = f"{PREFIX}FILE[,OPTION=..]"
SHARE = 0.2  # of the samples that are for testing
BEHIND = r"(?=,\w+=|\Z)"  # what is behind a word
ENDING = f"(?:{'|'.join(map(re.escape, stored.FORMATS))}){BEHIND}"  # of a path, which may hold what looks like an option
SIZE = "[1-9][0-9]{0,9}"
FORMS = {  # of options: what their values are, in words, and what makes values of the texts
    "kind": ("labels|values", "labels or values", str),
    "names": ("yes|no", "yes or no", str),
    "seed": ("[0-9]{1,18}", "a whole number of at least 0", int),
    "shape": (f"{SIZE}(x{SIZE}x{SIZE})?", "HEIGHTxWIDTHxCHANNELS or FEATURES, such as 28x28x1",
              lambda text: tuple(map(int, text.split("x")))),
}  # fmt: skip
OF_NEW = "file", "names", "x", "y"  # what the name of a table says of new samples; the rest is as in training
READING = 3  # of this way to read them: a file that was converted in another way is not used
SHOWN = 8  # names in a message
LEAST, MOST = 1e-30, 1e30  # of a deviation and of a number, so that float32 can hold them and their quotients
CLOSE = 16  # deviations below so many roundings of the mean are lost
MOST_CLASSES = 10_000


@dataclass(frozen=True)
class TableName:
    """A name such as "table:houses.csv,target=price,test=0.1", taken apart: docs/data.md has the options."""

    file: str
    target: str | None = None
    inputs: str | None = None
    drop: str | None = None
    names: str | None = None
    x: str | None = None
    y: str | None = None
    test: float | str = SHARE
    test_y: str | None = None
    seed: int = 0
    kind: str | None = None
    shape: tuple[int, ...] | None = None


OPTIONS = [field.name for field in fields(TableName) if field.name != "file"]


def parse(name):
    """The TableName behind a name; ValueError saying what is accepted."""
    text = name.removeprefix(PREFIX)
    file = re.match(f"(?is).*?{ENDING}|.*?{BEHIND}", text)[0]
    if not file:
        raise ValueError(f"data set '{name}' names no file: use {NAME}")
    try:
        return TableName(file, **options(text[len(file) :]))
    except ValueError as error:
        raise ValueError(f"data set '{name}': {error}") from None


def options(text):
    """{option: value} of what follows the file in a name."""
    found = {}
    for word in re.findall(f"(?is),(y=[/.~].*?{ENDING}|test(?:_y)?=[/.~].*?{ENDING}|.*?{BEHIND})", text):
        option, _, value = word.partition("=")
        if option not in OPTIONS or option in found or not value:
            raise ValueError(f"'{word}' is unknown, empty or said twice: the options are {', '.join(OPTIONS)}")
        form, words, make = FORMS.get(option, (None, "", str))
        if form and not re.fullmatch(form, value, re.ASCII):
            raise ValueError(f"{option} must be {words}, not '{value}'")
        found[option] = make(value)
        if option == "test" and (share := number(value)) is not None:
            if not 0 < share < 1:
                raise ValueError(f"test must be a share above 0 and below 1, an array or a file, not {value}")
            found[option] = share
    if "inputs" in found and "drop" in found:
        raise ValueError("inputs names the columns that are left by drop: leave one of them out")
    if "target" in found and "y" in found:
        raise ValueError("target names columns and y a whole array: leave one of them out")
    if "seed" in found and not isinstance(found.get("test", SHARE), float):
        raise ValueError(f"seed draws a share of the samples, and test={found['test']} is none: leave it out")
    return found


@dataclass(frozen=True)
class Columns:
    """Some columns, by number, of a stored array, whose rows are converted to the HDF5 dataset `place`. words: tells what is
    the name of a class, if it is a column with such names; else None."""

    array: stored.Stored
    place: str
    chosen: np.ndarray
    words: Callable[[str], bool] | None = None

    @property
    def names(self):
        return [self.array.columns and self.array.columns[i] or str(i) for i in self.chosen]

    def in_words(self, names=None):
        """Where they are, or those of these names."""
        names = names or self.names
        return self.array.where + f", column{'s' * (len(names) > 1)} {files.listed(names, SHOWN)}" * bool(self.array.row_shape)


def of_targets(array, place, chosen, any_word):
    """The Columns with the targets. any_word: names of classes need not begin with a letter, such as "<=50K"."""
    words = is_word if any_word else is_name
    return Columns(array, place, chosen, words if len(chosen) == 1 and array.has_words(chosen[0], words) else None)


class Finder:
    """Finds what a TableName asks for. paths: of the files that have been used."""

    def __init__(self, request, directory):
        self.request, self.folders, self.paths = request, dict.fromkeys((Path.cwd(), directory.absolute())), []

    def file(self, name):
        """(path, arrays) of a file, in the current folder before the data directory; OSError if it is in neither."""
        path = None
        with suppress(OSError, ValueError):  # a name that is too long, or holds a zero byte
            path = files.find(self.folders, [os.path.expanduser(name)])
        if path is None:
            there = " or ".join(map(str, self.folders))
            raise OSError(f"table: no file {name} in {there}; give the path of one, or --data-dir")
        if self.request.names and name == self.request.file and not stored.is_text(path):
            raise ValueError(f"{path} has no first line: leave names= out")
        return path, stored.read(path, self.request.names)

    def array(self, option, name, path, arrays):
        """The array of this name among `arrays`, of the file at `path`, or in a file of this name; None: the only one."""
        wanted = "say which array has the inputs, with x=:"
        if name is not None and name not in arrays:
            if "" not in arrays and not Path(name).suffix:
                raise ValueError(f"{path}: no array '{name}' for {option}: there are {', '.join(arrays) or 'none'}")
            (path, arrays), name, wanted = self.file(name), None, f"for {option} it must hold one array, and"
        if name is None and len(arrays) != 1:
            raise ValueError(f"{path}: {wanted} there are {', '.join(arrays) or 'none'}")
        found, most = arrays[next(iter(arrays)) if name is None else name], limits.BUDGET // 8
        if not (stored.are_numbers(found.dtype) or option == "y" and found.is_of_words and found.width == 1):
            kind = "words" if found.is_of_words else found.dtype
            raise ValueError(f"{found.where}: it holds {kind}, no numbers; write it as numbers")
        if not 0 < found.width <= most:
            raise ValueError(f"{found.where}: rows of the shape {found.row_shape} have no numbers, or more than {most}")
        self.paths.append(path)
        return found

    def half(self, half, path, arrays, x, y):
        """(inputs, targets), the Columns of the samples to train on or to test. x, y: names of two arrays, or None."""
        inputs, request, apart = self.array("x", x, path, arrays), self.request, y is not None
        if not apart and (len(inputs.row_shape) != 1 or inputs.width < 2):
            raise ValueError(f"{inputs.where}: rows of the shape {inputs.row_shape} have no column for a target; say y=")
        targets = self.array("y", y, path, arrays) if apart else inputs
        chosen = np.arange(targets.width) if apart else named("target", inputs, request.target or "-1")
        option, names = ("inputs", request.inputs) if request.inputs else ("drop", request.drop)
        found, taken = named(option, inputs, names) if names else np.array([], int), () if apart else chosen
        if len(both := np.intersect1d(found, taken)):
            raise ValueError(f"{inputs.where}: {option}={names} names column {both[0]}, which is a target: say another target=")
        found = found if request.inputs else np.setdiff1d(np.arange(inputs.width), [*found, *taken])
        if not len(found):
            raise ValueError(f"{inputs.where}: no column is left for the inputs: leave one out of target= or drop=")
        y = of_targets(targets, f"{half}/{'y' if apart else 'x'}", chosen, request.kind == "labels")
        return Columns(inputs, f"{half}/x", found), y


def resolve(request, directory):
    """({"train": (inputs, targets), "test": ..}, paths of all files); one pair twice where a share of it is for testing."""
    finder = Finder(request, directory)
    path, arrays = finder.file(request.file)
    x, y, test_y = request.x, request.y, request.test_y
    if x is y is request.target is None and {"x", "y"} <= arrays.keys():
        x, y = "x", "y"
    train = finder.half("train", path, arrays, x, y)
    if isinstance(request.test, float):
        if test_y is not None:
            raise ValueError(f"{path}: test_y={test_y} needs test=, the array or the file with the inputs")
        return {"train": train, "test": train}, finder.paths
    if y is not None and test_y is None and (request.test in arrays or y not in arrays):
        raise ValueError(f"{path}: test={request.test} holds inputs alone: say test_y=, the array or file with their targets")
    if request.test in arrays:
        x, y = request.test, test_y
    else:
        (path, arrays), y = finder.file(request.test), test_y or y
    test = finder.half("test", path, arrays, x, y)
    for ours, theirs in zip(train, test):
        if (ours.array.width, ours.array.columns) != (theirs.array.width, theirs.array.columns):
            raise ValueError(f"{theirs.array.where}: for testing, its columns are not those of {ours.array.where}")
    return {"train": train, "test": test}, finder.paths


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
    there = f"there are {', '.join(names)}, or" if names else "use"
    raise ValueError(f"{array.where}: no column {word}: {there} a number from 0 to {array.width - 1}")


def sample_shape(asked, inputs):
    """The shape of a sample: `asked` if it is not None, else that of a row of the Columns `inputs`."""
    features = len(inputs.chosen)
    shape = asked or (features == inputs.array.width and inputs.array.row_shape) or (features,)
    if math.prod(shape) != features or len(shape) not in (1, 3):
        example = "x".join(map(str, (*shape, 1))) if len(shape) == 2 else features  # of grey images that do not say so
        sizes = "x".join(map(str, shape))
        raise ValueError(f"{inputs.array.where}: {features} inputs are no sample of the shape {sizes}: say another one with "
                         f"shape=, HEIGHTxWIDTHxCHANNELS or FEATURES, such as shape={example}")  # fmt: skip
    return shape


# ----- reading all samples once


def prepare(directory, name):
    """Read all samples, once, and convert those that can not be mapped. Returns (the TableName, its halves, the path
    written)."""
    request = parse(name)
    halves, paths = resolve(request, directory)
    names = partial(class_names, halves["train"][1], request.kind)
    return request, halves, converted(directory, name, halves, paths, names, partial(survey, request))


def converted(directory, key, halves, paths, find_names, examine):
    """The path of the HDF5 file with the arrays that can not be mapped where they lie, and what `examine` finds in all arrays.
    key: tells this from other ways to read the files at `paths`. find_names: gives the names of classes, if they are words."""
    digest = hashlib.sha256(os.fsencode(" ".join(map(str, [READING, *paths, key])))).hexdigest()[:16]
    short = re.sub("[^\\w.-]", "_", paths[0].stem, flags=re.ASCII)[:100]  # file systems have a limit, and not all take any byte
    target, version = directory / "tables" / f"{short}-{digest}.h5", files.fingerprint("", paths)
    if files.is_current(target, version):
        return target
    counts = {place: array.count() for place, array in placed(halves).items()}
    for inputs, *targets in halves.values():
        count = counts[inputs.place]
        if targets and counts[targets[0].place] != count:
            there = f"{counts[targets[0].place]} targets in {targets[0].array.where}"
            raise ValueError(f"{inputs.array.where}: {count} inputs, but {there}")
        if not count:
            raise ValueError(f"{inputs.array.where}: it has no rows, and so no samples")
    names = find_names()
    others = {place: array for place, array in placed(halves).items() if array.map is None}
    outline = {place: ((counts[place], *array.row_shape), array.numbers) for place, array in others.items()}
    with files.creating(target, outline) as file:
        for place, array in others.items():
            used = [columns for half in halves.values() for columns in half if columns.place == place]
            convert(array, file[place], used, names)
        arrays = {place: file[place] if place in others else array.map for place, array in placed(halves).items()}
        file.attrs.update({"source": version} | examine(halves, names, arrays))
    return target


def placed(halves):
    """{place: Stored} of all arrays."""
    return {columns.place: columns.array for half in halves.values() for columns in half}


def divide(request, samples, where):
    """{"train": .., "test": ..}: which of the samples in the first file are for what, increasing numbers; None for all."""
    if not isinstance(request.test, float):
        return {"train": None, "test": None}
    tests, share = round(request.test * samples), f"{request.test:g} of {samples}"
    if not 0 < tests < samples:
        raise ValueError(f"{where}: too few rows: {share} would be {tests} for testing; say another test=")
    order = permutation(request.seed, 0, samples, "test")
    return {"train": np.sort(order[tests:]), "test": np.sort(order[:tests])}


def class_names(targets, kind):
    """The different words in a column, in alphabetical order, or None if it has none. ValueError if they are no classes."""
    if not targets.words:
        return None
    if kind == "values":
        raise ValueError(f"{targets.in_words()}: it holds words, which are no values: leave kind= out, or say another target=")
    found = targets.array.words(targets.chosen[0], targets.words, MOST_CLASSES)
    if len(found) > MOST_CLASSES:
        raise ValueError(f"{targets.in_words()}: there are more than {MOST_CLASSES} different words: say another target=")
    return found


def convert(array, target, used, names):
    """Write the rows of a Stored to a dataset of an open file. used: the Columns of it. names: of classes, or None."""
    needed, numbers = {int(i) for columns in used for i in columns.chosen}, {name: i for i, name in enumerate(names or ())}
    labels, done = {int(columns.chosen[0]): numbers for columns in used if columns.words}, 0
    with tqdm(total=len(target), desc="converting", unit=" rows", delay=2, disable=None) as bar:
        for block in array.blocks(needed, labels):
            target[done : done + len(block)] = block[: len(target) - done]
            done += len(block)
            bar.update(len(block))
    if done != len(target):
        raise ValueError(f"{array.where}: {done} rows where there were {len(target)} before; do not change it meanwhile")


def survey(request, halves, names, arrays):
    """What `load` needs to know of all samples, as attributes of an HDF5 file. ValueError if they are no good."""
    (inputs, targets), tests = halves["train"], halves["test"]
    shape, samples = sample_shape(request.shape, inputs), len(arrays["train/x"])
    chosen = divide(request, samples, inputs.array.where)["train"]
    x_mean, x_std, *_ = look(inputs, arrays, chosen, shape[-1])
    y_mean, y_std, *labels = look(targets, arrays, chosen)
    classes = count_classes(targets, *labels, request.kind, samples, names)
    if tests is not halves["train"]:
        look(tests[0], arrays)
        check_labels(tests[1], look(tests[1], arrays)[2], classes)
    found = {"x_mean": x_mean, "x_std": x_std, "y_mean": y_mean, "y_std": y_std, "classes": classes}
    return found | ({"class_names": names} if names else {})


def look(columns, arrays, chosen=None, channels=None):
    """(mean, deviation, different numbers, a fraction among them or None) of some columns; the last two only of a single one.
    chosen: the samples that the first two are of. channels: their length. ValueError for a number that is not finite or too
    large."""
    numbers, fraction, start, count, channels = np.empty(0), None, 0, 0, channels or len(columns.chosen)
    mean, squares, least, most = (np.full(channels, value) for value in (0.0, 0.0, np.inf, -np.inf))
    for block in stored.slices(arrays[columns.place]):
        values = block.reshape(len(block), -1)[:, columns.chosen].astype(np.float64)
        good = np.abs(values) < MOST  # NaN is not
        if not good.all():
            i, j = np.argwhere(~good)[0]
            what = f"{values[i, j]:g}, too large a number" if np.isfinite(values[i, j]) else "a NaN or an infinite value"
            where = f"{columns.in_words([columns.names[j]])}: row {start + i}"
            raise ValueError(f"{where} holds {what}; remove or mend that row (the first one is row 0)")
        if values.shape[1] == 1:
            if fraction is None and len(numbers) <= MOST_CLASSES:
                numbers = np.union1d(numbers, values)
            if len(fractions := values[values != np.floor(values)]):
                fraction = fractions[0]
        if chosen is not None:
            first, last = np.searchsorted(chosen, (start, start + len(block)))
            values = values[chosen[first:last] - start]
        start += len(block)
        if len(values):  # moments of blocks are combined as by Chan, Golub and LeVeque (1983)
            values = values.reshape(-1, channels)
            here, total = values.mean(axis=0), count + len(values)
            squares += ((values - here) ** 2).sum(axis=0) + (here - mean) ** 2 * (count * len(values) / total)
            mean, count = mean + (here - mean) * (len(values) / total), total
            least, most = np.minimum(least, values.min(axis=0)), np.maximum(most, values.max(axis=0))
    return mean, np.where(least < most, np.sqrt(squares / max(count, 1)), 1.0), numbers, fraction  # 1 if constant


def count_classes(targets, numbers, fraction, kind, samples, names):
    """The number of classes, or 0 if the targets are values: labels are 0 to K-1, with two samples or more on average. kind: as
    the user says, or None. names: of the classes if they are words."""
    count, where, several = len(numbers), targets.in_words(), len(targets.chosen) > 1
    if several and kind == "labels":
        raise ValueError(f"{where}: labels are one column; choose it with target=")
    if several or kind == "values" or kind is None and fraction is not None:
        return 0
    if 1 < count <= MOST_CLASSES and np.array_equal(numbers, np.arange(count)) and (kind or 2 * count <= samples):
        return count
    if names:
        few = f"{len(names)} different words for {samples} samples"
        raise ValueError(f"{where}: {few} are no classes: say kind=labels if they are, or another target=")
    reason = f"there are {count} different ones from {numbers[0]:g} to {numbers[-1]:g}"
    if fraction is not None:
        reason = f"{fraction:g} is no whole number"
    elif count > MOST_CLASSES:
        reason = f"there are more than {MOST_CLASSES} different numbers"
    if kind == "labels":
        raise ValueError(f"{where}: labels are the numbers 0 to K-1, all of which occur, but {reason}; number them so")
    raise ValueError(f"{where}: whole numbers that are no labels 0 to K-1 with several samples each: {reason}; say "
                     "kind=values for a regression, or number the classes from 0 and say kind=labels")  # fmt: skip


def check_labels(targets, numbers, classes):
    """ValueError if there are other numbers than the labels of so many classes."""
    if classes and len(others := np.setdiff1d(numbers, np.arange(classes))):
        raise ValueError(f"{targets.in_words()}: {others[0]:g} is none of the labels 0 to {classes - 1} to train on")


def load(directory, dtype, name):
    """The Dataset. Arrays are mapped, not read; what nobody has prepared is prepared."""
    request, halves, path = prepare(directory, name)
    (inputs, targets), known = halves["train"], files.attributes(path)
    classes = known.get("classes")
    if not isinstance(classes, np.integer) or not 0 <= classes <= MOST_CLASSES:
        raise ValueError(f"{path}: the number of classes is missing or damaged; delete the file, and it is made anew")
    names = files.texts(path, "class_names", int(classes)) if "class_names" in known else None
    note = said(request, halves, classes, names)
    shape, outputs = sample_shape(request.shape, inputs), targets.chosen.shape
    fitted = files.vectors(path, {"x_mean": shape[-1], "x_std": shape[-1], "y_mean": outputs[0], "y_std": outputs[0]})
    for mean, std, columns in ((*fitted[:2], inputs), (*fitted[2:], targets)):
        near = (std < np.maximum(LEAST, CLOSE * np.finfo(dtype).eps * np.abs(mean))) & (std != 1)  # which is that of a constant
        if near.any():
            how = f"deviate by {std[near][0]:.3g} from their mean {mean[near][0]:.6g}, too little for {dtype}"
            raise ValueError(f"{columns.array.where}: the numbers of a column {how}; subtract an offset or scale them")
    maps, parts = mapped(path, halves), []
    chosen = divide(request, len(maps["train/x"]), inputs.array.where)
    for half, (x, y) in halves.items():
        x = Samples(maps[x.place], x.chosen, shape, chosen[half])
        y = Samples(maps[y.place], y.chosen, () if classes else outputs, chosen[half])
        parts.append(Part(x, y, *fitted[: 2 if classes else 4], dtype=dtype))
    kind = ("cross-entropy", int(classes), "") if classes else ("mse", *outputs, "in units of the table")
    column_names = (columns.names if len(columns.array.row_shape) < 2 else None for columns in (inputs, targets))
    names = names or [str(i) for i in range(classes)] or None
    return Dataset(name, *parts, *kind, False, note, names, *column_names)


def mapped(path, halves):
    """{place: map of its rows}, where they lie or in the converted file."""
    return {
        place: array.map if array.map is not None else files.map_rows(path, place, array.row_shape, array.numbers)
        for place, array in placed(halves).items()
    }


def said(request, halves, classes, names):
    """A line that says what was taken for what."""
    inputs, targets = halves["train"]
    kind, scaled = (f"{classes} labels", "inputs") if classes else ("values", "inputs and targets")
    if classes and (names or not request.kind):
        kind += f" ({files.listed(names, SHOWN) if names else 'say kind=values if they are values'})"
    scaled += " are standardised by the mean and deviation of the training samples"
    guesses = [array.note for array in placed(halves).values() if array.note]
    columns = inputs.array.columns
    unnamed = [i for i in inputs.chosen if columns and re.match("Unnamed: [0-9]|$", columns[i])]  # as pandas writes an index
    indices = [f"column {i}, counted from 0, has no name and is an input (add drop={i} if it only numbers the rows)"
               for i in unnamed[:SHOWN]]  # fmt: skip
    return "; ".join([f"targets: {targets.in_words()}, taken as {kind}", scaled, *dict.fromkeys(guesses), *indices])


def new_samples(directory, name, like):
    """(inputs, targets or None) of all samples in a file. like: what `Dataset.description` says of the training."""
    request = parse(name)
    finder, usual = Finder(request, directory), TableName(request.file)
    if wrong := [option for option in OPTIONS if option not in OF_NEW and getattr(request, option) != getattr(usual, option)]:
        raise ValueError(f"data set '{name}': leave {wrong[0]}= out: new samples have the columns and shape of the training")
    path, arrays = finder.file(request.file)
    both = request.x is None and {"x", "y"} <= arrays.keys()
    array = finder.array("x", "x" if both else request.x, path, arrays)
    inputs, targets, of_x, of_y = np.arange(array.width), None, like["input_names"], like["target_names"]
    if request.y or both:
        other = finder.array("y", request.y or "y", path, arrays)
        targets = of_targets(other, "y", np.arange(other.width), True)
    if of_x and len(array.row_shape) == 1 and (array.columns or array.width != len(of_x)):
        inputs = np.array([column(array, word) for word in of_x])
        if targets is None and of_y and set(of_y) <= set(array.columns or map(str, range(array.width))):
            targets = of_targets(array, "x", np.array([column(array, word) for word in of_y]), True)
    outputs = () if like["classes"] else (like["outputs"],)
    if targets and len(targets.chosen) != math.prod(outputs):
        raise ValueError(f"{targets.in_words()}: these are not {math.prod(outputs)} targets, as in the training")
    half = [Columns(array, "x", inputs), *[targets] * (targets is not None)]

    def examine(halves, names, arrays):
        for columns in half:
            check_labels(columns, look(columns, arrays)[2], len(names or ()) if columns is targets else 0)
        return {}

    key, halves = f"new {name} {of_x} {of_y} {like['classes']}", {"new": half}
    maps = mapped(converted(directory, key, halves, finder.paths, lambda: like["classes"], examine), halves)
    shape = tuple(like["sample_shape"]) if len(inputs) == math.prod(like["sample_shape"]) else inputs.shape
    samples = Samples(maps["x"], inputs, shape)
    if isinstance(array, stored.Text):
        used = np.concatenate([columns.chosen for columns in half if columns.array is array])
        others = np.setdiff1d(np.arange(array.width), used)
        samples.kept = Columns(array, "x", others).names, partial(array.texts, others)
    return samples, targets and Samples(maps[targets.place], targets.chosen, outputs)
