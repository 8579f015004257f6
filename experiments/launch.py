"""Start a job on this machine with the launcher that belongs to this Python, whichever MPI library that is.

    gridgrad launch 4 train --grid batch=2,model=2
    gridgrad launch 4 mine.py

The same as `mpiexec -n 4 gridgrad train ...` with the environment variables that the library needs: one BLAS thread a rank,
yielding where there are more ranks than cores, and permission to run as root under Open MPI. Ctrl-C and SIGTERM end the whole
job, and no process and no file in /dev/shm remains. With `--hosts` this machine plays several hosts, for which root is needed.
So it can also be the launcher of programs that start jobs:

    sudo MPIEXEC="gridgrad launch --hosts 4" gridgrad sweep ...
"""

import argparse
import os
import re
import shutil
import signal
import sys

from gridgrad.experiments.common import programs
from gridgrad.experiments.common.options import Parser, check_startable, number, user_input, whole
from gridgrad.experiments.emulation import hosts
from gridgrad.experiments.launching.start_ranks import Foreground
from gridgrad.parallel.job.run import run_launcher

EXAMPLE = "such as: gridgrad launch 4 train"


def options():
    parser = Parser(prog="launch", description="Start a program on several ranks, here or on emulated hosts.",
                    usage="%(prog)s [OPTIONS] RANKS PROGRAM [ARGUMENTS]")  # fmt: skip
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="RANKS PROGRAM [ARGUMENTS]", help="the number of ranks, and "
        "the program: one of gridgrad, such as train, a file, such as mine.py, or a module")  # fmt: skip
    parser.add_argument("-n", dest="ranks", type=whole(1), metavar="RANKS", help="in place of RANKS, as mpiexec has it: then "
        "PROGRAM is any executable")  # fmt: skip
    played = parser.add_argument_group("emulated hosts", "Linux and root are needed. Each host has a network of its own.")
    played.add_argument("--hosts", type=whole(1, hosts.LAUNCHER - 1), metavar="H", help="number of hosts")
    played.add_argument("--rate", type=number(least=0), metavar="MBIT", help=f"Mbit/s of a host's cable; 0: no limit (default: "
        f"{hosts.EmulatedJob.rate:g})")  # fmt: skip
    played.add_argument("--delay", type=number(least=0), metavar="US", help="microseconds from host to host, one way "
        f"(default: {hosts.EmulatedJob.delay:g})")  # fmt: skip
    return parser


def job_of(args):
    """(ranks, the words of the program that each runs). ValueError if either is missing."""
    words = list(args.words)
    try:
        ranks = args.ranks or whole(1)(words.pop(0) if words else "")
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"the number of ranks {error}: begin with it, {EXAMPLE}") from None
    check_startable(ranks)
    if not words:
        raise ValueError(f"name the program that the {ranks} ranks run, {EXAMPLE}")
    if args.ranks and not shutil.which(words[0]):
        raise ValueError(f"there is no program '{words[0]}' on the PATH: name an executable, or leave -n out, {EXAMPLE}")
    return ranks, words if args.ranks else [sys.executable, *programs.words_of(words[0]), *words[1:]]


def check_job(args, ranks):
    """Raise ValueError for a program that does not suit a job of so many ranks: see `programs.check_job`."""
    wanted, _ = job_of(args)
    name, *arguments = args.words if args.ranks else args.words[1:]
    programs.check_enough(wanted, ranks, f"the job of {name}")
    if not args.ranks and name in (*programs.FRONT, programs.STUDY):
        programs.check_job([name, *arguments], wanted)


def main():
    args = options().parse_args()
    with user_input():
        sys.path.insert(0, os.getcwd())  # where the ranks look for modules first
        ranks, command = job_of(args)
        network = {name: getattr(args, name) for name in ("rate", "delay") if getattr(args, name) is not None}
        if args.hosts:
            if re.search(r"\blaunch\b", os.environ.get("MPIEXEC", "")):  # that is this program: it needs the launcher behind it
                del os.environ["MPIEXEC"]
            status = hosts.run(hosts.EmulatedJob(args.hosts, ranks, tuple(command), **network))
        elif network:
            raise ValueError(f"--{next(iter(network))} is of the network between emulated hosts: add --hosts")
        else:
            job = Foreground()
            status = job.run(ranks, command)
            if job.signalled == signal.SIGINT:
                raise KeyboardInterrupt
    sys.exit(status)


if __name__ == "__main__":
    run_launcher(main)
