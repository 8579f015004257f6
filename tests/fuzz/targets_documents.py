"""Targets: settings, reports and tables in TOML and JSON, with the figures and documents that are made of them."""

import json
import os
from contextlib import contextmanager, redirect_stdout
from functools import cache, partial
from pathlib import Path

from gridgrad.experiments import partition, plot, reproduce, slurm, sweep
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.parts.slurm_script import script
from gridgrad.experiments.plots import style
from gridgrad.experiments.plots import timeline as timelines
from gridgrad.experiments.scaling import environment, records, table
from gridgrad.experiments.scaling import study as study_settings
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.studies import protocols
from gridgrad.nn import measured
from gridgrad.nn.kernels import kernel_table
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.calibration import this_machine
from gridgrad.parallel.choose import reductions
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.fuzz.damage import damaged_text
from tests.fuzz.damage_json import damaged_json
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]


@cache
def result(name, *lines):
    """A file that is kept with the project as an input, or some of its lines; numbers of lines count from 0."""
    content = (ROOT / "results" / name).read_bytes()
    found = content.splitlines()
    return (b"\n".join(found[line] for line in lines) if lines else content,)


@cache
def first_results(name, count=1):
    """The first of the results that are kept in a file."""
    return (json.dumps(json.loads(result(name)[0])[:count]).encode(),)


def settings(path):
    """What sweep does with a settings file before it starts a job."""
    Study(study_settings.read(path))


def job_script(path):
    """What slurm does with the file of a site."""
    program = "train", "--device", "hybrid"
    script(slurm.job_of(slurm.options().parse_args(["--site", str(path), "--gpus", "1", "--out", "job.sh", "--", *program])))


def finished(path):
    """What sweep does with the reports that an earlier one left, and with those of several jobs."""
    found = records.read(path)
    records.of_study(found, Study({}), environment.here())
    table.text(found)
    sweep.gather([path], path.with_suffix(".all"))


def figure(kind):
    """A reader of reports that draws the figure of this kind."""

    def read(path):
        args = plot.options().parse_args([kind, str(path)])
        args.draw(args, style.FITTING)

    return read


def compared(path):
    """What plot compare does with a study and another one."""
    args = plot.options().parse_args(["compare", str(ROOT / "results/speedup.jsonl"), str(path)])
    args.draw(args, style.FITTING)


def columns(path):
    words = ["--x", "batch_size", "--y", "seconds.median", "--series", "grid", "--log", "x,y"]
    args = plot.options().parse_args(["lines", str(path), *words])
    args.draw(args, style.FITTING)


def kept(entries, program, problem, document):
    """A reader of kept results that adds one to them."""

    def read(path):
        before = earlier_results(path, entries, program, document)
        new = json.loads(result(f"{program}.json")[0])[0]
        write_results(path, before, new, problem, document)

    return read


def timeline(path):
    timelines.draw_pipelines([timelines.measured(path)], "a pipeline", path.with_suffix(".png"))
    style.plt.close(timelines.draw(path))


@cache
def spans():
    """A timeline of a pipeline of two stages."""
    events = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": rank,
            "tid": 0,
            "args": {"name": f"rank {rank} (stage={rank}, batch=0, height=0, model=0) on node9=3"},
        }
        for rank in range(2)
    ]
    for step in range(4):
        for rank in range(2):
            for number, name in enumerate((f"{rank}F0", f"{rank}B0", "U0")):
                start = 4e6 * step + 1e6 * number
                events.append({"name": name, "cat": "instruction", "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": 9e5})
            whole = {"ph": "X", "pid": rank, "tid": 0, "ts": 4e6 * step, "dur": 3e6}
            events.append({"name": f"step {step}", "cat": "step"} | whole)
    return (json.dumps({"traceEvents": events}).encode(),)


@cache
def profile():
    """The layers in a report of a training."""
    report = json.loads(result("breakdown.jsonl", 0)[0])
    return (json.dumps({"net": "lenet5", "layers": report["layers"]}).encode(),)


