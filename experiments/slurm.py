"""Write a job script for Slurm, PBS or a plain mpirun, with comments, to be edited and submitted.

    gridgrad slurm --nodes 4 --ranks-per-node 16 --out job.sh -- train --dataset mnist --grid batch=64
    gridgrad slurm --kind array --parts 8 --out array.sh -- sweep experiments/settings/speedup.toml
    gridgrad slurm --kind requeue --warn 300 --out long.sh -- train --epochs 500 --checkpoint checkpoints
    gridgrad slurm --site lumi --nodes 2 --ranks-per-node 128 --account project_1 --dry-run -- train --grid batch=256

The program's options are checked before anything is written. A requeued job saves a checkpoint when its time limit comes near,
puts itself back into the queue, and goes on from there. On a machine without a queue, `supervise` starts the training again.
"""

import argparse
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from mpi4py import MPI

from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.programs import as_module, check_job, starts_jobs
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.launching.start_ranks import find_mpiexec
from gridgrad.experiments.parts import slurm_sites, slurm_table
from gridgrad.experiments.parts.slurm_script import BatchJob, check_syntax, script
from gridgrad.experiments.parts.slurm_sites import MEMORY, MEMORY_WORDS, PLAIN_WORDS, SYSTEMS, Site, is_directive, is_plain
from gridgrad.nn.files.whole_files import resolved
from gridgrad.parallel.grid.devices import checked_names
from gridgrad.parallel.job.run import run_launcher

KINDS = "single", "array", "requeue"
GO_ON = "train", "sweep", "supervise"  # programs that save what they need to go on
LAUNCHERS = "pmi2", "pmix", "srun", "mpiexec"
OF_SITES = "partition", "account", "qos", "constraint", "mem", "reservation"  # options that a site may have a value for
OF_QUEUES = "time", *OF_SITES, "gpus", "directive"  # options of batch systems
OF_SLURM = {  # options that only Slurm has, and what to do under PBS
    "qos": "leave it out, or name a queue of PBS with --partition",
    "reservation": "a reservation of PBS is a queue, so name it with --partition",
}
OF_KINDS = {"warn": ("requeue", 300), "restarts": ("requeue", 20), "parts": ("array", 4)}  # option: its kind and default
HOUR = 3600


def time_limit(text):
    """An option type: hours:minutes:seconds, or whole minutes, in seconds."""
    if re.fullmatch(r"\d{1,9}", text):
        seconds = int(text) * 60
    elif found := re.fullmatch(r"(\d{1,7}):([0-5]?\d):([0-5]?\d)", text):
        hours, minutes, seconds = map(int, found.groups())
        seconds += hours * HOUR + minutes * 60
    else:
        raise argparse.ArgumentTypeError(f"must be hours:minutes:seconds or whole minutes, such as 4:00:00 or 90, not '{text}'")
    if seconds < 60:
        raise argparse.ArgumentTypeError(f"must be at least a minute, not '{text}'")
    return seconds


def text_that(accepts, words):
    """An option type: a text of some kind. words: which, for messages."""

    def parse(text):
        if not accepts(text):
            raise argparse.ArgumentTypeError(f"must be {words}, not {text!r}")
        return text

    return parse


plain = text_that(is_plain, PLAIN_WORDS)
memory = text_that(MEMORY.fullmatch, MEMORY_WORDS)
directive = text_that(is_directive, "one option of the batch system, such as --exclusive")


def line(text):
    """An option type: a line of a script."""
    if not text.isprintable():
        raise argparse.ArgumentTypeError(f"must be one line, not {text!r}: give the option once for each line")
    return text


class Options(Parser):
    """A Parser for which what stands behind --directive is its value, although that begins with a dash itself."""

    def parse_known_args(self, args=None, namespace=None):
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)  # behind it stand the options of the program
        own = iter(words[:end])
        joined = [f"{word}={next(own, '')}" if word == "--directive" else word for word in own]
        return super().parse_known_args([*joined, *words[end:]], namespace)

    def error(self, message):
        lost = "unrecognized arguments" in message and "--" not in sys.argv
        super().error(f"{message}: put -- in front of the program, behind slurm's own options" if lost else message)


SHORT = (
    "site", "system", "kind", "out", "dry_run", "nodes", "ranks_per_node", "cores", "time", "partition", "account", "gpus",
    "parts",
)  # fmt: skip # what --help shows without `all`


