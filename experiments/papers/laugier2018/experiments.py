"""Laugier, Nisbet, Li, Thompson: Integrated model and data parallelism for training deep neural networks (2018).

Tables: the volumes of sections 5 to 7 by the printed formulas and corrected, and the size of a block of section 7. Experiments:
Figures 5 to 7 on both data sets, bytes counted against the formulas, the two scatters timed. What is predicted for the paper's
ranks on Cori comes from `predicted.py`; only numbers from runs are called measured. The paper's
numbers are in `published/laugier2018.toml`, those of the logs of its public code in `published/laugier2018_logs.toml`.
"""

import json
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from gridgrad import datasets
from gridgrad.experiments import sweep as sweeps
from gridgrad.experiments.common.parallel_schemes import grid_of
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import titled
from gridgrad.experiments.launching.start_ranks import check_ended, mpiexec
from gridgrad.experiments.papers.laugier2018 import byte_formulas, formulas
from gridgrad.experiments.papers.laugier2018 import predicted as predictions
from gridgrad.experiments.papers.parts import SHORT, PaperPart
from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.plots.style import DPI, measured_on, save
from gridgrad.experiments.scaling import records
from gridgrad.experiments.scaling import study as study_settings
from gridgrad.experiments.scaling.records import seconds_of
from gridgrad.experiments.scaling.runs import records_of
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import UserError

MEASURED = "machine", "data", "speedups", "spent", "counted", "scatter"  # entries of what `experiments` returns
SIZES = "sizes of the data sets"  # a part
SHORT_REPEATS = {"airfoil": 3}  # of its runs in a short measurement; those of other data sets have one
RUN_SECONDS, SCATTER_SECONDS = {1: 1.2, 2: 1.6}, 4  # of a run by its ranks, more if they have to share cores; of a scatter


def tables(measured=None):
    """{"volumes", "crossover", "printed"} from formulas, {"ratios", "curves", "predicted", "fast_enough"} from the cost model,
    and what `experiments` measured: rows, and "machine", in words."""
    known = {"volumes": formulas.volumes(), "crossover": formulas.crossovers(), "printed": formulas.published_speedups()}
    return known | predictions.tables() | {name: measured[name] for name in MEASURED if name in (measured or {})}


def experiments(out, ranks, data_dir, full=True):
    """Run all experiments; the figures go to `out`. Returns what `gathered` does."""
    data = ["airfoil", ethylene(data_dir)]
    for name in data:
        sweeps.sweep(Study(settings_of(name, ranks, data_dir)), out / f"{name}.jsonl", anew=True)
    return measurement(out, data, sizes_of_data(data, data_dir), [row for grid in grids(ranks) for row in scatter(grid)])


def to_measure(size, ranks, data_dir):
    """The experiments as Parts: how large the data sets are, each run of the sweeps, and the scatters on each grid."""
    data = ["airfoil", ethylene(data_dir)]
    found = [PaperPart(SIZES, partial(sizes_of_data, data, data_dir), 1, {"data": data})]
    for name in data:
        settings = settings_of(name, ranks, data_dir)
        if size == SHORT:
            settings["repeats"] = SHORT_REPEATS.get(name, 1)
        study = Study(settings)
        for repeat in range(study.repeats):
            for point in study.points:
                words = f"{name}, {point.settings['net']}, {point.settings['grid']}, repeat {repeat}"
                seconds = RUN_SECONDS.get(point.ranks, 3.5)
                found.append(PaperPart(words, partial(measured_run, study, point, repeat), seconds, settings))
    return found + [
        PaperPart(f"scatter on {grid}", partial(scatter, grid), SCATTER_SECONDS, {"grid": grid}) for grid in grids(ranks)
    ]


def measured_run(study, point, repeat):
    """The record of one run of a point of a sweep; UserError if it fails, so that it is not kept."""
    [record] = records_of((point,), repeat, sweeps.TIMEOUT)
    if record.get("failed"):
        raise UserError(f"{point}: {record['failed']}")
    return record | records.tags(study, point)


