"""Measure a scaling study: `train` for every network and series on every number of ranks, repeated until the times are sure.

    gridgrad sweep experiments/settings/speedup.toml --out results/speedup.jsonl
    gridgrad sweep --ranks 1,2,4,8 --schemes batch,model,2d --nets mlp:512,512,relu --out FILE
    gridgrad sweep --grids "batch=4;stage=2,batch=2" --vary "reduction=plain;overlap" --weak --minutes 30 --out FILE

Each run is an mpiexec of its own; all are checked before the first. FILE has every run that is done, at once: the same command
goes on where it stopped, and one with more ranks or networks adds to it. What does not compare goes to FILE.others. `--part
2/4` does every fourth point and writes FILE-2-of-4; `--gather FILE FILE ..` puts parts together. `--machine NAME` predicts the
same points, `--predict 1,2,..,16384` runs nothing. A FILE.jsonl in place of the settings is shown again.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from math import inf
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common.options import Parser, check_writable, number, position_list, user_input, whole, whole_list
from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES
from gridgrad.experiments.common.programs import check_enough
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling import environment, export, predicted, records, runs, table, tidy
from gridgrad.experiments.scaling import study as settings
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.job.run import CHECKPOINTED, UserError, run_launcher
from gridgrad.parallel.prediction import machine as machines

TIMEOUT = 600  # seconds that a run may take
BAR = "run {n_fmt} of {total_fmt} |{bar}|{postfix}"
APART = 30  # seconds between two lines about progress in a log
GOES_ON = "what is done is kept, and the same command line goes on from here"


def sweep(study, out, timeout=TIMEOUT, part=(1, 1), anew=False):
    """Do the runs of one part of a Study that `out` does not have yet; it must be locked. part: (I, N), every N-th point, or
    job with turns, from the I-th on. anew: also repeat what `out` has. Returns (runs that were done now, all runs of the
    part)."""
    groups, file = study.groups[part[0] - 1 :: part[1]], runs.StudyFile(out, study, environment.here(), anew)
    start = said = time.monotonic()
    deadline = start + 60 * study.minutes if study.minutes else inf
    done, before = file.runs, len(file.runs)
    longest = lambda point: max((one["took"] for one in runs.by_point(done).get(point.key, [])), default=0)  # noqa: E731
    fits = lambda group: time.monotonic() + sum(map(longest, group)) <= deadline  # noqa: E731
    total = before + runs.fewest_left(groups, study, done)
    with tqdm(total=total, initial=before, disable=not sys.stderr.isatty(), bar_format=BAR) as bar:
        for group in runs.rounds(groups, study, done, fits):
            repeat = runs.next_repeat(group, study, done)
            for point, record in zip(group, runs.records_of(group, repeat, timeout, study.seed(repeat), study.turns)):
                file.add(record | records.tags(study, point))
            now, left = time.monotonic(), runs.fewest_left(groups, study, done)
            seconds = min((now - start) / (len(done) - before) * left, max(0.0, deadline - now))
            words = f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
            bar.n, bar.total = len(done), len(done) + left
            bar.set_postfix_str(words)
            if bar.disable and now - said >= APART:  # in a log
                said = now
                print(f"sweep: run {bar.n} of {bar.total}, {words}", file=sys.stderr, flush=True)
    file.end()
    return len(done) - before, len(done)


def gather(files, out):
    """Put the records of several sweeps, or of the parts of one, into one file. Returns words about it; ValueError if they
    disagree. A run is missing if the settings of a sweep have it, and none of the files."""
    found = records.gather(files)
    held = {records.identity(record) for record in found}
    if any(records.identity(record) not in held for record in records.read(out)):
        raise ValueError(f"--out {out} has runs that none of these files has: name it among them, or give another --out")
    write_text(out, records.lines(found))
    measured, missing = [record for record in found if not record.get("predicted")], {}
    done = runs.by_point(measured)
    for study in filter(None, {runs.study_of_record(record): None for record in measured}):
        missing |= {point: study.repeats - len(done.get(point.key, [])) for point in study.points}
    missing = {point: count for point, count in missing.items() if count > 0}
    words = f"; {counted(sum(missing.values()), 'run')} missing, such as {next(iter(missing))}" if missing else ""
    return f"{counted(len(found), 'run')} written to {out}{words}"


def part_of(text):
    """An option type: "I/N" with 1 <= I <= N as (I, N)."""
    words = text.split("/")
    if len(words) != 2:
        raise argparse.ArgumentTypeError(f"must be I/N, such as 2/4, not '{text}'")
    count = whole(1)(words[1])
    return whole(1, count)(words[0]), count


def variation(text):
    """An option type: "NAME=VALUE;VALUE" as (name, value, or list of several values): numbers, truths or texts."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE;VALUE, such as batch-size=64;256, not '{text}'")
    found = [value_of(word.strip()) for word in values.split(";")]
    return name.strip().removeprefix("--").replace("-", "_"), found if len(found) > 1 else found[0]


