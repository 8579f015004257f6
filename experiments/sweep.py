"""Run `train` for every network and grid of a sweep, and keep one report a run.

    gridgrad sweep experiments/settings/speedup.toml --out results/speedup.jsonl
    gridgrad sweep --ranks 1,2,4,8 --schemes batch,model,2d --nets mlp:512,512,relu --out FILE
    gridgrad sweep --grids "batch=4;stage=2,batch=2" --nets mlp:512,512,relu --out FILE

On one machine, or inside an allocation: each run is an mpiexec of its own. Runs are interleaved, all of them once
before any is repeated, so that a drift of the machine's speed affects all of them alike. Reports gather in FILE.part, which
becomes FILE when all runs are done. Runs that FILE or FILE.part have already, with the same settings and on a machine like
this one, are not repeated: a sweep that was interrupted goes on when it is started again, and a longer one adds to FILE.
Reports with other settings or of other machines do not compare with these. They stay in FILE.part, so that a sweep can go on
where it was interrupted whichever machine it is on, and are left out of FILE in the end.

Several jobs may share a sweep: `--part 2/4` does every fourth run, from the second on, and writes FILE-2-of-4. Then
`--gather FILE FILE ..` puts the reports of all parts into one file.

With `--predict 1,2,..,16384 --machine NAME` nothing runs: the reports are predicted
(`experiments/common/predicted_reports.py`).
"""

import argparse
import contextlib
import json
import math
import signal
import sys
import tempfile
import tomllib
from itertools import product
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common import predicted_reports
from gridgrad.experiments.common.meaning import check_grid
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole, whole_list
from gridgrad.experiments.common.parallel_schemes import SCHEMES, grid_of
from gridgrad.experiments.common.programs import FOLDER, as_module, check_enough
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.parts import sweep_files, sweep_table
from gridgrad.nn.files import json_forms
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import CHECKPOINTED, UserError, run_launcher
from gridgrad.parallel.job.start_ranks import mpiexec, slots
from gridgrad.parallel.prediction.machine import names

SETTINGS = FOLDER / "settings"
DEFAULTS = {
    "dataset": "airfoil", "nets": ["mlp:512,512,512,relu"], "ranks": [1, 2], "schemes": ["batch", "model", "2d"],
    "batch_size": 100, "steps": 60, "repeats": 3, "plan": "fewest-bytes", "dtype": "float32", "seed": 0, "profile": False,
    "reduction": "auto",
}  # fmt: skip
SERIAL = {"ranks": [1], "schemes": ["batch"]}  # what these are where a sweep names grids alone: the run on one rank
MOST_REPEATS = 10_000
LISTS = {  # the settings that say which runs there are, in a report
    "nets": [json_forms.TEXT], "grids": json_forms.Optional([json_forms.TEXT]), "ranks": [json_forms.WHOLE],
    "schemes": [json_forms.Kind(f"one of {', '.join(SCHEMES)}", SCHEMES.__contains__)],
    "repeats": json_forms.Kind(f"a number of at most {MOST_REPEATS}", lambda value: type(value) is int and value <=
    MOST_REPEATS),
}  # fmt: skip


def runs(settings):
    """(net, grid) pairs of a sweep, each once: its `grids`, and every scheme on every number of ranks."""
    grids = dict.fromkeys(settings.get("grids", []))
    for ranks, scheme in product(settings["ranks"], settings["schemes"]):
        grid = grid_of(scheme, ranks)
        if grid:
            grids[grid] = None
    return list(product(settings["nets"], grids))


def launch(net, grid, settings, timeout):
    """The report of one run, without its list of losses; UserError with the job's own words if it fails."""
    ranks = math.prod(parse_grid(grid).values())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = [*as_module("train"), "--quiet", "--net", net, "--grid", grid, "--report", str(report)]
        for name in ("dataset", "data_dir", "batch_size", "steps", "plan", "dtype", "seed", "reduction"):
            if settings.get(name) is not None:
                arguments += [f"--{name.replace('_', '-')}", str(settings[name])]
        if settings.get("profile"):
            arguments.append("--profile")
        with user_input():
            job = mpiexec(ranks, arguments, timeout)
        if job.status is None:
            raise UserError(f"{net} on {grid} took longer than --timeout {timeout} s and was ended")
        if job.status != 0:
            lines = [line for line in job.stderr.splitlines() if "rror" in line] or ["no message"]
            raise UserError(f"{net} on {grid} ended with status {job.status}: {lines[0]}")
        return json.loads(report.read_text()) | {"loss": None}


