"""Write a job script for Slurm, PBS or a plain mpirun, with comments, to be edited and submitted.

    gridgrad slurm --nodes 4 --ranks-per-node 16 --out job.sh train --dataset mnist --grid batch=64
    gridgrad slurm --nodes 2 --ranks-per-node 16 --out job.sh mine.py --epochs 3
    gridgrad slurm --kind array --parts 8 --out array.sh sweep experiments/settings/speedup.toml
    gridgrad slurm --kind requeue --warn 300 --out long.sh train --epochs 500 --checkpoint checkpoints
    gridgrad slurm --site lumi --nodes 2 --ranks-per-node 128 --account project_1 --dry-run train --grid batch=256

The program is one of gridgrad, whose options are checked before anything is written, a file of your own, or a module. A job
that is requeued saves a checkpoint when its time limit comes near, puts itself back into the queue, and goes on from there.
"""

import argparse
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from mpi4py import MPI

from gridgrad.experiments.common.options import Parser, among, check_writable, user_input, whole
from gridgrad.experiments.common.programs import check_job, module, parser_of, starts_jobs, words_of
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.launching.start_ranks import find_mpiexec
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.parts.slurm_script import DIRECTIVE, HOUR, LINE, MEMORY, PLAIN, SYSTEMS, BatchJob, Site
from gridgrad.nn.files.whole_files import resolved
from gridgrad.parallel.grid.devices import checked_names
from gridgrad.parallel.job.run import run_launcher

KINDS = "single", "array", "requeue"
GO_ON = "train", "sweep", "supervise"  # programs of gridgrad that save what they need to go on
LAUNCHERS = "pmi2", "pmix", "srun", "mpiexec"
OF_SITES = "partition", "account", "qos", "constraint", "mem"  # options that a site may have a value for
OF_QUEUES = "time", *OF_SITES, "gpus", "directive"  # options of batch systems
SHORT = ("site", "system", "kind", "out", "dry_run", "nodes", "ranks_per_node", "cores", "time", "partition", "account", "gpus",
         "parts")  # fmt: skip # what --help shows without `all`
OF_KINDS = {"warn": ("requeue", 300), "restarts": ("requeue", 20), "parts": ("array", 4)}  # option: its kind and default
CLOCK = re.compile(r"(\d{1,7}):([0-5]?\d):([0-5]?\d)", re.ASCII)  # hours, minutes, seconds
DAYS = re.compile(r"(\d{1,5})-([01]?\d|2[0-3])(?::([0-5]?\d))?(?::([0-5]?\d))?", re.ASCII)