def options():
    parser = Options(prog="slurm", description="Write a job script for Slurm, PBS or a plain mpirun.",
                    usage="%(prog)s [OPTIONS] -- PROGRAM [ITS OPTIONS]", short=SHORT)  # fmt: skip
    add = parser.add_argument
    add(
        "program",
        nargs="+",
        metavar="PROGRAM",
        help="what is run, and its options, such as train --dataset mnist; put -- in front",
    )
    add("--site", metavar="NAME", help="what is known of a computing centre: its launcher, modules, partition, cores and GPUs "
        f"of a node; one of {', '.join(slurm_sites.names())}, or a file of your own such as mine.toml (see docs/jobs.md). What "
        "the other options say comes first")  # fmt: skip
    add("--system", choices=SYSTEMS, help="who starts the job (default: that of the site, else slurm)")
    add("--kind", choices=KINDS, default="single", help="single: one job; array: a sweep, divided among the tasks of an array; "
        "requeue: a job that saves what it needs, goes back into the queue and goes on, until it is done")  # fmt: skip
    add("--out", metavar="FILE", help="the script (default: print it)")
    add("--dry-run", action="store_true", help="print a table of what the job asks for and how many node-hours it may use, and "
        "write nothing")  # fmt: skip
    add("--folder", metavar="DIR", help="folder in which the job runs (default: that of the site, else this one)")
    add("--name", type=plain, help="name of the job and of its log (default: that of the program)")
    add("--nodes", type=whole(1), default=1, help="number of nodes")
    add("--ranks-per-node", type=whole(1), default=1, metavar="N", help="ranks of a node")
    add("--cores", type=whole(1), default=1, metavar="N", help="cores of a rank, on each of which runs one of its BLAS threads")
    add(
        "--time", type=time_limit, metavar="LIMIT", help="time limit: hours:minutes:seconds or whole minutes (default: 1:00:00)"
    )
    add("--partition", type=plain, metavar="NAME", help="partition, or queue of PBS (default: the system's)")
    add("--account", type=plain, metavar="NAME", help="account, or project, that is charged (default: the user's)")
    add("--qos", type=plain, metavar="NAME", help="quality of service, of Slurm only (default: the user's)")
    add("--gpus", type=whole(1), metavar="N", help="GPUs of a node (default: with --device gpu one for each rank that uses "
        "one, at most those that the site has; with --device hybrid those that the site has; else none)")  # fmt: skip
    add("--constraint", type=plain, metavar="NAME", help="a feature that nodes must have; for PBS a resource, such as "
        "system=polaris")  # fmt: skip
    add("--mem", type=memory, metavar="SIZE", help=f"memory of a node: {MEMORY_WORDS} (default: the system's)")
    add("--reservation", type=plain, metavar="NAME", help="a reservation, of Slurm only: one of PBS is a --partition")
    add("--directive", type=directive, action="append", metavar="OPTION", help="a further option of sbatch or "
        "qsub, such as --exclusive; may be given several times")  # fmt: skip
    add("--setup", type=line, action="append", metavar="LINE", help="a line to run first, such as "
        "'module load gcc'; may be given several times")  # fmt: skip
    add("--mpi", choices=LAUNCHERS, help="how ranks are started: by srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI); by "
        "srun alone, where the system has set it up for its own MPI library; or by mpiexec inside the allocation (default: "
        "under Slurm pmi2 or pmix, as the MPI library of this Python needs; elsewhere, and for programs that start jobs "
        "themselves, mpiexec)")  # fmt: skip
    add("--library", choices=("mpich", "openmpi"), help="the MPI library (default: that of this Python)")
    add("--warn", type=whole(1), metavar="SECONDS", help="with requeue: how long before the time limit a job saves what it "
        f"needs; long enough for a step and a checkpoint (default: {OF_KINDS['warn'][1]})")  # fmt: skip
    add("--restarts", type=whole(0), metavar="N", help="with requeue: how often the job starts again at most; on plain mpirun, "
        f"how often in a row without a newer checkpoint (default: {OF_KINDS['restarts'][1]})")  # fmt: skip
    add("--parts", type=whole(1), metavar="N", help=f"with array: tasks of the array (default: {OF_KINDS['parts'][1]})")
    return parser