def report_of(net, grid, repeat, settings, timeout=600):
    """The report of one run of a sweep, as its file has it; see `launch`."""
    report = launch(net, grid, settings, timeout) | {"repeat": repeat, "slots": slots(), "sweep": settings}
    return report | {"oversubscribed": report["P"] > report["slots"], "machine": sweep_files.here()}


def all_runs(settings):
    """(net, grid, repeat) of all runs of a sweep, in the order in which they are done."""
    return [(net, grid, repeat) for repeat in range(settings["repeats"]) for net, grid in runs(settings)]


def sweep(settings, out, timeout=600, part=(1, 1), anew=False):
    """Do the runs of one part of a sweep that `out` does not have yet, and write all reports to `out`; see the module's text.

    part: (I, N), every N-th run from the I-th on. anew: also repeat, and replace, what `out` has. Returns (runs that were done
    now, runs of this part).
    """
    todo = all_runs(settings)[part[0] - 1 :: part[1]]
    unfinished = Path(f"{out}.part")
    with user_input():
        reports = ([] if anew else sweep_files.read(out)) + sweep_files.read(unfinished)
    found = sweep_files.done(reports, settings)
    others = [report for report in reports if report not in found.values()]
    missing = [run for run in todo if run not in found]
    for net, grid, repeat in tqdm(missing, unit=" runs", delay=2, disable=None):
        found[net, grid, repeat] = report_of(net, grid, repeat, settings, timeout)
        write_text(unfinished, sweep_files.lines([*others, *found.values()]))
    write_text(out, sweep_files.lines(found.values()))
    unfinished.unlink(missing_ok=True)
    return len(missing), len(todo)


def gather(files, out):
    """Put the reports of several sweeps, or of the parts of one, into one file. Returns words about what it holds.

    ValueError if they disagree. A run is missing if the settings of a sweep have it, and none of the files.
    """
    reports = sweep_files.gather(files)
    asked = {}
    for own in (report["sweep"] for report in reports):
        settings = DEFAULTS | own
        json_forms.check(settings, LISTS, "sweep")
        asked |= dict.fromkeys((*run, sweep_files.how(own)) for run in all_runs(settings))
    missing = list(asked.keys() - {sweep_files.name_of(report) for report in reports})
    write_text(out, sweep_files.lines(reports))
    net, grid, repeat, _ = min(missing, default=(None,) * 4)
    words = f"; {len(missing)} are missing, such as {net} on {grid}, repeat {repeat}" if missing else ""
    return f"{len(reports)} runs written to {out}{words}"


def read_settings(path):
    """The settings of a TOML file, or of the one of this name that comes with gridgrad; ValueError if it is none."""
    if not Path(path).exists() and (SETTINGS / Path(path).name).is_file():
        path = SETTINGS / Path(path).name
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of the syntax, of bytes that are not UTF-8, of lists in too many lists
        raise ValueError(f"{path} is no TOML file: {error}; see {SETTINGS}/speedup.toml") from None


def check(settings, schemes=SCHEMES):
    """Raise ValueError that names the setting if one is unknown, has the wrong type, or names an unknown scheme."""
    kinds = DEFAULTS | {"grids": [""], "data_dir": ""}
    for name, value in settings.items():
        if name not in kinds:
            raise ValueError(f"unknown setting {name}: there are {', '.join(kinds)}")
        values, example = (value, kinds[name][0]) if isinstance(kinds[name], list) else ([value], kinds[name])
        good = isinstance(values, list) and all(type(v) is type(example) for v in values)
        if not good or (type(example) is int and name != "seed" and not all(v >= 1 for v in values)):
            words = {int: "whole numbers of at least 1", bool: "true or false", str: "texts"}[type(example)]
            raise ValueError(f"setting {name} = {value!r}: expected {'a list of ' if values is value else ''}{words}")
    if settings["repeats"] > MOST_REPEATS:
        raise ValueError(f"setting repeats = {settings['repeats']}: every run can be repeated {MOST_REPEATS} times at most")
    if unknown := set(settings["schemes"]) - set(schemes):
        raise ValueError(f"unknown schemes {', '.join(sorted(unknown))}: use {', '.join(schemes)}")
    for grid in settings.get("grids", []):
        parse_grid(grid)