def time_limit(text):
    """An option type: hours:minutes:seconds, the same behind days-, or whole minutes; in seconds."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        seconds = int(text) * 60
    elif found := CLOCK.fullmatch(text) or DAYS.fullmatch(text):
        *days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        seconds += 60 * minutes + HOUR * (hours + 24 * sum(days))
    else:
        raise argparse.ArgumentTypeError("must be hours:minutes:seconds, days-hours:minutes:seconds or whole minutes, such as "
                                         f"4:00:00, 1-12:00:00 or 90, not '{text}'")  # fmt: skip
    if seconds < 60:
        raise argparse.ArgumentTypeError(f"must be at least a minute, not '{text}'")
    return seconds


def of(kind):
    """An option type: a text of a Kind."""

    def parse(text):
        if not kind.accepts(text):
            raise argparse.ArgumentTypeError(f"must be {kind.words}, not {text!r}")
        return text

    return parse


class Options(Parser):
    """A Parser of options that end where a program begins, which has options of its own; -- in front of it may be left out."""

    def parse_known_args(self, args=None, namespace=None):
        words, own = list(sys.argv[1:] if args is None else args), []
        while words and words[0].startswith("-") and words[0] != "--":
            word = words.pop(0)
            action = self._option_string_actions.get(word)
            is_value = words and words[0] != "--" and (word == "--directive" or not words[0].startswith("-"))
            own.append(f"{word}={words.pop(0)}" if action and action.nargs != 0 and is_value else word)
        found, rest = super().parse_known_args(own, namespace)
        found.program = words[1:] if words[:1] == ["--"] else words
        return found, rest


def options():
    parser = Options(prog="slurm", description="Write a job script for Slurm, PBS or a plain mpirun.",
                    usage="%(prog)s [OPTIONS] PROGRAM [ITS OPTIONS]", short=SHORT)  # fmt: skip
    add = parser.add_argument
    add("program", nargs="*", metavar="PROGRAM", help="what is run, and its options: a program of gridgrad, such as train "
        "--dataset mnist, a file, such as mine.py, or a module")  # fmt: skip
    add("--site", metavar="NAME", help="a computing centre whose launcher, modules, cores and GPUs are known, one of "
        f"{', '.join(slurm_script.site_names())}, or a file such as mine.toml; other options come first")  # fmt: skip
    add("--system", choices=SYSTEMS, help="who starts the job (default: that of the site, else slurm)")
    add("--kind", choices=KINDS, default="single", help="array: a sweep, divided among the tasks of an array; requeue: a job "
        "that saves what it needs, goes back into the queue and goes on, until it is done")  # fmt: skip
    add("--out", metavar="FILE", help="the script (default: print it)")
    add("--dry-run", action="store_true", help="print what the job asks for and how many node-hours it may use, write nothing")
    add("--folder", metavar="DIR", help="folder in which the job runs (default: that of the site, else this one)")
    add("--name", type=of(PLAIN), help="name of the job and of its log (default: that of the program)")
    add("--nodes", type=whole(1), default=1, help="number of nodes")
    add("--ranks-per-node", type=whole(1), default=1, metavar="N", help="ranks of a node")
    add("--cores", type=whole(1), default=1, metavar="N", help="cores of a rank, on each of which runs one of its BLAS threads")
    add("--time", type=time_limit, metavar="LIMIT", help="hours:minutes:seconds, days-hours:minutes:seconds or whole minutes "
        "(default: 1:00:00)")  # fmt: skip
    add("--partition", type=of(PLAIN), metavar="NAME", help="partition, or queue of PBS (default: the system's)")
    add("--account", type=of(PLAIN), metavar="NAME", help="account that is charged (default: the user's)")
    add("--qos", type=of(PLAIN), metavar="NAME", help="quality of service, of Slurm only (default: the user's)")
    add("--gpus", type=whole(1), metavar="N", help="GPUs of a node (default: one for each rank that train or a sweep gives one "
        "by --device, at most those of the site; with hybrid those of the site)")  # fmt: skip
    add("--constraint", type=of(PLAIN), metavar="NAME", help="a feature that nodes must have, of PBS such as system=polaris")
    add("--mem", type=of(MEMORY), metavar="SIZE", help=f"memory of a node: {MEMORY.words} (default: the system's)")
    add("--directive", type=of(DIRECTIVE), action="append", metavar="OPTION", help="an option of sbatch or qsub, such as "
        "--exclusive; may be given several times")  # fmt: skip
    add("--setup", type=of(LINE), action="append", metavar="LINE", help="a line to run first, such as 'module load gcc'; may "
        "be given several times")  # fmt: skip
    add("--mpi", choices=LAUNCHERS, help="how ranks are started: srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI), srun alone, "
        "or mpiexec (default: what fits the library under Slurm, else, and for programs that start jobs, mpiexec)")  # fmt: skip
    add("--library", choices=("mpich", "openmpi"), help="the MPI library (default: that of this Python)")
    add("--warn", type=whole(1), metavar="SECONDS", help="with requeue: how long before the time limit a job saves what it "
        f"needs, enough for a step and a checkpoint (default: {OF_KINDS['warn'][1]})")  # fmt: skip
    add("--restarts", type=whole(0), metavar="N", help="with requeue: starts again at most; on plain mpirun in a row without a "
        f"newer checkpoint (default: {OF_KINDS['restarts'][1]})")  # fmt: skip
    add("--parts", type=whole(1), metavar="N", help=f"with array: tasks of the array (default: {OF_KINDS['parts'][1]})")
    return parser


def site_of(args):
    """The Site that the options name. ValueError if others do not suit it."""
    site = slurm_script.read_site(args.site) if args.site else Site(system=args.system or "slurm")
    if args.system not in (None, site.system):
        raise ValueError(f"--system {args.system} is not that of {args.site}, which is {site.system}: leave it out")
    if site.launcher and (given := [name for name in ("mpi", "library") if getattr(args, name)]):
        raise ValueError(f"--{given[0]}: the site says how ranks are started: leave it out, or give --site a file of your own")
    if given := [name for name in OF_QUEUES if getattr(args, name) and site.system == "mpirun"]:
        raise ValueError(f"--{given[0]} is for batch systems, and --system mpirun is none: leave it out")
    if site.system == "pbs" and (args.qos or args.mem == "0"):
        raise ValueError("--qos is Slurm's: leave it out, or name a queue of PBS with --partition" if args.qos else
                         "--mem 0 is Slurm's: leave it out, or say how much")  # fmt: skip
    if args.site is None and site.system != "slurm":
        site = replace(site, directives=())  # those are sbatch's
    return site


def completed(site, args, gpus):
    """A Site with what the options say in its place. gpus: that are wanted of a node. ValueError if it has not that much."""
    if gpus and site.gpu:
        site = replace(site, **site.gpu | {"variables": site.variables | site.gpu.get("variables", {})})
    if gpus and args.site and site.gpus < gpus:
        raise ValueError(f"{gpus} GPUs of each node are wanted, but a node of {site.name} has "
                         f"{site.gpus or 'none for gridgrad'}: ask for fewer, or take another --device")  # fmt: skip
    if site.cores and (needed := args.ranks_per_node * args.cores) > site.cores:
        raise ValueError(f"a node of {site.name} has {site.cores} cores, and {args.ranks_per_node} ranks with --cores "
                         f"{args.cores} need {needed}: ask for fewer ranks of a node, and for more nodes")  # fmt: skip
    given = {name: value for name in OF_SITES if (value := getattr(args, name))}
    more = {"directives": (*site.directives, *(args.directive or ())), "setup": (*site.setup, *(args.setup or ()))}
    return replace(site, **given, **more)


def gpus_wanted(args, program, site):
    """GPUs of a node that the job asks for. program: the name of one of gridgrad, and its options; [] for another one."""
    if args.gpus or not program:
        return args.gpus or 0
    given, _ = among([word for word in program[1:] if word != "--"], "device")  # supervise has it behind --
    runs = {(point.settings.get("device"), point.ranks) for point in points_of(program)}
    runs = runs or {(given.device, args.nodes * args.ranks_per_node)}
    return max(gpus_used(device or "cpu", ranks, args.ranks_per_node, site) for device, ranks in runs)


def points_of(program):
    """The points of a sweep, none of another program. program: its name and its options."""
    return module("sweep").study_of(parser_of("sweep").parse_args(program[1:])).points if program[:1] == ["sweep"] else ()


def gpus_used(device, ranks, each, site):
    """The GPUs that a job uses of a node with `each` of its ranks: at most those that a node of the site is known to have."""
    names, there = checked_names(device, ranks), site.gpu.get("gpus", site.gpus)
    if device == "hybrid":
        if not there and site.system != "mpirun":
            raise ValueError("--device hybrid uses the GPUs of a node: say how many with --gpus, or a --site that has some")
        return there or 0
    if "gpu" not in names:  # auto takes what is there
        return 0
    nodes = range(0, min(ranks, each * len(names)), each)  # the others repeat these
    used = max(sum(names[rank % len(names)] == "gpu" for rank in range(first, min(first + each, ranks))) for first in nodes)
    return min(used, there) if there else used


def check_kind(args, name, arguments, ours, site):
    """Raise ValueError unless a program, with these arguments, can be a job of the kind that is asked for."""
    if args.kind == "array":
        if name != "sweep" or {"--part", "--gather", "--predict"} & {word.partition("=")[0] for word in arguments}:
            raise ValueError("--kind array divides a sweep among jobs: name sweep and what is to run, without --part")
    elif args.kind == "requeue":
        if ours and name not in GO_ON:
            raise ValueError(f"{name} can not go on where it stopped: --kind requeue is for {', '.join(GO_ON)}, and your own")
        if site.system == "mpirun" and name != "train":
            raise ValueError(f"without a queue only train is started again, not {name}: use --kind single, and start it again")
        if site.system != "mpirun" and args.warn >= (args.time or HOUR):
            raise ValueError(f"--warn {args.warn} s is not shorter than --time: the job would end as it begins")
        if site.system == "pbs" and args.out is None:
            raise ValueError("a job of PBS goes on by submitting its script again: name it with --out")


def job_of(args):
    """The BatchJob of these options. ValueError if they do not fit together, or the program would refuse its own."""
    for option, (kind, default) in OF_KINDS.items():
        if getattr(args, option) is None:
            setattr(args, option, default)
        elif args.kind != kind:
            raise ValueError(f"--{option} goes with --kind {kind}: leave it out")
    if not args.program:
        raise ValueError("name the program that is run, and its options, such as: slurm --nodes 2 train --grid batch=2")
    if not all(word.isprintable() for word in (*args.program, os.getcwd(), args.folder or "", args.out or "")):
        raise ValueError("the program's options, the folder and --out must each be one line of letters that can be printed")
    path = args.out and str(resolved(args.out))
    if not (path or "").isprintable():
        raise ValueError(f"--out {path!r} leads to a name of several lines: give another one")
    name, *arguments = args.program
    words, ranks = words_of(name), args.nodes * args.ranks_per_node
    ours, serial, title = words[:2] == ["-m", "gridgrad"], False, Path(name).stem if name.endswith(".py") else name
    if ours:
        name = title = words[2]
        serial = starts_jobs([name, *arguments])  # which also knows whether there is such a study
    site = site_of(args)
    check_kind(args, name, arguments, ours, site)
    if ours and args.kind == "requeue" and name == "train":
        given, _ = among(arguments, "checkpoint", "resume")
        if given.checkpoint is None:
            raise ValueError("a job that is requeued goes on from a checkpoint: add --checkpoint DIR behind train")
        if given.resume not in (None, given.checkpoint):
            raise ValueError(f"--resume {given.resume} would always go on from there: leave it out, to go on from --checkpoint "
                             f"{given.checkpoint}")  # fmt: skip
        arguments += [] if given.resume else ["--resume", given.checkpoint]
    if ours:
        check_job([name, *arguments], ranks)
    gpus = gpus_wanted(args, [name, *arguments] if ours else [], site)
    site = completed(site, args, gpus)
    if args.mpi not in (None, "mpiexec") and site.system != "slurm":
        raise ValueError(f"--mpi {args.mpi} is for srun, which --system {site.system} does not have: use --mpi mpiexec")
    folder, python, gather = args.folder or (None if site.folder else os.getcwd()), site.python or sys.executable, ""
    if args.kind == "array":  # what puts the files of all parts together
        out = Path(among(arguments, "out")[0].out or "results/sweep.jsonl")
        files = f"{shlex.quote(str(out.with_suffix('')))}-*-of-{args.parts}{shlex.quote(out.suffix) if out.suffix else ''}"
        gather = f"{shlex.join([python, *words_of('sweep'), '--out', str(out), '--gather'])} {files}"
    if args.kind == "requeue" and site.system == "mpirun":
        words, arguments, serial = words_of("supervise"), supervised(arguments, args), True
    library = args.library or ("openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich")
    fitting = "mpiexec" if serial or site.system != "slurm" else {"openmpi": "pmix", "mpich": "pmi2"}[library]
    if site.launcher:
        fitting = "srun" if site.launcher[0] == "srun" else "mpiexec"
    if words[-1].endswith(".py") and folder != os.getcwd():
        words[-1] = str(Path(name).absolute())  # the job runs elsewhere
    check = [] if name == "check" else [python, *words_of("check"), "--ranks", str(ranks)]
    return BatchJob(
        site, args.kind, args.name or (title if PLAIN.accepts(title) else "job"), args.nodes, args.ranks_per_node,
        args.cores, gpus, args.time or HOUR, args.warn, args.mpi or fitting, [] if site.launcher else find_mpiexec(),
        library == "openmpi", [python, *words, *arguments], check, serial, folder, args.parts, args.restarts, path, gather,
    )  # fmt: skip


def supervised(arguments, args):
    """The options of `supervise` that start `train` with these arguments, and start it again."""
    given, rest = among(arguments, "grid", "resume")  # both are options of supervise or added by it
    grid = ["--grid", given.grid] if given.grid else []
    return ["--ranks", str(args.nodes * args.ranks_per_node), *grid, "--retries", str(args.restarts), "--", "train", *rest]


def main():
    args = options().parse_args()
    with user_input():
        job = job_of(args)
        text = slurm_script.script(job)
        slurm_script.check_syntax(text)
        if args.out and not args.dry_run:
            check_writable(args.out)
            write_text(args.out, text, errors="surrogateescape")  # variables and folders may have names that are not UTF-8
    note = lambda words: print(f"slurm: note: {words}", file=sys.stderr)  # noqa: E731
    most = max((point.ranks for point in points_of(args.program)), default=job.ranks)
    if 2 * most <= job.ranks:
        note(f"the largest run has {counted(most, 'rank')}, and the job asks for {job.ranks}: fewer would do")
    if args.dry_run:
        where = f"write {args.out}" if args.out else "print a script"
        print(f"{slurm_script.table(job)}\n\nThis would {where}, {text.count(chr(10))} lines, to start with "
              f"{SYSTEMS[job.system]}. Nothing was written.")  # fmt: skip
        return
    if args.site and job.site.account and not args.account:
        note(f"the account is {job.site.account}, of the site's file: name yours with --account")
    print(f"{args.out} written: look through it, then {SYSTEMS[job.system]} {args.out}" if args.out else text.rstrip())


if __name__ == "__main__":
    run_launcher(main)