@cache
def machines():
    """Machine files, one with tables and curves."""
    described = json.loads((ROOT / "parallel/prediction/machines/cori-haswell.json").read_text())
    lattice = {"axes": [[1, 8], [2, 16], [4, 64]], "seconds": [[[1e-6, 2e-6], [3e-6, 4e-6]], [[2e-6, 3e-6], [5e-6, 9e-6]]]}
    square = {"axes": [[1, 8], [2, 16], [4, 64], [1, 3]], "seconds": [[[[1e-6, 2e-6]] * 2] * 2] * 2}
    whole = {"axes": square["axes"], "seconds": [[[[3e-6, 5e-6]] * 2] * 2] * 2}
    tables = {
        "linear.forward": lattice,
        "conv3.gradients": square,
        "conv3.backward": whole,
        "relu": {"axes": [[1, 9]], "seconds": [1e-6, 2e-6]},
    }
    curves = {"all-reduce": {"2": [[1, 1e-6], [1000, 5e-6]], "4": [[1, 2e-6]]}, "exchange": {"2": [[8, 1e-6], [800, 5e-6]]}}
    core = described["core"] | {"calm": 1e-4, "step": 1e-4, "wait": 1e-5, "crowd": 1}
    measured = described | {"name": "measured", "core": core, "tables": tables, "collectives": curves}
    return tuple(json.dumps(one).encode() for one in (described, measured))


def price(found):
    """What steps of two networks cost on a machine."""
    for spec, shape in (("mlp:64,64,relu", (32,)), ("lenet5", (16, 16, 3))):
        net = network_names.build(spec, shape, 10)
        for sizes in ({"batch": 2, "model": 2}, {"batch": 16}):
            cost = cost_of_slowest_rank(net, PlacementSpec(sizes, "out"), 32, found)
            assert cost.seconds >= 0 and found.peak > 0, sizes


@contextmanager
def variable(name, value):
    """An environment variable has another value."""
    before, os.environ[name] = os.environ[name], str(value)
    try:
        yield
    finally:
        os.environ[name] = before


def stored_machine(path):
    if (text := measured.stored(path, bytes.decode)) is not None:  # else it is measured again
        price(this_machine.machine_of_text(path, text))


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
def caches():
    return kernel_table.to_json(kernel_table.PRESET).encode(), b'"overlap:1024"'


def tables(path):
    """What reproduce --tables-only does with the tables of an earlier run."""
    with redirect_stdout(None):
        reproduce.main(["grabaskas2018", "--tables-only", "--out", str(path.parent)])


REMOVED = object()
TOO_DEEP, NO_TEXT = b"[" * 100_000, b'{"a": "\xff"}'


def replaced(content, value, line, *places):
    """A document, or several in lines, in which one of them has another value at some place, or none there."""
    documents = [json.loads(text) for text in content.splitlines()] if line is not None else [json.loads(content)]
    inside = documents[line or 0]
    for place in places[:-1]:
        inside = inside[place]
    if value is REMOVED:
        del inside[places[-1]]
    else:
        inside[places[-1]] = value
    return b"\n".join(json.dumps(document).encode() for document in documents)


def document(name, valid, read, file="input", *once, says=(), weight=1.0):
    """A Target that reads JSON. once: the arguments of `replaced` for documents that were once not read well."""
    examples = lambda: (TOO_DEEP, NO_TEXT, b"7", *(replaced(valid()[0], *changes) for changes in once))  # noqa: E731
    return Target(name, valid, damaged_json, read, file, says=says, examples=examples, weight=weight)


def toml():
    return tuple((ROOT / "experiments/settings" / f"{name}.toml").read_bytes() for name in ("speedup", "breakdown"))


def sites():
    return tuple((slurm_script.SITES / f"{name}.toml").read_bytes() for name in ("juwels", "perlmutter", "polaris"))