def check_images(settings):
    """Raise ValueError for a grid that splits images and a network that takes none. Only for such a grid the data are read."""
    split = [(net, sizes) for net, grid in runs(settings) if (sizes := parse_grid(grid)).get("height", 1) > 1]
    if split:
        shape, outputs = predicted_reports.shape_of(settings["dataset"], settings.get("data_dir"))
        for net, sizes in split:
            check_grid(sizes, published(net, shape, outputs))


def part_of(text):
    """An option type: "I/N" with 1 <= I <= N as (I, N)."""
    words = text.split("/")
    if len(words) != 2:
        raise argparse.ArgumentTypeError(f"must be I/N, such as 2/4, not '{text}'")
    count = whole(1)(words[1])
    return whole(1, count)(words[0]), count


def stop(number, frame):
    """End on a signal, such as the one that an allocation sends before its end: what is done is kept."""
    print("sweep: stopped early: the same command line goes on from here", file=sys.stderr, flush=True)
    sys.exit(CHECKPOINTED)


def options():
    parser = Parser(prog="sweep", usage="%(prog)s [OPTIONS] [FILE.toml]",
                    description="Run train for every network and grid of a sweep.")  # fmt: skip
    words, specs = (lambda text: text.split(",")), (lambda text: text.split(";"))  # a spec has commas of its own
    add = parser.add_argument
    add("settings", nargs="?", metavar="FILE.toml", help="settings file; options given here override it")
    add("--out", default="results/sweep.jsonl", help="the reports, a line of JSON each")
    add("--dataset", metavar="NAME", help="data set, see train --help (default: airfoil)")
    add("--data-dir", metavar="DIR", help="see train --help")
    add("--nets", type=specs, help="networks, see train --help, separated by semicolons")
    add("--ranks", type=whole_list, metavar="P,P,..", help="numbers of ranks (default: 1,2)")
    add("--schemes", type=words, metavar="S,S,..", help=f"some of {', '.join(SCHEMES)} (default: batch,model,2d)")
    add("--grids", type=specs, metavar="GRID;GRID;..", help="more grids, see train --help, separated by "
        "semicolons; without --ranks and --schemes one rank alone is measured beside them")  # fmt: skip
    add("--batch-size", type=whole(1), metavar="B", help="samples in the global minibatch of all runs (default: 100)")
    add("--steps", type=whole(1), help="minibatches in a run (default: 60)")
    add("--repeats", type=whole(1), help="how often each run is repeated (default: 3)")
    add("--plan", help="see train --help")
    add("--reduction", help="see train --help")
    add("--profile", action="store_true", default=None, help="profile the layers, as plot breakdown needs")
    add("--timeout", type=whole(1), default=600, help="seconds that one run may take")
    add("--part", type=part_of, default=(1, 1), metavar="I/N", help="do only every N-th run, from the I-th on, and write them "
        "to FILE-I-of-N instead of FILE (default: all runs)")  # fmt: skip
    add("--anew", action="store_true", help="repeat also the runs that --out has, and replace them")
    add("--gather", nargs="+", metavar="FILE", help="start no job, but put the reports of these files together into --out")
    add = parser.add_argument_group("predictions").add_argument
    add("--predict", type=whole_list, metavar="P,P,..", help="numbers of ranks to predict reports for; starts no job. "
        f"Schemes are some of {', '.join(predicted_reports.ALL_SCHEMES)}; default all")  # fmt: skip
    add("--machine", metavar="NAME", help="a file that calibrate wrote, or one of "
        f"{', '.join(names())}; default cori-haswell")  # fmt: skip
    add(
        "--weak",
        action="store_true",
        default=None,
        help="weak scaling: --batch-size counts the samples of one rank, so the global batch grows with the ranks",
    )
    words = "shape of a sample: features, or HEIGHT,WIDTH,CHANNELS; default: that of --dataset if given, else as published"
    add("--shape", type=whole_list, metavar="SHAPE", help=words)
    add("--outputs", type=whole(1), help="number of classes (default: as for --shape)")
    return parser