def gathered(results, out):
    """What `tables` takes, of what the parts found, so far as they did; the reports and the figures go to `out`."""
    reports = [report for report in results.values() if isinstance(report, dict)]
    alone = {(r["dataset"], r["net"]) for r in reports if r["P"] == 1}  # speedups are over these
    reports = [report for report in reports if (report["dataset"], report["net"]) in alone]
    data = list(dict.fromkeys(report["dataset"] for report in reports))
    for name in data:
        write_text(out / f"{name}.jsonl", records.lines([report for report in reports if report["dataset"] == name]))
    scattered = [row for name, rows in results.items() if name.startswith("scatter on ") for row in rows]
    return measurement(out, data, results.get(SIZES, []), scattered)


def measurement(out, data, of_data, scattered):
    """What MEASURED names: words, and rows; the figures go to `out`.

    data: names of data sets, whose reports are in `out`. of_data: of `sizes_of_data`. scattered: rows of `scatter`.
    ValueError if they were measured on different machines, or a network has no run on one rank.
    """
    result = {"machine": "", "data": of_data, "speedups": [], "spent": [], "counted": [], "scatter": scattered}
    for name in data:
        figure, _ = scaling.draw(curves.read([out / f"{name}.jsonl"]), "speedup")
        save(figure, out / f"{name}.png", DPI)
        reports = [record for record in records.read(out / f"{name}.jsonl") if not record.get("failed")]
        where = measured_on(reports[0]["versions"])
        if result["machine"] not in ("", where):
            raise ValueError(f"the data sets were measured on {result['machine']} and on {where}: measure both again")
        result["machine"] = where
        result["speedups"] += speedups(name, reports)
        result["spent"] += spent(name, reports)
        result["counted"] += counted(reports)
    return result


def speedups(data, reports):
    """Rows: the speedup of each network and grid over one rank, with the range of the repeats. reports: of one data set.

    It is the median time on one rank over that of each run. ValueError if a network has no run on one rank.
    """
    points = {(row.net, row.grid): row for row in rows_of(reports) if row.seconds}
    alone = {net: row.seconds.value for (net, _), row in points.items() if row.ranks == 1}
    found = []
    for (net, grid), row in points.items():
        if net not in alone:
            raise ValueError(f"no run of {net} on 1 rank to compare with: measure it again")
        ratios = [alone[net] / seconds for run in row.runs if (seconds := seconds_of(run))]
        found.append(
            {"data": data, "net": net, "grid": grid, "speedup": median(ratios), "min": min(ratios), "max": max(ratios),
             "oversubscribed": row.oversubscribed}
        )  # fmt: skip
    return found


def spent(data, reports):
    """Rows: the milliseconds of a step that the slowest rank computes, and those of messages and of waiting for others, medians
    of the repeats. reports: of one data set."""
    runs = {}
    for report in reports:
        if "time" in report:
            runs.setdefault((report["net"], report["grid"]), []).append(report["time"])
    middle = lambda times, name: 1e3 * median(one.get(name, 0.0) for one in times)  # noqa: E731
    return [
        {"data": data, "net": net, "grid": grid, "compute ms": middle(times, "compute"),
         "messages ms": middle(times, "communicate"), "wait ms": middle(times, "wait")}
        for (net, grid), times in runs.items()
    ]  # fmt: skip


def settings_of(name, ranks, data_dir):
    """The settings of the sweep on a data set."""
    settings = study_settings.read(study_settings.FILES / "laugier2018.toml")
    where = {"data_dir": str(data_dir)} if data_dir else {}
    return settings | where | {"dataset": name, "ranks": list(ranks), "reduction": "plain"}  # as theirs


def grids(ranks):
    """The grids on which the scatters are timed."""
    return list(dict.fromkeys(filter(None, (grid_of(s, p) for p in ranks if p > 1 for s in formulas.SCHEMES))))


