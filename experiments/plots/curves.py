"""The curves of scaling studies as figures draw them: which points are one line, which lines share a panel, and their names.

Points are drawn as one line if they were measured on the same (`experiments/scaling/environment.py`: SAME) and with the same
settings. Lines of the same series that differ in settings, or come from files that were measured on something else, are lines
of their own, and their names say in what they differ. Predictions are lines too.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling import records as study_records
from gridgrad.experiments.scaling.environment import differences, same
from gridgrad.experiments.scaling.study import Point
from gridgrad.experiments.scaling.summary import key_alone, origin_of, rows

WITHIN = "grid", "net", "dataset", "data_dir"  # settings that points of one line may differ in, or that a panel names
HOW = "steps", "seed", "profile"  # settings of how something is measured, on which no prediction depends


class Panel(NamedTuple):
    network: str
    scaling: str  # "strong" or "weak"
    dataset: str  # empty where nothing says it


@dataclass(frozen=True, eq=False)
class Line:
    panel: Panel
    name: str
    rows: tuple  # Rows, by ranks
    is_predicted: bool
    origin: str  # the names of its files; of a prediction, of the machine
    settings: dict  # {name: value} of all its points; for weak scaling `batch_size` is that of one rank

    @property
    def columns(self):
        """{name: a text}: what `chosen` chooses by."""
        return {name: str(value) for name, value in {**self.settings, **self.panel._asdict(), "series": self.name}.items()}

    @property
    def measured_on(self):
        """Where it was measured, in words."""
        known = self.rows[0].environment
        slots = self.rows[-1].slots or known.get("slots")
        names = [known.get("processor") or "an unknown processor", slots and counted(slots, "core")]
        return ", ".join(str(name) for name in [*names, *map(known.get, ("mpi", "blas"))] if name)


def read(paths):
    """The Lines in files of `sweep`, in their order, the measured ones first."""
    return of_files({path: records_of(path) for path in dict.fromkeys(map(str, paths))})


def chosen(lines, where):
    """The Lines with some values in their columns. where: {column: texts}. ValueError for values that there are not."""
    for name, values in where.items():
        known = dict.fromkeys(line.columns[name] for line in lines if name in line.columns)
        if unknown := [value for value in values if value not in known]:
            raise ValueError(f"there is no {name} {unknown[0]}: there are {'; '.join(known or lines[0].columns)}")
        lines = [line for line in lines if line.columns.get(name) in values]
    return lines


def of_files(files):
    """The Lines of records, see `read`. files: {name: list of records}."""
    groups, names = defaultdict(lambda: ({}, [])), names_of(files)  # {Origin: (names of files, records)}
    for path, found in files.items():
        refuse_mixed(path, found)
        for record in found:
            here, mine = groups[origin_of(record)]
            here[names[path]] = True
            if record not in mine:  # which another file has, too
                mine.append(record)
    lines = []
    for origin, (here, found) in sorted(groups.items(), key=lambda group: group[0].is_predicted):
        lines += lines_of(found, origin.name if origin.is_predicted else " and ".join(here))
    known = {line.panel for line in lines if not line.is_predicted}
    # a prediction is of a shape, and not of data, where nothing was measured beside it
    return named([line if line.panel in known else replace(line, panel=line.panel._replace(dataset="")) for line in lines])


def records_of(path):
    """The records in a file; ValueError if there are none."""
    if not Path(path).exists():
        raise ValueError(f"there is no file {path}: name the files that sweep has written")
    found = study_records.read(path)
    if not found:
        raise ValueError(f"{path} holds no runs: run sweep first")
    return found


def refuse_mixed(path, found):
    """ValueError for a curve that was measured on different things."""
    first = {}
    for record in found:
        if record.get("predicted") or record.get("failed"):
            continue
        for curve in map(tuple, record["curves"]):
            one, other = first.setdefault(curve, record["environment"]), record["environment"]
            if same(one) != same(other):
                raise ValueError(f"{path}: runs of {', '.join(curve)} scaling differ in {'; '.join(differences(one, other))}: "
                                 "draw them apart, or measure all of them again, with --anew")  # fmt: skip


def names_of(paths):
    """{path: the name of the file without its end, or the whole path where two have the same}."""
    stems = [Path(path).stem for path in paths]
    return {path: stem if stems.count(stem) == 1 else path for path, stem in zip(paths, stems)}


def lines_of(found, origin):
    """The Lines of records of one environment or one machine, called like their series."""
    curves = defaultdict(list)
    for row in rows(found):
        curves[Panel(row.network, row.scaling, row.dataset or ""), row.series].append(row)
    lines = []
    for (panel, series), of_series in curves.items():
        wide, alone = defaultdict(list), [row for row in of_series if row.ranks == 1]
        for row in of_series:
            if row.ranks > 1:
                wide[json.dumps(settings_of(row), sort_keys=True)].append(row)
        for of_line in wide.values() or [alone]:
            key = key_alone({"P": of_line[0].ranks, "point": of_line[0].settings}, panel.scaling)
            points = [row for row in (*alone, *of_line) if row.ranks > 1 or Point(1, row.settings).key == key]
            points.sort(key=lambda row: row.ranks)
            lines.append(Line(panel, series, tuple(points), points[0].is_predicted, origin, settings_of(of_line[0])))
    return lines


def settings_of(row):
    """{name: value} of the settings that all points of a line share."""
    found = {name: value for name, value in row.settings.items() if name not in WITHIN and value is not None}
    if row.scaling == "weak" and "batch_size" in found:
        found["batch_size"] //= row.ranks
    return found


def named(lines):
    """The Lines with names that tell them apart within their panels."""
    series = defaultdict(list)
    for line in lines:
        series[line.panel, line.name].append(line)
    found = []
    for line in lines:
        others = series[line.panel, line.name]
        words = [line.name]
        for name in dict.fromkeys(name for other in others for name in other.settings):
            to_compare = [other for other in others if name not in HOW or other.is_predicted == line.is_predicted]
            values = {json.dumps(other.settings[name]) for other in to_compare if name in other.settings}
            if len(values) > 1 and name in line.settings:
                words.append(f"{name.replace('_', ' ')} {line.settings[name]}")
        alike = [other for other in others if other.is_predicted == line.is_predicted and other.settings == line.settings]
        found.append(replace(line, name=", ".join(words) + (f" ({line.origin})" if len(alike) > 1 else "")))
    return found
