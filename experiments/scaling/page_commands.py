"""The commands that repeat a study, from its records: its settings as a file, `sweep`, and each run of `train` alone."""

import json
import shlex
from math import isfinite

from gridgrad.experiments.scaling.study import Point

SETTINGS, RUNS = "study.toml", "study.jsonl"
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")  # characters of a key without quotes


def commands(records):
    """[(the text of a settings file, the command that measures or predicts what it says)] for each sweep of some records."""
    found = {}
    for record in records:
        found.setdefault(json.dumps(record["sweep"], sort_keys=True), []).append(record)
    return [(toml(these[0]["sweep"]), command_of(these)) for these in found.values()]


def command_of(records):
    """The command line of `sweep` for records of one sweep."""
    machines = sorted({str(record["machine"]) for record in records if record.get("machine")})
    words = ["gridgrad", "sweep", SETTINGS, "--out", RUNS]
    if all(record.get("predicted") for record in records):
        words += ["--predict", ",".join(map(str, sorted({record["P"] for record in records})))]
    if machines:
        words += ["--machine", machines[0]]
    return shlex.join(words)


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
