"""Write a job script for Slurm, PBS or a plain mpirun, with comments, to be edited and submitted.

    gridgrad slurm --nodes 4 --ranks-per-node 16 --out job.sh -- train --dataset mnist --grid batch=64
    gridgrad slurm --kind array --parts 8 --out array.sh -- sweep experiments/settings/speedup.toml
    gridgrad slurm --kind requeue --warn 300 --out long.sh -- train --epochs 500 --checkpoint checkpoints

A requeued job saves a checkpoint when its time limit comes near, puts itself back into the queue, and goes on from there. On
a machine without a queue, `supervise` starts the training again.
"""

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from mpi4py import MPI

from gridgrad.experiments.common.job_scripts import SYSTEMS, Job, check_syntax, script
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.programs import as_module, starts_jobs
from gridgrad.experiments.common.report import write_text
from gridgrad.parallel.job.launch import find_mpiexec
from gridgrad.parallel.job.run import run_launcher

KINDS = "single", "array", "requeue"
GO_ON = "train", "sweep", "supervise"  # programs that save what they need to go on
LAUNCHERS = "pmi2", "pmix", "srun", "mpiexec"
OF_QUEUES = "time", "partition", "account", "qos"  # options of batch systems
HOUR = 3600


def time_limit(text):
    """An option type: hours:minutes:seconds, or whole minutes, in seconds."""
    if re.fullmatch(r"\d+", text):
        seconds = int(text) * 60
    elif found := re.fullmatch(r"(\d+):([0-5]?\d):([0-5]?\d)", text):
        hours, minutes, seconds = map(int, found.groups())
        seconds += hours * HOUR + minutes * 60
    else:
        raise argparse.ArgumentTypeError(f"must be hours:minutes:seconds or whole minutes, such as 4:00:00 or 90, not '{text}'")
    if seconds < 60:
        raise argparse.ArgumentTypeError(f"must be at least a minute, not '{text}'")
    return seconds


def plain(text):
    """An option type: a name in which nothing means anything to a shell or a batch system."""
    if not re.fullmatch(r"[\w.+@:,%=/-]+", text, re.ASCII) or text.startswith("-"):
        raise argparse.ArgumentTypeError(f"must be letters, digits and any of . _ + @ : , % = / -, not '{text}'")
    return text


def line(text):
    """An option type: a line of a script."""
    if not text.isprintable():
        raise argparse.ArgumentTypeError(f"must be one line, not {text!r}: give the option once for each line")
    return text


def options():
    parser = Parser(prog="slurm", description="Write a job script for Slurm, PBS or a plain mpirun.",
                    usage="%(prog)s [OPTIONS] -- PROGRAM [ITS OPTIONS]")  # fmt: skip
    add = parser.add_argument
    add(
        "program",
        nargs="+",
        metavar="PROGRAM",
        help="what is run, and its options, such as train --dataset mnist; put -- in front",
    )
    add("--system", choices=SYSTEMS, default="slurm", help="who starts the job")
    add("--kind", choices=KINDS, default="single", help="single: one job; array: a sweep, divided among the tasks of an array; "
        "requeue: a job that saves what it needs, goes back into the queue and goes on, until it is done")  # fmt: skip
    add("--out", metavar="FILE", help="the script (default: print it)")
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
    add("--setup", type=line, action="append", default=[], metavar="LINE", help="a line to run first, such as "
        "'module load gcc'; may be given several times")  # fmt: skip
    add("--mpi", choices=LAUNCHERS, help="how ranks are started: by srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI); by "
        "srun alone, where the system has set it up for its own MPI library; or by mpiexec inside the allocation (default: "
        "under Slurm pmi2 or pmix, as the MPI library of this Python needs; elsewhere, and for programs that start jobs "
        "themselves, mpiexec)")  # fmt: skip
    add("--library", choices=("mpich", "openmpi"), help="the MPI library (default: that of this Python)")
    add("--warn", type=whole(1), default=300, metavar="SECONDS", help="with requeue: how long before the time limit a job "
        "saves what it needs; long enough for a step and a checkpoint")  # fmt: skip
    add("--restarts", type=whole(0), default=20, metavar="N", help="with requeue: how often the job starts again at most; "
        "on plain mpirun, how often in a row without a newer checkpoint")  # fmt: skip
    add("--parts", type=whole(1), default=4, metavar="N", help="with array: tasks of the array")
    return parser