def value_of(text):
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text, text)


def stop(number, frame):
    """End on a signal, such as the one that an allocation sends before its end: what is done is kept."""
    print(f"sweep: stopped early: {GOES_ON}", file=sys.stderr, flush=True)
    sys.exit(CHECKPOINTED)


def options():
    parser = Parser(prog="sweep", usage="%(prog)s [OPTIONS] [FILE.toml | FILE.jsonl]", short=SHORT,
                    description="Measure a scaling study: train for every network and series.")  # fmt: skip
    words, specs = (lambda text: text.split(",")), (lambda text: text.split(";"))  # a spec has commas of its own
    add = parser.add_argument
    add("settings", nargs="?", metavar="FILE.toml", help="settings file; options given here override it. Or a FILE.jsonl that "
        "a sweep wrote: it is shown again, and nothing is run")  # fmt: skip
    add("--out", default="results/sweep.jsonl", help="the runs, a line of JSON each")
    add("--csv", metavar="FILE.csv", help="also write all runs to this file, a row a run")
    add("--export", nargs=2, metavar=("KIND", "FILE"), help="also write them for another tool: extrap, into a folder with a "
        "file of Extra-P for each curve, or hatchet, call trees for Hatchet and Thicket")  # fmt: skip
    add = parser.add_argument_group("what is measured").add_argument
    add("--dataset", metavar="NAME", help="data set, see gridgrad help dataset (default: airfoil)")
    add("--data-dir", metavar="DIR", help="see train --help")
    add("--nets", type=specs, help="networks, separated by semicolons; see gridgrad help net")
    add("--ranks", type=whole_list, metavar="P,P,..", help="numbers of ranks (default: 1,2)")
    add("--schemes", type=words, metavar="S,S,..", help=f"series: some of {', '.join((*SCHEMES, AUTO))}, where auto is what "
        "the planner chooses (default: batch,model,2d)")  # fmt: skip
    add("--grids", type=specs, metavar="GRID;GRID;..", help="more series: grids, separated by semicolons, where * takes "
        "the ranks that are left; see gridgrad help grid")  # fmt: skip
    add("--weak", action="store_true", help="weak scaling: --batch-size counts the samples of one rank, so the global batch "
        "grows with the ranks")  # fmt: skip
    add("--batch-size", type=whole(1), metavar="B", help="samples in the global minibatch of all runs (default: 100)")
    add("--steps", type=whole(1), help="minibatches in a run (default: 60)")
    add("--plan", help="see gridgrad help plan")
    add("--reduction", help="see gridgrad help reduction")
    add("--profile", action="store_true", default=None, help="profile the layers, as plot breakdown needs")
    add("--vary", type=variation, action="append", metavar="NAME=VALUE;VALUE", help="values of any other option of train, or "
        f"of {', '.join(settings.JOB)}, each measured as a series of its own; may be repeated. threads: BLAS threads a rank; "
        "hosts: emulated hosts; rate, delay: those of their network")  # fmt: skip
    add = parser.add_argument_group("how it is compared").add_argument
    add("--metric", choices=settings.METRICS, help="what is compared (default: seconds)")
    add("--baseline", metavar="SERIES", help="also give the ratio to this series on the same network and ranks")
    add("--turns", action="store_true", default=None, help="run all series of a network on each number of ranks in one job, in "
        "which they take turns every few steps")  # fmt: skip
    add("--seeds", type=position_list, metavar="N,N,..", help="the repeats of each point: one with each of these seeds")
    add = parser.add_argument_group("how often").add_argument
    add("--repeats", type=whole(1), help="how often each point is measured at least (default: 6)")
    add("--most-repeats", type=whole(1), metavar="N", help="and at most (default: 12; or --repeats where those are more "
        "than 12, or too few for an interval)")  # fmt: skip
    add("--interval", type=number(above=0), metavar="PERCENT", help="no more repeats once the 95 %% confidence interval of "
        "the median is so narrow: to both sides, of the median (default: 3)")  # fmt: skip
    add("--minutes", type=number(above=0), metavar="M", help="minutes after which no run is started (default: no limit)")
    add("--timeout", type=whole(1), default=TIMEOUT, help="seconds that one run may take")
    add = parser.add_argument_group("files and parts").add_argument
    add("--part", type=part_of, default=(1, 1), metavar="I/N", help="do only every N-th point, from the I-th on, and "
        "write them to FILE-I-of-N instead of FILE (default: all points)")  # fmt: skip
    add("--anew", action="store_true", help="repeat also the runs that --out has, and replace them")
    add("--gather", nargs="+", metavar="FILE", help="start no job, but put the runs of these files together into --out")
    add("--dry-run", action="store_true", help="check everything and list the points with node-hours, but run nothing")
    add = parser.add_argument_group("predictions").add_argument
    add("--machine", metavar="NAME", help="predict the same points for a machine: a file that calibrate wrote, or one of "
        f"{', '.join(machines.names())}")  # fmt: skip
    add("--predict", type=whole_list, metavar="P,P,..", help="numbers of ranks to predict runs for, on --machine or else "
        "cori-haswell; starts no job (default of --schemes: all)")  # fmt: skip
    words = "shape of a sample: features, or HEIGHT,WIDTH,CHANNELS; default: that of --dataset if given, else as published"
    add("--shape", type=whole_list, metavar="SHAPE", help=words)
    add("--outputs", type=whole(1), help="number of classes (default: as for --shape)")
    return parser


