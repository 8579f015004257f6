"""The file of a study: a line of JSON for each run, measured, failed or predicted.

| entry                                   | what it says                                                                   |
|-----------------------------------------|--------------------------------------------------------------------------------|
| `net`, `dataset`, `P`, `grid`           | what ran                                                                       |
| `point`                                 | all settings of the run                                                        |
| `curves`                                | [[network, series, scaling]]: the curves that it belongs to                    |
| `sweep`                                 | the settings of the whole study                                                |
| `repeat`, `took`                        | its number among the runs of the point; seconds with start and end             |
| `seed`, `turns`                         | where the repeats have seeds of their own; whether series took turns in a job  |
| `environment`                           | what it ran on: `environment.py`                                               |
| `slots`, `oversubscribed`               | ranks that can have a core; whether there were more                            |
| `failed`                                | the reason, in place of all below                                              |
| `seconds_per_step`, `time`, `bytes`, .. | the report of `train`; `load`: how busy the machine was; `core`: how fast      |
| `predicted`                             | true: not measured but predicted, for `machine`                                |

Where a job was killed or a disk was full a file may end in half a line, which counts as not written. Files of earlier versions
are read too: `of_before`.
"""

import io
import json
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

from gridgrad.experiments.common.parallel_schemes import scheme_of
from gridgrad.experiments.scaling.environment import same
from gridgrad.experiments.scaling.settings import ALONE
from gridgrad.experiments.scaling.study import Point
from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import COUNT, LONGEST, PLAIN, TEXT, WHOLE, Each, Kind, Optional, check, content_of
from gridgrad.parallel.grid.process_grid import checked_sizes, parse_grid, written

REASON = Kind(f"a text of at most {LONGEST} printable characters",
              lambda value: isinstance(value, str) and len(value) <= LONGEST and value.isprintable())  # fmt: skip
RECORD = {  # what `key_of` needs, and what tells curves apart
    "net": TEXT, "P": WHOLE, "grid": TEXT, "point": Each(Optional(PLAIN)), "curves": [[TEXT]], "repeat": COUNT, "sweep": {},
    "environment": {}, "seed": Optional(COUNT), "failed": Optional(REASON), "load": Optional({"verdict": Optional(REASON)}),
}  # fmt: skip
OF_BEFORE = {"net": TEXT, "P": WHOLE, "grid": TEXT, "settings": {}, "repeat": Optional(COUNT),
             "sweep": Optional({}), "versions": Optional({})}  # fmt: skip
OLD_LISTS = "nets", "grids", "ranks", "schemes", "repeats"  # settings of a whole sweep, of earlier versions
REMEDY = "give another --out, or delete it"


def read(path):
    """The records in a file, in their order; none if there is no such file.

    ValueError, which names the file and the line, if a line that is not the last one is no record.
    """
    path = Path(path)
    records, before = [], []
    with open(path, "rb", opener=limits.ordinary) if path.exists() else nullcontext(io.BytesIO()) as file:
        for number, line in enumerate(limits.lines_of(file, path), 1):
            if not line.strip():
                continue
            try:
                record = content_of(line)
                if isinstance(record, dict) and "curves" not in record:
                    record = of_before(record)
                    before.append(record)
                check(record, RECORD)
                for curve in record["curves"]:
                    if len(curve) != 3:
                        raise ValueError("a curve must be [network, series, scaling]")
            except ValueError as error:
                if not line.endswith(b"\n") and line.startswith(b"{"):  # half a line at the end
                    break
                raise ValueError(f"{path}, line {number}, is no report of a sweep ({error}): {REMEDY}") from None
            records.append(record)
    name_curves(before)
    return records


