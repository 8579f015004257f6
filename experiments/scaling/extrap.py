"""A curve of a study in the text format of Extra-P, and the models that Extra-P finds for it.

The format (docs/file-formats.md of Extra-P 4): a line PARAMETER p, a line POINTS with the numbers of ranks, and for each METRIC
of each REGION a line DATA with the values of all runs of a point, for each point. Regions and metrics:

| region                        | time, in seconds of a step                | bytes, sent by all ranks in a step |
|-------------------------------|-------------------------------------------|------------------------------------|
| `step`                        | median over the steps of a run            |                                    |
| `step->compute`               | computing and reading                     |                                    |
| `step->communicate`           | in collectives while all others are there | all                                |
| `..->communicate->gradients`  | of which sums of gradients                | of sums of gradients               |
| `..->communicate->activations`| of which other arrays of the network      | of other arrays of the network     |
| `step->wait`                  | for ranks that come later                 |                                    |

The seconds of all regions below `step` are means over the ranks. Extra-P is a program of its own: it needs NumPy 1 (4.2.5
does), so it is installed in an environment of its own.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.scaling.growth import Growth, parsed
from gridgrad.experiments.scaling.order import seconds_of
from gridgrad.experiments.scaling.volumes import ACTIVATIONS, GRADIENTS, LOSS

STEP, COMPUTE, COMMUNICATE, WAIT = "step", "step->compute", "step->communicate", "step->wait"
TIME, BYTES = METRICS = "time", "bytes"
PLACES = [  # (region, metric), in the order of the file
    *((region, TIME) for region in (STEP, COMPUTE, COMMUNICATE, f"{COMMUNICATE}->{GRADIENTS}",
                                    f"{COMMUNICATE}->{ACTIVATIONS}", WAIT)),
    *((region, BYTES) for region in (COMMUNICATE, f"{COMMUNICATE}->{GRADIENTS}", f"{COMMUNICATE}->{ACTIVATIONS}")),
]  # fmt: skip
FEWEST = 5  # points below which Extra-P warns that they are too few
PROGRAM = "extrap"
SECONDS = 300  # that Extra-P may take for a curve
HOW = f"python -m venv .venv-{PROGRAM} && .venv-{PROGRAM}/bin/pip install {PROGRAM}"


@dataclass(frozen=True)
class Fitted:
    """What Extra-P found for a quantity. region, metric: of PLACES. growth: a Growth."""

    region: str
    metric: str
    growth: Growth


def values_of(run):
    """{(region, metric): value} of a run, measured or predicted, as far as it says."""
    found = {(STEP, TIME): seconds_of(run)}
    if run.get("predicted"):
        return found | of_prediction(run)
    if time := run.get("time"):
        found |= {(COMPUTE, TIME): time.get("compute", 0.0) + time.get("read", 0.0),
                  (COMMUNICATE, TIME): time.get("communicate", 0.0), (WAIT, TIME): time.get("wait", 0.0)}  # fmt: skip
    if run.get("bytes") is not None:
        found[COMMUNICATE, BYTES] = sum(run["bytes"].values())
    if run.get("communication") is not None:
        for term in (GRADIENTS, ACTIVATIONS):
            rows = [one for one in run["communication"] if term_of(one["layer"]) == term]
            found[f"{COMMUNICATE}->{term}", TIME] = sum(one.get("seconds") or 0.0 for one in rows)
            found[f"{COMMUNICATE}->{term}", BYTES] = sum(one["bytes"] for one in rows)
    return found


def of_prediction(run):
    """The same of a prediction: of the rank that bounds the step, its bytes times the ranks."""
    parts = run.get("parts") or {}
    sums, others, sent = parts.get("gradients", 0.0), parts.get("activations", 0.0), run.get("rank_bytes")
    found = {
        (COMPUTE, TIME): parts.get("compute", 0.0) + parts.get("update", 0.0), (COMMUNICATE, TIME): sums + others,
        (f"{COMMUNICATE}->{GRADIENTS}", TIME): sums, (f"{COMMUNICATE}->{ACTIVATIONS}", TIME): others,
    } if parts else {}  # fmt: skip
    return found | ({(COMMUNICATE, BYTES): sent * run["P"]} if sent is not None else {})


def term_of(layer):
    """The term of what a collective sends. layer: as in a report."""
    return layer if layer in (GRADIENTS, LOSS) else ACTIVATIONS


def data_of(rows, metrics=METRICS):
    """{(region, metric): [the values of all runs of a Row, for each Row]} of a curve, in the order of PLACES.

    Without what some run does not say, and what is 0 everywhere. rows: in the order of their ranks. metrics: some of METRICS.
    """
    runs = [[values_of(run) for run in row.runs] for row in rows]
    found = {}
    for place in (place for place in PLACES if place[1] in metrics):
        values = [[run.get(place) for run in of_row] for of_row in runs]
        known = all(value is not None for of_row in values for value in of_row)
        if known and any(value for of_row in values for value in of_row):
            found[place] = values
    return found


def text(rows, metrics=METRICS):
    """The text of the file of a curve. rows: its Rows with times. ValueError if there is nothing for the file."""
    data = data_of(rows, metrics)
    if not data:
        raise ValueError(f"the runs of {rows[0].curve} do not say what takes how long")
    lines = ["PARAMETER p", f"POINTS {' '.join(str(row.ranks) for row in rows)}"]
    for (region, metric), points in data.items():
        lines += ["", f"REGION {region}", f"METRIC {metric}"]
        lines += [f"DATA {' '.join(repr(float(value)) for value in values)}" for values in points]
    return "\n".join(lines) + "\n"


def curves(found):
    """{Curve and whether it is predicted: its Rows with times, by ranks} of those with several points."""
    by_curve = {}
    for row in found:
        if row.seconds and row.runs:
            by_curve.setdefault((row.curve, row.is_predicted), []).append(row)
    return {of: sorted(rows, key=lambda row: row.ranks) for of, rows in by_curve.items() if len({r.ranks for r in rows}) > 1}


def models(rows, program=PROGRAM, metrics=METRICS):
    """What Extra-P finds for a curve: Fitted ones, in the order of the file. A model is of the median over the runs.

    With strong scaling it also tries negative exponents of p. program: the command. ValueError if it can not be run or fails.
    """
    options = ["allow_negative_exponents=1"] if rows[0].scaling == "strong" else ["allow_negative_exponents=0"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curve.txt"
        write_text(path, text(rows, metrics))
        words = [program, "--text", str(path), "--disable-progress", "--measure", "median", "--options", *options,
                 "--print", "{callpath}\t{metric}\t{model}"]  # fmt: skip
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ValueError(f"Extra-P can not be run as {program} ({error}): install it by {HOW}") from None
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"{program} ended with status {ended.returncode}: {last}")
    return found_by(ended.stdout)


def found_by(output):
    """The Fitted ones in what Extra-P has printed. ValueError if it is not that."""
    found = {}
    for line in output.splitlines():
        words = line.split("\t")
        if len(words) == 3 and (words[0], words[1]) in PLACES and words[2].strip() != "None":
            found[words[0], words[1]] = Fitted(words[0], words[1], parsed(words[2]))
    if not found:
        raise ValueError("Extra-P printed no models: this was tested with version 4.2.5")
    return [found[place] for place in PLACES if place in found]
