"""The command `gridgrad NAME ...`, or `python -m experiments NAME ...`, which runs the program NAME."""

import runpy
import sys

from experiments.common.programs import PACKAGE, programs, source
from experiments.common.version import version
from parallel.job.run import UserError, launched_rank, run

COMMAND = "gridgrad" if PACKAGE.startswith("gridgrad.") else "python -m experiments"
USAGE = f"""usage: {COMMAND} NAME [OPTIONS]
       {COMMAND} NAME --help
       {COMMAND} --version

Run a program, alone or as a rank: mpiexec -n 4 {COMMAND} train --grid batch=4

"""


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        say(listing())
    elif name == "--version":
        say(f"gridgrad {version()}")
    elif source(name):
        del sys.argv[1]
        runpy.run_module(f"{PACKAGE}.{name}", run_name="__main__", alter_sys=True)
    else:
        run(lambda: refuse(name))


def listing():
    """How the command is used, and what the programs do."""
    found = programs()
    width = max(map(len, found))
    return USAGE + "\n".join(f"  {name:{width}}  {sentence}" for name, sentence in found.items())


def say(text):
    """Print a text once, however many ranks there are."""
    if launched_rank() == 0:
        print(text, flush=True)


def refuse(name):
    raise UserError(f"there is no program {name} (see --help)")