FOR_EVER = b"ranks = [1000000000000000000]", b"repeats = 1000000000000", b"ranks = " + b"[" * 100_000
SETTINGS = "setting", "schemes", "grid", "nothing to run", "ranks"
SITES = "a node of", "a --site that has some", "{account}", "--time is for", "--gpus is for"
OF_RECORDS = "a report of", "a curve"  # records that are damaged, of which messages name the run
LINES, DRAWN = 0, 0.3  # the first line of several; the weight where a figure is drawn
ALL_PROTOCOLS = kept((*protocols.PROBLEM, "runs"), "protocols", protocols.PROBLEM, protocols.document)
TARGETS = (
    Target("sweep settings", toml, damaged_text, settings, "settings.toml", says=SETTINGS, examples=lambda: FOR_EVER),
    Target("job sites", sites, damaged_text, job_script, "site.toml", says=SITES),
    document(
        "sweep files", partial(result, "speedup.jsonl", 0, 8), finished, "sweep.jsonl", ([], LINES, "net"),
        (10**12, LINES, "sweep", "repeats"), ([10**18], LINES, "sweep", "ranks"), (REMOVED, LINES, "sweep", "ranks"),
        ({}, LINES, "sweep", "nets"), says=("a report of", "setting", "sweep.", "ranks"),
    ),
    document(
        "speedup reports", partial(result, "speedup.jsonl", 0, 8, 16, 25), figure("speedup"), "reports.jsonl",
        ("1", LINES, "seconds_per_step", "median"), (7, LINES, "grid"), (10**400, LINES, "P"), ("$", LINES, "net"),
        says=(*OF_RECORDS, "no run has"), weight=DRAWN,
    ),
    document(
        "breakdown reports", partial(result, "breakdown.jsonl", 0, 1, 2), figure("breakdown"), "reports.jsonl",
        (None, LINES, "P"), (0, LINES, "time", "compute"), (REMOVED, LINES, "time", "wait"),
        ([], LINES, "settings", "batch_size"),
        ({}, LINES, "layers", 0, "forward"), says=(*OF_RECORDS, "the run of", "no run"), weight=DRAWN,
    ),
    document(
        "predicted reports", partial(result, "scaling_predicted.jsonl", 0, 1, 2, 3, 4), figure("speedup"), "predicted.jsonl",
        (None, LINES, "P"), ([], LINES, "machine"), ("2", LINES, "ranks_per_node"), says=(*OF_RECORDS, "no run has"),
        weight=DRAWN,
    ),
    document(
        "compared studies", partial(result, "speedup.jsonl", 0, 1, 2, 8, 9, 10), compared, "other.jsonl",
        (0, LINES, "seconds_per_step", "median"), ([], LINES, "versions"), says=(*OF_RECORDS, "the two studies", "no point"),
        weight=DRAWN,
    ),
    document(
        "columns of a report", partial(result, "crossover.json"), columns, "crossover.json",
        ("a", None, "rows", 0, "batch_size"), ([], None, "rows", 1), ([], None, "rows"), weight=DRAWN,
    ),
    document(
        "protocols results", partial(first_results, "protocols.json"), ALL_PROTOCOLS, "protocols.json",
        (10**30, None, 0, "synthetic"), (7, None, 0, "settings"), weight=DRAWN,
    ),
    document(
        "timeline", spans, timeline, "trace.json", ("U0", None, "traceEvents", 2, "name"), ("1", None, "traceEvents", 2, "dur"),
        weight=DRAWN,
    ),
    document(
        "profile", profile, partial(partition.profiled, net="lenet5"), "report.json", (7, None, "layers"),
        ("a", None, "layers", 0, "forward"), (REMOVED, None, "layers", 0, "layer"), ("vgg16", None, "net"),
    ),
    document("machine file", machines, lambda path: price(machine.read(str(path))), "machine.json"),
    document("stored machine", machines, stored_machine, "machine.json"),
    document("kernel table", lambda: (kernel_table.to_json(kernel_table.PRESET).encode(),), kernels_file, "kernels.json"),
    document("cache files", caches, cached),
    document("old tables", partial(result, "grabaskas2018/tables.json"), tables, "tables.json", weight=DRAWN),
)  # fmt: skip