def sizes_of_data(names, data_dir):
    """Rows: samples, inputs and outputs of data sets, those to train and those to test together."""
    found = []
    for name in names:
        datasets.prepare(name, data_dir)
        data = datasets.load(name, data_dir)
        found.append(
            {"data": name, "samples": len(data.train) + len(data.test), "inputs": data.sample_shape[0], "outputs": data.outputs}
        )
    return found


def ethylene(data_dir):
    """The name of the ethylene data set: the real one if it is there or can be downloaded, else the synthetic one."""
    try:
        datasets.prepare("ethylene", data_dir)
        return "ethylene"
    except OSError:
        datasets.prepare("ethylene-synthetic", data_dir)
        return "ethylene-synthetic"


def counted(reports):
    """Bytes of a step as counted in the runs beside the formulas, for each network and grid of a sweep."""
    rows = []
    for r in reports:
        if r["repeat"] or r["P"] == 1:
            continue
        batch, model = (parse_grid(r["grid"]).get(axis, 1) for axis in ("batch", "model"))
        widths = [r["features"], *(int(w) for w in r["net"].removeprefix("mlp:").split(",")[:-1]), r["outputs"]]
        gradients = sum(c["bytes"] for c in r["communication"] if c["layer"] == "gradients")
        activations = sum(c["bytes"] for c in r["communication"] if c["layer"] not in ("gradients", "loss"))
        samples = r["samples_per_step"]  # the mean: the last minibatch of an epoch is smaller
        rows.append(
            {
                "data": r["dataset"], "net": r["net"], "grid": r["grid"],
                "gradients_counted": gradients, "gradients_formula": byte_formulas.gradients(widths, batch, model),
                "model_counted": activations,
                "model_formula": byte_formulas.activations(samples, widths, r["plan"], batch, model),
                "model_laugier": byte_formulas.laugier_activations(samples, widths, batch, model),
            }
        )  # fmt: skip
    return rows


def scatter(grid):
    """The two scatters timed on a grid: rows."""
    ranks = parse_grid(grid)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "scatter.json"
        arguments = [*as_module("papers.laugier2018.scatter"), "--grid", grid, "--report", str(report)]
        job = mpiexec(ranks["batch"] * ranks["model"], arguments, timeout=300)
        check_ended(job, f"scatter on {grid}")
        rows = json.loads(report.read_text())["rows"]
    in_us = lambda row: {k.replace("seconds", "us"): v * 1e6 if "seconds" in k else v for k, v in row.items()}  # noqa: E731
    return [{"grid": grid, **in_us(row)} for row in rows]


TITLES = {
    "volumes": "MB that a rank sends in a step (ethylene, model size 1,024, batch 100, float32): derived by the formulas that "
    "sections 5 and 6 print, corrected (`papers/laugier2018/byte_formulas.py` says how), and with reduce-scatter in backward",
    "crossover": "Section 7: one scatter is faster than scatter and broadcast for blocks *below* this size (Cori's constants)",
    "printed": "Speedups that the paper prints, on Cori; that of 2-D is over batch parallelism. No number of ranks is printed "
    "for the last two",
    "data": "Table 1: the data sets, samples to train and to test together",
    "speedups": "Measured speedups over one rank (median, min and max of the repeats)",
    "spent": "Milliseconds of a step that a rank computes, spends on messages and waits for others, measured (medians)",
    "counted": "Bytes that all ranks send in a step: counted in the runs, and the formulas",
    "scatter": "The two ways to bring a minibatch from one rank to all, measured",
} | predictions.TITLES


def as_markdown(tables):
    """All tables as Markdown."""
    where = f"Measured on {tables['machine']}.\n" if tables.get("machine") else ""
    return f"# Laugier et al. 2018\n\n{where}" + "".join(
        titled(TITLES[name], tables[name]) for name in tables if name in TITLES
    )
