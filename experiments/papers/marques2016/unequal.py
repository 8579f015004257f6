"""Two unequal CPUs and a slow network, as Marques 2016 had them: what was measured in November 2026, and what it says.

Measured were two ranks on emulated hosts, as `gridgrad sweep laptops.toml` does again. A `Setting` is one way in which they
train. Speedups are over the first CPU alone, the master, which is the slower one, in the same round.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gridgrad.experiments.common.kept_results import fitting
from gridgrad.experiments.papers.marques2016.runs import BY_SAMPLES, PARTS, WITH_MASTER, parts, ratios
from gridgrad.experiments.papers.marques2016.scaling import MIB, said, seconds_on_one
from gridgrad.experiments.papers.other_results import kept as kept_in
from gridgrad.experiments.papers.other_results import where
from gridgrad.experiments.plots.style import VERSIONS, measured_on
from gridgrad.nn.files.documents import AT_LEAST_0, COUNT, TEXT, check, content_of_file

FILE = Path("results/marques2016/unequal.json")
COMMAND = "sweep laptops.toml --out laptops.jsonl"
BATCH = 64


@dataclass(frozen=True)
class Setting:
    """How both CPUs train. words: for people. alone: the name of the run of the first CPU alone. form: see `Run`. rate: Mbit/s
    of the cables of the hosts, 0 for ranks that share the memory."""

    words: str
    alone: str
    form: str
    rate: float


ALONE, SLOWER = "alone", "alone, slower"  # the second one: slowed down in the same proportion to the network as in the thesis
SLOW_RATE, FAST_RATE = 45, 1000  # Mbit/s; of 45, TCP's data in packets of 1500 bytes are 5.05 MiB/s
PAYLOAD = 1448 / 1538  # of a cable's bits, those of data
SETTINGS = {
    "memory": Setting("in memory", ALONE, WITH_MASTER, 0),
    "slow": Setting("at 5 MB/s", ALONE, WITH_MASTER, SLOW_RATE),
    "samples": Setting("at 5 MB/s, data parallel", ALONE, BY_SAMPLES, SLOW_RATE),
    "proportion": Setting("in the thesis' proportion", SLOWER, WITH_MASTER, FAST_RATE),
}
RUN = {"network": TEXT, "setting": TEXT, "round": COUNT, "versions": VERSIONS} | dict.fromkeys(PARTS, [AT_LEAST_0])
FORM = {"factor": AT_LEAST_0, "batch_size": COUNT, "runs": [RUN]}


def has_proportion(network):
    """Whether the text says how long the first laptop took for this network, and how many times as fast two were."""
    return seconds_on_one(network) is not None and said("speedups of CPUs", "speedup", network, BATCH, 2) is not None


def read(path):
    """What a file holds, None if there is no file.

    ValueError if the file holds anything else, or runs of several machines.
    """
    return checked(content_of_file(path), path) if path.exists() else None


def checked(found, path=FILE):
    """What such a file holds. ValueError as of `read`."""
    with fitting(f"{path} does not hold what was measured of unequal ranks: give another name"):
        check(found, FORM)
    if len(machines := {measured_on(run["versions"]) for run in found["runs"]}) > 1:
        raise ValueError(f"{path} has runs of {' and of '.join(sorted(machines))}: give another name")
    return found


def kept():
    """(what FILE holds, ""), or (None, why there is nothing)."""
    return kept_in(FILE, checked)


def source(found):
    """The file and the processor, in words; empty if nothing was measured."""
    return next((where(FILE, run["versions"]) for run in found["runs"]), "") if found else ""


def machine_of(found):
    """Where the runs were measured, in words; empty if nowhere."""
    return next((measured_on(run["versions"]) for run in found["runs"]), "") if found else ""


def rows(found):
    """A row for each network and setting: rounds, seconds, speedup (median, least, most), bytes. found: of `read` or `kept`."""
    by_case = {}
    for run in found["runs"] if found else ():
        by_case.setdefault((run["network"], run["setting"]), []).append(run)
    lines = []
    for (network, name), several in by_case.items():
        if name not in SETTINGS:
            continue
        setting = SETTINGS[name]
        alone = by_case.get((network, setting.alone), [])
        by_rounds = ratios(several, alone)
        if by_rounds:
            seconds = parts(several)
            step, communication = seconds["step"][0], seconds["communication"][0]
            shares = [100 * one["communication"][0] / one["step"][0] for one in (parts([run]) for run in several)]
            lines.append({
                "network": network, "setting": setting.words, "form": setting.form, "rounds": len(by_rounds),
                "alone, s": parts(alone)["step"][0], "step, s": step, "convolution, s": seconds["convolution"][0],
                "speedup": median(by_rounds), "least": min(by_rounds), "most": max(by_rounds),
                "communication, %": 100 * communication / step, "communication, least": min(shares),
                "communication, most": max(shares), "MiB": several[0]["bytes"] / MIB,
                "speed of the second": median(run["speeds"][1] for run in several),
            })  # fmt: skip
    return lines


def of_setting(lines, name):
    """The `rows` of one setting, a key of SETTINGS."""
    return [line for line in lines if line["setting"] == SETTINGS[name].words]