def of_before(report):
    """The record of a report of an earlier version, measured or predicted, as yet without curves.

    ValueError for what is none.
    """
    check(report, OF_BEFORE)
    sweep = report.get("sweep") or {}
    sizes = checked_sizes(parse_grid(report["grid"]))
    own = {name: value for name, value in sweep.items() if name not in OLD_LISTS} | {
        name: report["settings"].get(name) for name in ("batch_size", "dtype")
    }
    point = own | {"net": report["net"], "grid": written(sizes), "dataset": report.get("dataset")}
    point = {name: value for name, value in point.items() if report["P"] > 1 or name not in ALONE}
    versions = report.get("versions") or {}
    environment = {name: versions.get(name) for name in ("processor", "blas", "numpy", "kernels", "mpi", "gridgrad")}
    environment |= {"slots": report.get("slots")}
    return {"repeat": 0, "sweep": sweep, "point": point, "curves": [], "environment": environment} | report


def name_curves(records):
    """Name the curves of records of an earlier version: series by their scheme, and by the batch where there are several.

    Those on one rank belong to all series of their network and batch.
    """
    sizes = defaultdict(set)
    for record in records:
        if record.get("scaling") != "weak":
            sizes[record["net"]].add(record["settings"].get("batch_size"))
    series = defaultdict(dict)
    for record in records:
        scheme, batch = record.get("scheme") or scheme_of(parse_grid(record["grid"])), record["settings"].get("batch_size")
        weak = record.get("scaling") == "weak"
        words = f", batch size {batch}" if len(sizes[record["net"]]) > 1 and not weak else ""
        record["curves"] = [[record["net"], f"{scheme}{words}", "weak" if weak else "strong"]]
        if scheme != "serial":
            series[record["net"], words][record["curves"][0][1]] = None
    for record in records:
        [[net, name, scaling]] = record["curves"]
        if name.startswith("serial"):
            record["curves"] = [[net, one, scaling] for one in series[net, name.removeprefix("serial")]] or record["curves"]


def key_of(record):
    """The key of the Point of a record."""
    return Point(record["P"], record["point"]).key


def identity(record):
    """What two records share if they are of the same run: point, number, kind and what it was measured on, or predicted for."""
    curves = record["curves"] if record.get("predicted") else None  # which files of before have one by one
    how = curves, record.get("machine"), record.get("seed"), record.get("turns")
    return key_of(record), record["repeat"], json.dumps([same(record["environment"]), *how])


def of_study(records, study, environment):
    """(measured records of a study on a machine like this one, predicted ones of its points, all others), each run once.

    The curves of the first two are set anew. environment: what `environment.here` returned.
    """
    points = {point.key: point for point in study.points}
    measured, predicted, others = [], [], []
    for record in {identity(record): record for record in records}.values():
        point = points.get(key_of(record))
        if point and record.get("predicted"):
            predicted.append(record | tags(study, point))
        elif point and same(record["environment"]) == same(environment) and study.is_of(record):
            measured.append(record | tags(study, point))
        else:
            others.append(record)
    return measured, predicted, others


def tags(study, point):
    """The entries of a record that say what it is part of."""
    curves = [[curve.network, curve.series, curve.scaling] for curve in study.curves_of(point)]
    return {"curves": curves, "sweep": study.given}


def part_name(path, part):
    """The file of one part of a study: `results/s-2-of-4.jsonl` for `results/s.jsonl` and the part (2, 4)."""
    path = Path(path)
    return path.with_name(f"{path.stem}-{part[0]}-of-{part[1]}{path.suffix}")


def gather(paths):
    """The records of several files, each run once; ValueError if two files disagree about a run, or all are empty."""
    found = {}
    for path in paths:
        if not Path(path).exists():
            raise ValueError(f"there is no file {path}: name the files that sweeps have written")
        for record in read(path):
            earlier, origin = found.setdefault(identity(record), (record, path))
            if earlier != record:
                raise ValueError(f"{origin} and {path} disagree about {record['net']} on {record['grid']}, repeat "
                                 f"{record['repeat']}: leave one of them out")  # fmt: skip
    if not found:
        raise ValueError(f"{' and '.join(map(str, paths))} hold no report: name the files that sweeps have written")
    return [record for record, _ in found.values()]


def lines(records):
    """The text of a file with these records."""
    return "".join(json.dumps(record) + "\n" for record in records)