SHORT = ("out", "csv", "dataset", "nets", "ranks", "schemes", "grids", "weak", "batch_size", "vary", "metric", "baseline",
         "turns", "dry_run", "machine", "predict")  # fmt: skip # what --help shows without `all`


def study_of(args):
    """The Study of the options. ValueError if they are wrong."""
    given = settings.read(args.settings) if args.settings else {}
    named = (*settings.STUDY, *settings.OF_TRAIN)
    varied = [name for name, _ in args.vary or ()]
    if twice := next((name for name in varied if varied.count(name) > 1), None):
        raise ValueError(f'--vary {twice} is given twice: name all its values in one, such as --vary "{twice}=A;B"')
    given |= {name: value for name in named if (value := getattr(args, name, None)) is not None} | dict(args.vary or ())
    given |= {"seeds": list(args.seeds)} if args.seeds else {}
    if args.nets:
        given.pop("network", None)
    settings.identify(given)
    if args.schemes or args.grids:
        given.pop("series", None)
    if args.weak:
        given["scaling"] = ["weak"]
    if args.predict:
        given["ranks"] = args.predict
        if not {"schemes", "series", "grids", "network"} & given.keys():
            given["schemes"] = [*SCHEMES, AUTO]
    elif (args.shape or args.outputs) and not args.machine:
        raise ValueError("--shape and --outputs are options of predictions: they go with --predict or --machine")
    return Study(given)


def check_job(args, ranks):
    """Raise ValueError for settings that are wrong, or need more ranks than a job has."""
    study = study_of(args)
    if args.predict is None and not args.gather:
        largest = max(study.points, key=lambda point: point.ranks)
        check_enough(largest.ranks, ranks, f"the run on the grid {largest.settings['grid']}")


