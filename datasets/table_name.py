"""The names of tables of one's own, such as "table:houses.csv,target=price,test=0.1"."""

import re
from dataclasses import dataclass, fields

from gridgrad.datasets.stored import FORMATS
from gridgrad.datasets.survey import KINDS
from gridgrad.datasets.text import number

PREFIX = "table:"
NAME = f"{PREFIX}FILE[,OPTION=..]"
SHARE = 0.2  # of the samples that are for testing
NAMES = "yes", "no"
BEHIND = r"(?=,\w+=|\Z)"  # what is behind a word
ENDING = f"(?:{'|'.join(map(re.escape, FORMATS))}){BEHIND}"  # of a path, which may hold what looks like an option
NUMBER = "[1-9][0-9]{0,9}"


@dataclass(frozen=True)
class TableName:
    """A name such as "table:houses.csv,target=price", taken apart.

    target: names or numbers of the columns with the targets, with colons between them. inputs, drop: likewise, of those that
    are inputs, or that are neither. names: "yes" or "no", whether the first line of a text has the names of the columns. x, y:
    names of the arrays with the inputs and targets, in the file; y may be another file. test: the share of the samples that are
    for testing, or the array or the file that holds them. test_y: their targets, as y. seed: of the draw of the share. kind:
    "labels" or "values". shape: of a sample.
    """

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
    file, *words = in_words(name.removeprefix(PREFIX))
    if not file:
        raise ValueError(f"data set '{name}' names no file: use {NAME}")
    found = {}
    for word in words:
        option, _, value = word.partition("=")
        if option not in OPTIONS or option in found or not value:
            raise ValueError(
                f"data set '{name}': '{word}' is unknown, empty or said twice: the options are {', '.join(OPTIONS)}"
            )
        found[option] = of_option(name, option, value)
    if "inputs" in found and "drop" in found:
        raise ValueError(f"data set '{name}': inputs names the columns that are left by drop: leave one of them out")
    if "target" in found and "y" in found:
        raise ValueError(f"data set '{name}': target names columns and y a whole array: leave one of them out")
    if "seed" in found and not isinstance(found.get("test", SHARE), float):
        raise ValueError(
            f"data set '{name}': seed draws a share of the samples, and test={found['test']} is none: leave it out"
        )
    return TableName(file, **found)


def in_words(text):
    """[file, "OPTION=VALUE", ..]."""
    file = re.match(f"(?is).*?{ENDING}|.*?{BEHIND}", text)
    return [file[0], *re.findall(f"(?is),(y=[/.~].*?{ENDING}|test(?:_y)?=[/.~].*?{ENDING}|.*?{BEHIND})", text[file.end() :])]


def of_option(name, option, value):
    """The value of an option; ValueError if it can not be one."""
    if option == "test" and (share := number(value)) is not None:
        if not 0 < share < 1:
            raise ValueError(f"data set '{name}': test must be a share above 0 and below 1, an array or a file, not {value}")
        return share
    if option == "seed":
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            raise ValueError(f"data set '{name}': seed must be a whole number of at least 0, not '{value}'")
        return int(value)
    if value not in (words := {"kind": KINDS, "names": NAMES}.get(option, [value])):
        raise ValueError(f"data set '{name}': {option} must be {' or '.join(words)}, not '{value}'")
    if option == "shape":
        if not re.fullmatch(f"{NUMBER}(x{NUMBER}x{NUMBER})?", value, re.ASCII):
            raise ValueError(
                f"data set '{name}': shape must be HEIGHTxWIDTHxCHANNELS or FEATURES, such as 28x28x1, not '{value}'"
            )
        return tuple(map(int, value.split("x")))
    return value
