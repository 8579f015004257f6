"""Targets: settings, reports, tables and schedules, in TOML, JSON and text, with the figures and documents made of them."""

import json
import os
from contextlib import contextmanager
from functools import cache, partial

from gridgrad.experiments import explain, partition, plot, slurm, sweep
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.scaling import environment, records, table
from gridgrad.experiments.scaling import study as study_settings
from gridgrad.experiments.scaling.study import Study
from gridgrad.nn.kernels import kernel_table
from gridgrad.parallel.pipeline import schedule_names
from tests.fuzz.bounded import ROOT
from tests.fuzz.damage import damaged_json, damaged_text
from tests.fuzz.target import Target, by_program

OF_RECORDS = "a report of", "a curve", "no run", "the run of"  # what messages say of damaged records
VERTICES = 40  # of the network of a partition


@cache
def result(name, *lines):
    """A file that is kept with the project as an input, or some of its lines; numbers of lines count from 0."""
    content = (ROOT / "results" / name).read_bytes()
    found = content.splitlines()
    return (b"\n".join(found[line] for line in lines) if lines else content,)


def files_in(folder, *names):
    return tuple((ROOT / folder / f"{name}.toml").read_bytes() for name in names)


def finished(path):
    """What sweep does with the reports that an earlier one left, and with those of several jobs."""
    found = records.read(path)
    records.of_study(found, Study({}), environment.here())
    table.text(found)
    sweep.gather([path], path.with_suffix(".all"))


@cache
def machines():
    """Machine files, one with tables and curves."""
    described = json.loads((ROOT / "parallel/prediction/machines/cori-haswell.json").read_text())
    axes = [[1, 8], [2, 16], [4, 64], [1, 3]]
    tables = {
        "linear.forward": {"axes": axes[:3], "seconds": [[[1e-6, 2e-6], [3e-6, 4e-6]], [[2e-6, 3e-6], [5e-6, 9e-6]]]},
        "conv3.gradients": {"axes": axes, "seconds": [[[[1e-6, 2e-6]] * 2] * 2] * 2},
        "conv3.backward": {"axes": axes, "seconds": [[[[3e-6, 5e-6]] * 2] * 2] * 2},
        "relu": {"axes": [[1, 9]], "seconds": [1e-6, 2e-6]},
    }
    curves = {"all-reduce": {"2": [[1, 1e-6], [1000, 5e-6]], "4": [[1, 2e-6]]}, "exchange": {"2": [[8, 1e-6], [800, 5e-6]]}}
    core = described["core"] | {"calm": 1e-4, "step": 1e-4, "wait": 1e-5, "crowd": 1}
    whole = described | {"name": "measured", "core": core, "tables": tables, "collectives": curves}
    return tuple(json.dumps(one).encode() for one in (described, whole))


@contextmanager
def variable(name, value):
    """An environment variable has another value."""
    before, os.environ[name] = os.environ[name], str(value)
    try:
        yield
    finally:
        os.environ[name] = before


def kernels_file(path):
    with variable(kernel_table.VARIABLE, path):
        kernel_table.named()


@cache
def kernels():
    return (kernel_table.to_json(kernel_table.PRESET).encode(),)


@cache
def schedules():
    """Schedules in PyTorch's format, with and without the messages and the updates."""
    names = "1f1b", "zb-h1", "interleaved:2", "zbv"
    return tuple(schedule_names.to_csv(schedule_names.parse(name).schedule(2, 3)).encode() for name in names)


MACHINE = "--net lenet5 --shape 16,16,3 --ranks 4 --grid batch=2,model=2 --machine FILE"
PIPELINE = "--net mlp:8,8,8,relu --shape 6 --outputs 4 --ranks 2 --grid stage=2 --machine cori-haswell --pipeline FILE"
TARGETS = (
    Target("sweep settings", partial(files_in, "experiments/settings", "speedup", "breakdown"), damaged_text,
           lambda path: Study(study_settings.read(path)), "settings.toml",
           says=("setting", "schemes", "grid", "nothing to run", "ranks")),
    Target("job sites", partial(files_in, slurm_script.SITES, "juwels", "perlmutter", "polaris"), damaged_text,
           by_program(slurm, "--site FILE --gpus 1 --dry-run -- train --device hybrid"),
           "site.toml", says=("a node of", "a --site that has some", "{account}", "--time is for", "--gpus is for")),
    Target("sweep files", partial(result, "speedup.jsonl", 0, 8), damaged_json, finished, "sweep.jsonl",
           says=("a report of", "setting", "sweep.", "ranks")),
    Target("speedup reports", partial(result, "speedup.jsonl", 0, 8, 16, 25), damaged_json, by_program(plot, "speedup FILE"),
           "reports.jsonl", says=OF_RECORDS, weight=0.3),  # it draws a figure
    Target("machine file", machines, damaged_json, by_program(explain, MACHINE), "machine.json"),
    Target("kernel table", kernels, damaged_json, kernels_file, "kernels.json"),
    Target("parts", lambda: (b"0\n1\n" * (VERTICES // 2),), damaged_text, lambda path: partition.read_parts(path, VERTICES),
           "parts.txt"),
    Target("schedule csv", schedules, damaged_text, by_program(explain, PIPELINE), "schedule.csv",
           says=("micro-batches",)),
)  # fmt: skip