def write_predictions(study, machine, args, found):
    """Write predicted records to --out, and return words about them. found: measured ones, which stay; then --out is locked."""
    reasons = {}
    with user_input():
        named = any("dataset" in one for one in (study.given, *study.network, *study.series))
        made = list(predicted.records(study, machine, args.shape, args.outputs, named or not args.predict, reasons))
        words = [f"no prediction of {counted(n, 'point')}: {why}" for why, n in Counter(reasons.values()).items()]
        if not made and not found:
            raise ValueError("; ".join(words))
        with runs.locked(args.out) if args.predict else nullcontext():
            if args.predict and any(not record.get("predicted") for record in records.read(args.out)):
                raise ValueError(f"--out {args.out} has runs that were measured: give predictions a file of their own")
            write_text(args.out, records.lines([*found, *made]))
    return "\n".join([*words, f"{counted(len(made), 'prediction')} written to {args.out}"])


def main():
    args = options().parse_args()
    out = args.out
    with user_input():
        if args.export and args.export[0] not in export.KINDS:
            raise ValueError(f"--export {args.export[0]}: there are {' and '.join(export.KINDS)}, each with the name of a FILE")
        if args.csv:
            check_writable(args.csv)
        if args.settings and args.settings.endswith(".jsonl"):
            words = f"{counted(len(records.gather([args.settings])), 'run')} in {args.settings}"
            return finish(args, args.settings, words, with_page=False)
        if args.gather:
            check_writable(out)
            with runs.locked(out):
                words = gather(args.gather, out)
            return finish(args, out, f"{words}; next: gridgrad plot speedup {out}")
        wanted = study_of(args)
        machine = machines.read(args.machine or "cori-haswell")
        check_writable(out)
        wanted.check_options()
        if not args.predict:
            wanted.check()
        if args.dry_run:
            return print(table.estimate(wanted, machine))
    if args.predict:
        following = f"; next: gridgrad plot speedup {out}" if 1 in args.predict else ""  # it draws speedups
        return finish(args, out, f"{write_predictions(wanted, machine, args, [])}{following}")
    if args.part[1] > 1:
        out = args.out = str(Path(out).with_stem(f"{Path(out).stem}-{args.part[0]}-of-{args.part[1]}"))
    signal.signal(signal.SIGUSR1, stop)
    with runs.locked(out):
        try:
            now, count = sweep(wanted, out, args.timeout, args.part, args.anew)
        except KeyboardInterrupt:
            print(f"sweep: {GOES_ON}", file=sys.stderr, flush=True)
            raise
        words = ""
        if args.machine:
            measured = [record for record in records.read(out) if not record.get("predicted")]
            words = f"{write_predictions(wanted, machine, args, measured)}\n"
    earlier = f", {count - now} of which were there already" if now < count else ""
    following = f"plot speedup {out}" if args.part[1] == 1 else "sweep --gather with the files of all parts"
    found = finish(args, out, f"{words}{counted(count, 'run')} written to {out}{earlier}; next: gridgrad {following}")
    if failed := [record["failed"] for record in found if record.get("failed")]:
        raise UserError(f"{counted(len(failed), 'point')} failed, as the table says; the first: {failed[0]}")


def finish(args, out, words, with_page=True):
    """The records of a file of runs, of which it prints the table and some words, and writes the page and what is asked for."""
    with user_input():
        found = records.read(out)
        print(f"{table.text(found)}\n{words}")
        if args.csv:
            write_text(args.csv, tidy.text(found))
            print(f"{args.csv} written")
        if args.export:
            print(export.KINDS[args.export[0]](args.export[1], found))
        if found and with_page and args.part[1] == 1:
            from gridgrad.experiments.scaling import page  # which takes longer to import than all else

            path = Path(out).with_suffix(".html")
            write_text(path, page.render(found, f"Scaling study {path.stem}"))
            print(f"{path} written: a page with figures and tables")
    return found


if __name__ == "__main__":
    run_launcher(main)