def settings_of(args):
    """(settings of the sweep, those of them that are not defaults) of the options. ValueError if they are wrong."""
    given = read_settings(args.settings) if args.settings else {}
    given |= {name: value for name in (*DEFAULTS, "grids", "data_dir") if (value := getattr(args, name, None)) is not None}
    settings = DEFAULTS | (SERIAL if given.get("grids") and not SERIAL.keys() & given else {}) | given
    check(settings, predicted_reports.ALL_SCHEMES if args.predict else SCHEMES)
    if args.predict is None and any((args.machine, args.weak, args.shape, args.outputs)):
        raise ValueError("--machine, --weak, --shape and --outputs are options of predictions: they go with --predict")
    if args.predict is None and not args.gather and not runs(settings):
        raise ValueError("there is nothing to run: name nets, and ranks or grids that the schemes have")
    return settings, given


def check_job(args, ranks):
    """Raise ValueError for settings that are wrong, or need more ranks than a job has: see `programs.check_job`."""
    settings, _ = settings_of(args)
    if args.predict is None and not args.gather:
        largest = max((grid for _, grid in runs(settings)), key=lambda grid: math.prod(parse_grid(grid).values()))
        check_enough(math.prod(parse_grid(largest).values()), ranks, f"the run on the grid {largest}")


def check_no_runs(out):
    """Raise UserError if a file has reports of runs, which take long: predictions must not replace them."""
    with contextlib.suppress(ValueError):  # of a file of predictions
        if sweep_files.read(out):
            raise UserError(f"--out {out} has runs that were measured: give predictions a file of their own")


def predict(settings, given, args):
    """Write predicted reports and print how many. given: settings that are not defaults."""
    name, shape, outputs = args.machine or "cori-haswell", args.shape, args.outputs
    settings = settings | {"ranks": args.predict, "schemes": given.get("schemes", predicted_reports.ALL_SCHEMES)}
    with user_input():
        if "dataset" in given and not (shape and outputs):
            of_data = predicted_reports.shape_of(given["dataset"], given.get("data_dir"))
            shape, outputs = shape or of_data[0], outputs or of_data[1]
        count = predicted_reports.write(settings, args.out, name, shape, outputs, bool(args.weak))
    print(sweep_table.text([json.loads(line) for line in Path(args.out).read_text().splitlines()]))
    following = f"; next: gridgrad plot speedup --predicted {args.out}" if 1 in args.predict else ""  # it draws speedups
    print(f"{count} predictions written to {args.out}{following}")


def main():
    args = options().parse_args()
    out = args.out
    with user_input():
        settings, given = settings_of(args)
        check_writable(out)
        if not (args.gather or args.predict):
            check_images(settings)
        if args.gather:
            words = gather(args.gather, out)
            print(f"{sweep_table.text(sweep_files.read(out))}\n{words}; next: gridgrad plot speedup {out}")
            return
    if args.predict:
        check_no_runs(out)
        predict(settings, given, args)
        return
    if args.part[1] > 1:
        out = sweep_files.part_name(out, args.part)
    signal.signal(signal.SIGUSR1, stop)
    now, count = sweep(settings, out, args.timeout, args.part, args.anew)
    earlier = f", {count - now} of which were there already" if now < count else ""
    following = f"plot speedup {out}" if args.part[1] == 1 else "sweep --gather with the files of all parts"
    with user_input():
        text = sweep_table.text(sweep_files.read(out))
    print(f"{text}\n{count} runs written to {out}{earlier}; next: gridgrad {following}")


if __name__ == "__main__":
    run_launcher(main)
