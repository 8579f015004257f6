"""The commands that repeat a study, from its records: its settings as a file, `sweep`, and each run of `train` alone."""

import json
import shlex
from dataclasses import dataclass
from math import isfinite

from gridgrad.experiments.scaling.study import Point
from gridgrad.parallel.prediction import machine as machines

SETTINGS, RUNS, MACHINE = "study.toml", "study.jsonl", "machine.json"
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")  # characters of a key without quotes


@dataclass(frozen=True)
class Repeat:
    """How a sweep is repeated. settings: the text of its file SETTINGS. command: `sweep` with that file. Both are None where
    the records do not say enough. remark: a sentence about what is missing, or empty."""

    settings: str | None
    command: str | None
    remark: str = ""


def commands(records):
    """The Repeats of some records: one for each sweep, or for each machine for which the sweep was predicted."""
    sweeps = {}
    for record in records:
        sweeps.setdefault(json.dumps(record["sweep"], sort_keys=True), []).append(record)
    return [repeat(of_sweep, title) for of_sweep in sweeps.values() for title in machines_of(of_sweep) or [None]]


def machines_of(records):
    """The names of the machines for which records are predictions."""
    return list(dict.fromkeys(str(record.get("machine")) for record in records if record.get("predicted")))


def repeat(records, title):
    """The Repeat of the records of a sweep. title: the name of a machine for which it is predicted too, or None."""
    settings, words, remark = records[0]["sweep"], ["gridgrad", "sweep", SETTINGS, "--out", RUNS], ""
    if not settings:
        what = f"{'predictions' if title else 'runs'} of {', '.join(dict.fromkeys(record['net'] for record in records))}"
        return Repeat(None, None, f"The {what} do not say the settings of their sweep, as those of earlier versions: there is "
                      "no command for all of them.")  # fmt: skip
    if all(record.get("predicted") for record in records):
        words += options_of_predictions([record for record in records if str(record.get("machine")) == title])
    if title:
        file = next((name for name in machines.names() if machines.read(name).name == title), None)
        words += ["--machine", file or MACHINE]
        if not file:
            remark = f"{MACHINE} stands for the file of the machine '{title}', which calibrate wrote: it is not kept here."
    return Repeat(toml(settings), shlex.join(words), remark)


def options_of_predictions(records):
    """The options of `sweep` that say for how many ranks and which samples records of one sweep and machine are predicted.

    Where the samples of the networks differ they are as published, and need no option.
    """
    ranks = records[0]["sweep"].get("ranks")
    ranks = ranks if isinstance(ranks, list) else sorted({record["P"] for record in records})
    words = ["--predict", ",".join(map(str, ranks))]
    shapes = {tuple(record["shape"]) if isinstance(record.get("shape"), list) else None for record in records}
    outputs = {record.get("outputs") for record in records}
    if len(shapes) == 1 and (shape := shapes.pop()):
        words += ["--shape", ",".join(map(str, shape))]
    if len(outputs) == 1 and (one := outputs.pop()):
        words += ["--outputs", str(one)]
    return words


def of_points(records):
    """The command line of a single run of each point that was measured."""
    found = {}
    for record in records:
        if not record.get("predicted"):
            point = Point(record["P"], record["point"])
            found.setdefault(point.key, point)
    return [command_of_point(point) for point in found.values()]


def command_of_point(point):
    """The command line of one run of a Point: under the launcher of emulated hosts where it has some."""
    try:
        words = ["gridgrad", "train", *point.words]
    except KeyError:  # of a report of an earlier version, which does not say all
        return f"# {point.settings.get('net')} on {point.settings.get('grid')}: the report does not have all options"
    job = dict(point.job)
    threads = job.pop("threads", None)
    variable = f"OMP_NUM_THREADS={threads} " if threads else ""
    if "hosts" in job:
        options = [word for name, value in job.items() for word in (f"--{name}", f"{value:g}")]
        return variable + shlex.join(["gridgrad", "launch", *options, str(point.ranks), *words[1:]])
    return variable + shlex.join([*(["mpiexec", "-n", str(point.ranks)] if point.ranks > 1 else []), *words])


def toml(settings):
    """The text of a TOML file with some settings: numbers, truths, texts, lists of them, and lists of such tables."""
    tables = {name: value for name, value in settings.items() if is_tables(value)}
    lines = [f"{key(name)} = {value_of(value)}" for name, value in settings.items() if name not in tables and value is not None]
    for name, entries in tables.items():
        for entry in entries:
            lines += ["", f"[[{key(name)}]]"]
            lines += [f"{key(one)} = {value_of(value)}" for one, value in entry.items() if value is not None]
    return "\n".join(lines) + "\n"


def is_tables(value):
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def key(name):
    """A key of TOML."""
    return name if name and BARE.issuperset(name) else text_of(name)


def value_of(value):
    """A value of TOML."""
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, list):
        return f"[{', '.join(value_of(one) for one in value if one is not None)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key(name)} = {value_of(one)}" for name, one in value.items() if one is not None) + "}"
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # nan, inf and -inf, as TOML has them
    return json.dumps(value)


def text_of(text):
    """A text of TOML in quotes. Its escapes are those of JSON, but for the character 7F, which needs one here."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
