"""The file of a study: a line of JSON for each run, measured, failed or predicted.

| entry                                   | what it says                                                              |
|-----------------------------------------|---------------------------------------------------------------------------|
| `net`, `dataset`, `P`, `grid`, `point`  | what ran; all settings of the run                                         |
| `curves`, `sweep`                       | [[network, series, scaling]] that it belongs to; settings of the study    |
| `repeat`, `took`, `seed`, `turns`       | its number among the runs of the point; seconds of the job; how it ran    |
| `environment`, `slots`, `oversubscribed`| what it ran on; ranks that can have a core there; whether there were more |
| `failed`                                | the reason, in place of all below                                         |
| `seconds_per_step`, `time`, `load`, ..  | the report of `train`                                                     |
| `predicted`, `machine`                  | true: not measured but predicted, for this machine: `predicted.py`        |

Half a line at the end, as of a job that was killed, counts as not written.
"""

import io
import json
from contextlib import nullcontext
from pathlib import Path

from gridgrad.experiments.common.machine_load import verdict_of
from gridgrad.experiments.scaling.environment import FORM, same
from gridgrad.experiments.scaling.study import METRIC, POSITIVE, Point
from gridgrad.nn.files import documents, limits
from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, NUMBER, PLAIN, SECONDS, TEXT, WHOLE, Each, Kind, Optional
from gridgrad.parallel.observe.span_observer import METHODS

REASON = Kind(f"a text of at most {documents.LONGEST} printable characters",
              lambda value: isinstance(value, str) and len(value) <= documents.LONGEST and value.isprintable())  # fmt: skip
RECORD = {  # what `key_of` needs, and what tells curves apart
    "net": TEXT, "P": WHOLE, "grid": TEXT, "point": Each(Optional(PLAIN)), "curves": [[TEXT]], "repeat": COUNT, "sweep": {},
    "environment": FORM, "seed": Optional(COUNT), "failed": Optional(REASON), "load": Optional({"verdict": Optional(REASON)}),
}  # fmt: skip
PLAN = Kind("a text or a list of texts", lambda value: all(isinstance(one, str) for one in value)
            if isinstance(value, list) else isinstance(value, str))  # fmt: skip
COLLECTIVE = {"layer": TEXT, "kind": TEXT, "calls": AT_LEAST_0, "bytes": AT_LEAST_0, "seconds": Optional(AT_LEAST_0)}
LAYER = {"layer": TEXT, "kind": TEXT} | dict.fromkeys(METHODS, AT_LEAST_0)
REPORT = {  # what is read of the report of a run, or of a prediction
    "seconds_per_step": Optional({"median": SECONDS}), "time": Optional(Each(AT_LEAST_0)), "bytes": Optional(Each(AT_LEAST_0)),
    "communication": Optional([COLLECTIVE]), "peak_memory": Optional(AT_LEAST_0), "flops_a_sample": Optional(AT_LEAST_0),
    "oversubscribed": Optional(documents.TRUTH), "slots": Optional(WHOLE), "test_accuracy": Optional(AT_LEAST_0),
    "core": Optional({"reference_seconds": SECONDS, "reference_products_per_step": POSITIVE}), "final_loss": Optional(NUMBER),
    "settings": Optional({"batch_size": Optional(WHOLE)}), "point": {"batch_size": Optional(WHOLE)},
    "sweep": {"metric": Optional(METRIC), "baseline": Optional(TEXT), "series": Optional([{"baseline": Optional(TEXT)}])},
    "layers": Optional([LAYER]), "parts": Optional(Each(AT_LEAST_0)), "terms": Optional(Each(AT_LEAST_0)),
    "features": Optional(WHOLE), "outputs": Optional(WHOLE), "shape": Optional([WHOLE]), "plan": Optional(PLAN),
    "samples_per_step": Optional(AT_LEAST_0), "rank_bytes": Optional(AT_LEAST_0), "idle": Optional(COUNT),
    "dataset": Optional(TEXT), "predicted": Optional(documents.TRUTH), "fits": Optional(documents.TRUTH),
    "ranks_per_node": Optional(WHOLE),
}  # fmt: skip


def read(path):
    """The records in a file, none if there is no file. ValueError with the line for what is no record, if it is not the end."""
    path, records = Path(path), []
    with open(path, "rb", opener=limits.ordinary) if path.exists() else nullcontext(io.BytesIO()) as file:
        for number, line in enumerate(limits.lines_of(file, path), 1):
            if not line.strip():
                continue
            try:
                record = documents.content_of(line)
                documents.check(record, RECORD)
                documents.check(record, REPORT | ({"machine": TEXT} if record.get("predicted") else {}))
                if any(len(curve) != 3 for curve in record["curves"]):
                    raise ValueError("a curve must be [network, series, scaling]")
            except ValueError as error:
                if not line.endswith(b"\n") and line.startswith(b"{"):
                    break
                words = f"is no report of a sweep ({error}): take it out, or give another file"
                raise ValueError(f"{path}, line {number}, {words}") from None
            records.append(record)
    return records


# ----- what a run says


def is_busy(record):
    """Whether other programs took so much of the machine that the times do not compare."""
    return bool(verdict_of(record))


def seconds_of(record):
    """The median seconds of a step of a run; None if it failed, or had too few steps."""
    return (record.get("seconds_per_step") or {}).get("median")


def metric_of(record):
    """The metric of the study that a record is of."""
    return record["sweep"].get("metric", "seconds")


def value_of(record, metric):
    """What a run, measured or predicted, says of a metric; None where it says nothing."""
    if metric == "seconds":
        return seconds_of(record)
    if metric == "bytes":
        sent = record.get("bytes")
        return record.get("rank_bytes") if sent is None else sum(sent.values()) / record["P"]
    return record.get({"accuracy": "test_accuracy", "loss": "final_loss", "memory": "peak_memory"}[metric])


def counts(record):
    """Whether a run that did not fail counts: not if it was disturbed where times are compared. With seeds all do."""
    return metric_of(record) != "seconds" or record.get("seed") is not None or not is_busy(record)


def counting(records):
    """The records that count; those that were disturbed where there are no others."""
    ran = [record for record in records if not record.get("failed")]
    return list(filter(counts, ran)) or ran


# ----- which run is which


def key_of(record):
    """The key of the Point of a record."""
    return Point(record["P"], record["point"]).key


def identity(record):
    """What two records share if they are of the same run."""
    curves = record["curves"] if record.get("predicted") else None  # which files of before have one by one
    how = curves, record.get("machine"), record.get("seed"), record.get("turns")
    return key_of(record), record["repeat"], json.dumps([same(record["environment"]), *how])


def of_study(records, study, environment):
    """(measured records of a study on an environment, predicted ones, all others), each once; the first two with new curves."""
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
    return {"curves": [list(curve) for curve in study.curves_of(point)], "sweep": study.given}


def gather(paths):
    """The records of several files, each run once; ValueError if two files disagree, or all are empty."""
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


def baseline_of(record, series):
    """The name of the baseline of a series of a record's study, or None."""
    own = next((one for one in record["sweep"].get("series", ()) if one.get("name") == series), {})
    return own.get("baseline", record["sweep"].get("baseline"))