def option_of(arguments, name):
    """What stands behind an option in the arguments of a program, the last time that it is there; or None."""
    found = None
    for i, word in enumerate(arguments):
        if word == name and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def site_of(args):
    """(the Site, with what the options say in its place; GPUs of a node). ValueError if they do not fit together."""
    site = slurm_sites.read(args.site) if args.site else Site(system=args.system or "slurm")
    if args.system not in (None, site.system):
        raise ValueError(f"--system {args.system} is not that of {args.site}, which is {site.system}: leave it out")
    if site.launcher and (given := [name for name in ("mpi", "library") if getattr(args, name)]):
        raise ValueError(f"--{given[0]}: the site says how ranks are started: leave it out, or give --site a file of your own")
    if given := [name for name in OF_QUEUES if getattr(args, name) and site.system == "mpirun"]:
        raise ValueError(f"--{given[0]} is for batch systems, and --system mpirun is none: leave it out")
    if site.system == "pbs":
        for name, advice in OF_SLURM.items():
            if getattr(args, name):
                raise ValueError(f"--{name} is Slurm's: {advice}")
        if args.mem == "0":
            raise ValueError("--mem 0 is Slurm's: leave it out, or say how much")
    if args.site is None and site.system != "slurm":
        site = replace(site, directives=())  # those are sbatch's
    wanted = gpus_wanted(args, site.gpu.get("gpus", site.gpus), site.system)
    if wanted and site.gpu:
        site = replace(site, **site.gpu | {"variables": site.variables | site.gpu.get("variables", {})})
    if wanted and args.site and site.gpus < wanted:
        raise ValueError(f"{wanted} GPUs of each node are wanted, but a node of {site.name} has "
                         f"{site.gpus or 'none for gridgrad'}: ask for fewer, or take another --device")  # fmt: skip
    if site.cores and (needed := args.ranks_per_node * args.cores) > site.cores:
        raise ValueError(f"a node of {site.name} has {site.cores} cores, and {args.ranks_per_node} ranks with --cores "
                         f"{args.cores} need {needed}: ask for fewer ranks of a node, and for more nodes")  # fmt: skip
    given = {name: value for name in OF_SITES if (value := getattr(args, name))}
    more = {"directives": (*site.directives, *(args.directive or ())), "setup": (*site.setup, *(args.setup or ()))}
    return replace(site, **given, **more), wanted


def gpus_wanted(args, there, system):
    """GPUs of a node that the job asks for. there: how many a node has, None if that is not known.

    ValueError if --device does not say how many, and nothing else does.
    """
    each, device = args.ranks_per_node, option_of(args.program[1:], "--device") or "cpu"
    names = checked_names(device, args.nodes * each)
    if args.gpus or device in ("cpu", "auto"):  # auto takes what is there
        return args.gpus or 0
    if device == "hybrid":
        if not there and system != "mpirun":
            raise ValueError("--device hybrid uses the GPUs of a node: say how many with --gpus, or a --site that has some")
        return there or 0
    whole_lists, rest = divmod(each, len(names))  # the list is repeated; what is left over differs from node to node
    firsts = {node * each % len(names) for node in range(min(args.nodes, len(names)))}
    most = max([*names, *names][first : first + rest].count("gpu") for first in firsts)
    used = whole_lists * names.count("gpu") + most
    return min(used, there) if there else used


