"""Targets: settings, reports, tables and schedules, in TOML, JSON and text, with the figures and documents made of them."""

import json
import os
from contextlib import contextmanager
from functools import cache, partial

from gridgrad.experiments import explain, partition, plot, slurm, sweep
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.plots import style
from gridgrad.experiments.plots import timeline as timelines
from gridgrad.experiments.scaling import environment, records, table
from gridgrad.experiments.scaling import study as study_settings
from gridgrad.experiments.scaling.study import Study
from gridgrad.nn import measured
from gridgrad.nn.kernels import kernel_table
from gridgrad.parallel.calibration import this_machine
from gridgrad.parallel.choose import reductions
from gridgrad.parallel.pipeline import schedule_names
from tests.fuzz.bounded import ROOT
from tests.fuzz.damage import damaged_json, damaged_text
from tests.fuzz.target import Target, by_program

DRAWN = 0.3  # the weight where a figure is drawn
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


def timeline(path):
    timelines.draw_pipelines([timelines.measured(path)], "a pipeline", path.with_suffix(".png"))
    style.plt.close(timelines.draw(path))


@cache
def spans():
    """A timeline of a pipeline of two stages."""
    place = "rank {0} (stage={0}, batch=0, height=0, model=0) on node9=3"
    rows = [{"name": "process_name", "ph": "M", "args": {"name": place.format(rank)}, "pid": rank} for rank in range(2)]
    for rank in range(2):
        for step in range(4):
            rows.append({"name": f"step {step}", "cat": "step", "ph": "X", "pid": rank, "ts": 4e6 * step, "dur": 3e6})
            for number, name in enumerate((f"{rank}F0", f"{rank}B0", "U0")):
                begin = 4e6 * step + 1e6 * number
                rows.append({"name": name, "cat": "instruction", "ph": "X", "pid": rank, "ts": begin, "dur": 9e5})
    return (json.dumps({"traceEvents": [{"tid": 0} | row for row in rows]}).encode(),)


@cache
def profile():
    """The layers in a report of a training."""
    report = json.loads(result("breakdown.jsonl", 0)[0])
    return (json.dumps({"net": "lenet5", "layers": report["layers"]}).encode(),)


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


def stored_machine(path):
    if (text := measured.stored(path, bytes.decode)) is not None:  # else it is measured again
        this_machine.machine_of_text(path, text)


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


def cached(path):
    """The cache folder: damaged files in it are as good as none."""
    with variable("GRIDGRAD_CACHE", path.parent):
        path.rename(kernel_table.table_file())
        kernel_table.stored()
        measured.stored(kernel_table.table_file(), reductions.checked_answer)


@cache
def kernels():
    return (kernel_table.to_json(kernel_table.PRESET).encode(),)


@cache
def schedules():
    """Schedules in PyTorch's format, with and without the messages and the updates."""
    names = "1f1b", "zb-h1", "interleaved:2", "zbv"
    return tuple(schedule_names.to_csv(schedule_names.parse(name).schedule(2, 3)).encode() for name in names)


def drawn(name, valid, read, file, says=OF_RECORDS):
    return Target(name, valid, damaged_json, read, file, says=says, weight=DRAWN)


ROWS = [
    {"grid": grid, "batch_size": size, "seconds": {"median": size / 9}} for grid in ("batch=4", "model=4") for size in (8, 16)
]
COLUMNS = "lines FILE --x batch_size --y seconds.median --series grid --log x,y"
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
    drawn("speedup reports", partial(result, "speedup.jsonl", 0, 8, 16, 25), by_program(plot, "speedup FILE"), "reports.jsonl"),
    drawn("columns of a report", lambda: (json.dumps({"rows": ROWS}).encode(),), by_program(plot, COLUMNS), "rows.json", ()),
    drawn("timeline", spans, timeline, "trace.json", ()),
    Target("profile", profile, damaged_json, partial(partition.profiled, net="lenet5"), "report.json"),
    Target("machine file", machines, damaged_json, by_program(explain, MACHINE), "machine.json"),
    Target("stored machine", machines, damaged_json, stored_machine, "machine.json"),
    Target("kernel table", kernels, damaged_json, kernels_file, "kernels.json"),
    Target("cache files", lambda: (*kernels(), b'"overlap:1024"'), damaged_json, cached),
    Target("parts", lambda: (b"0\n1\n" * (VERTICES // 2),), damaged_text, lambda path: partition.read_parts(path, VERTICES),
           "parts.txt"),
    Target("schedule csv", schedules, damaged_text, by_program(explain, PIPELINE), "schedule.csv",
           says=("micro-batches",)),
)  # fmt: skip