def option_of(arguments, name):
    """What stands behind an option in the arguments of a program, or None."""
    for i, word in enumerate(arguments):
        if word == name and i + 1 < len(arguments):
            return arguments[i + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def job_of(args):
    """The Job of these options. ValueError if they do not fit together."""
    name, *arguments = args.program
    queue = args.system != "mpirun"
    gather = ""
    if given := [option for option in OF_QUEUES if getattr(args, option) and not queue]:
        raise ValueError(f"--{given[0]} is for batch systems, and --system mpirun is none: leave it out")
    if args.qos and args.system == "pbs":
        raise ValueError("--qos is Slurm's: leave it out, or name a queue of PBS with --partition")
    if args.mpi not in (None, "mpiexec") and args.system != "slurm":
        raise ValueError(f"--mpi {args.mpi} is for srun, which --system {args.system} does not have: use --mpi mpiexec")
    if not all(word.isprintable() for word in (*args.program, os.getcwd(), args.out or "")):
        raise ValueError("the program's options, the folder and --out must each be one line")
    seconds = args.time or HOUR
    if args.kind == "array":
        if name != "sweep" or {"--part", "--gather", "--predict"} & {word.partition("=")[0] for word in arguments}:
            raise ValueError("--kind array divides a sweep among jobs: give -- sweep and what is to run, without --part")
        gather = gather_command(arguments, args.parts)
    elif args.kind == "requeue":
        if name not in GO_ON:
            raise ValueError(f"{name} can not go on where it stopped: --kind requeue is for {', '.join(GO_ON)}")
        if queue and args.warn >= seconds:
            raise ValueError(f"--warn {args.warn} s is not shorter than --time, {seconds} s: the job would end as it begins")
        if args.system == "pbs" and args.out is None:
            raise ValueError("a job of PBS goes on by submitting its script again: name it with --out")
        if name == "train":
            arguments += resume_words(arguments)
        if not queue:
            name, arguments = "supervise", supervised(name, arguments, args)
    if args.library is None:
        args.library = "openmpi" if MPI.get_vendor()[0] == "Open MPI" else "mpich"
    serial = starts_jobs([name, *arguments])
    fitting = "mpiexec" if serial or args.system != "slurm" else {"openmpi": "pmix", "mpich": "pmi2"}[args.library]
    return Job(
        args.system, args.kind, args.name or name, args.nodes, args.ranks_per_node, args.cores, seconds, args.warn,
        args.mpi or fitting, find_mpiexec(), args.library == "openmpi", python_words(name, arguments), serial, os.getcwd(),
        args.parts, args.restarts, args.out and str(Path(args.out).resolve()), args.partition, args.account, args.qos,
        args.setup, gather,
    )  # fmt: skip


def python_words(name, arguments):
    return [sys.executable, *as_module(name), *arguments]


def gather_command(arguments, parts):
    """The command that puts the files of all parts of a sweep together."""
    out = Path(option_of(arguments, "--out") or "results/sweep.jsonl")
    files = f"{shlex.quote(str(out.with_suffix('')))}-*-of-{parts}{shlex.quote(out.suffix) if out.suffix else ''}"
    return f"{shlex.join(python_words('sweep', ['--out', str(out), '--gather']))} {files}"


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
        text = script(job_of(args))
        check_syntax(text)
        if args.out:
            check_writable(args.out)
            write_text(args.out, text)
    print(f"{args.out} written: look through it, then {SYSTEMS[args.system]} {args.out}" if args.out else text.rstrip())


if __name__ == "__main__":
    run_launcher(main)