def job_of(args):
    """The BatchJob of these options. ValueError if they do not fit together, or the program would refuse its own."""
    for option, (kind, default) in OF_KINDS.items():
        if getattr(args, option) is None:
            setattr(args, option, default)
        elif args.kind != kind:
            raise ValueError(f"--{option} goes with --kind {kind}: leave it out")
    name, *arguments = args.program
    gather = ""
    if not all(word.isprintable() for word in (*args.program, os.getcwd(), args.folder or "", args.out or "")):
        raise ValueError("the program's options, the folder and --out must each be one line of letters that can be printed")
    serial = starts_jobs(args.program)  # which also knows whether there is such a program
    site, gpus = site_of(args)
    queue, seconds = site.system != "mpirun", args.time or HOUR
    if args.mpi not in (None, "mpiexec") and site.system != "slurm":
        raise ValueError(f"--mpi {args.mpi} is for srun, which --system {site.system} does not have: use --mpi mpiexec")
    if args.kind == "array":
        if name != "sweep" or {"--part", "--gather", "--predict"} & {word.partition("=")[0] for word in arguments}:
            raise ValueError("--kind array divides a sweep among jobs: give -- sweep and what is to run, without --part")
        gather = gather_command(arguments, args.parts, site.python)
    elif args.kind == "requeue":
        if name not in GO_ON:
            raise ValueError(f"{name} can not go on where it stopped: --kind requeue is for {', '.join(GO_ON)}")
        if queue and args.warn >= seconds:
            raise ValueError(f"--warn {args.warn} s is not shorter than --time, {seconds} s: the job would end as it begins")
        if site.system == "pbs" and args.out is None:
            raise ValueError("a job of PBS goes on by submitting its script again: name it with --out")
        if name == "train":
            arguments += resume_words(arguments)
    ranks = args.nodes * args.ranks_per_node
    check_job([name, *arguments], ranks)
    if args.kind == "requeue" and not queue:
        name, arguments = "supervise", supervised(name, arguments, args)
        serial = True
    library = args.library or ("openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich")
    fitting = "mpiexec" if serial or site.system != "slurm" else {"openmpi": "pmix", "mpich": "pmi2"}[library]
    if site.launcher:
        fitting = "srun" if site.launcher[0] == "srun" else "mpiexec"
    folder = args.folder or (None if site.folder else os.getcwd())
    script = args.out and str(resolved(args.out))
    if not (script or "").isprintable():
        raise ValueError(f"--out {script!r} leads to a name of several lines: give another one")
    check = [] if name == "check" else python_words("check", ["--ranks", str(ranks)], site.python)
    return BatchJob(
        site, args.kind, args.name or name, args.nodes, args.ranks_per_node, args.cores, gpus, seconds, args.warn,
        args.mpi or fitting, [] if site.launcher else find_mpiexec(), library == "openmpi",
        python_words(name, arguments, site.python), check, serial, folder, args.parts, args.restarts,
        script, gather,
    )  # fmt: skip


def python_words(name, arguments, python=None):
    """The words that run a program. python: of the site; None for this Python."""
    return [python or sys.executable, *as_module(name), *arguments]


def gather_command(arguments, parts, python=None):
    """The command that puts the files of all parts of a sweep together."""
    out = Path(option_of(arguments, "--out") or "results/sweep.jsonl")
    files = f"{shlex.quote(str(out.with_suffix('')))}-*-of-{parts}{shlex.quote(out.suffix) if out.suffix else ''}"
    return f"{shlex.join(python_words('sweep', ['--out', str(out), '--gather'], python))} {files}"


def resume_words(arguments):
    """The options that let `train` go on from its own checkpoints, as far as its arguments lack them."""
    folder, resumed = option_of(arguments, "--checkpoint"), option_of(arguments, "--resume")
    if folder is None:
        raise ValueError("a job that is requeued goes on from a checkpoint: add --checkpoint DIR behind train")
    if resumed not in (None, folder):
        raise ValueError(f"--resume {resumed} would always go on from there: leave it out, to go on from --checkpoint {folder}")
    return [] if resumed else ["--resume", folder]


def supervised(name, arguments, args):
    """The options of `supervise` that start this training, and start it again. ValueError for other programs than `train`."""
    if name != "train":
        raise ValueError(f"{name} goes on by itself when it is started again: use --kind single")
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    known.add_argument("--grid")  # it may change from start to start, so that it is an option of supervise
    known.add_argument("--resume")  # supervise adds it
    taken, rest = known.parse_known_args(arguments)
    grid = ["--grid", taken.grid] if taken.grid else []
    return ["--ranks", str(args.nodes * args.ranks_per_node), *grid, "--retries", str(args.restarts), "--", "train", *rest]


def main():
    args = options().parse_args()
    with user_input():
        job = job_of(args)
        text = script(job)
        check_syntax(text)
        if args.out and not args.dry_run:
            check_writable(args.out)
            write_text(args.out, text, errors="surrogateescape")  # variables and folders may have names that are not UTF-8
    if args.dry_run:
        where = f"write {args.out}" if args.out else "print a script"
        print(f"{slurm_table.table(job)}\n\nThis would {where}, {text.count(chr(10))} lines, to start with "
              f"{SYSTEMS[job.system]}. Nothing was written.")  # fmt: skip
    else:
        if args.site and job.site.account and not args.account:
            print(
                f"slurm: note: the account is {job.site.account}, of the site's file: name yours with --account",
                file=sys.stderr,
            )
        print(f"{args.out} written: look through it, then {SYSTEMS[job.system]} {args.out}" if args.out else text.rstrip())


if __name__ == "__main__":
    run_launcher(main)
