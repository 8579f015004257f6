"""The command `gridgrad NAME ...`, which runs the program NAME, and `gridgrad study NAME ...`, which runs a study."""

import runpy
import sys

from gridgrad.experiments.common.programs import (
    FRONT,
    PACKAGE,
    STUDY,
    description,
    module_of,
    no_study,
    renamed,
    studies,
    study_of,
    there_is_none,
)  # fmt: skip
from gridgrad.experiments.common.version import version
from gridgrad.parallel.job.run import UserError, end_unwritten, launched_rank, run

USAGE = """usage: gridgrad NAME [OPTIONS]
       gridgrad NAME --help
       gridgrad study [NAME [OPTIONS]]
       gridgrad --version

Run a program, alone or as a rank: mpiexec -n 4 gridgrad train --grid batch=4

"""
STUDIES_USAGE = """usage: gridgrad study NAME [OPTIONS]
       gridgrad study NAME --help

Each study measures or compares something, and answers a question:

"""
HELP = ("-h", "--help")


def main():
    name, *rest = sys.argv[1:] or ["--help"]
    if name in HELP:
        say(USAGE + table({name: description(name) for name in FRONT} | {STUDY: f"Answer one of {len(studies())} questions."}))
    elif name == "--version":
        say(f"gridgrad {version()}")
    elif name in FRONT:
        start(name, 1)
    elif name != STUDY:
        run(lambda: refuse(there_is_none(name), "--help" if renamed(name) is None else f"{renamed(name)} --help"))
    elif not rest or rest[0] in HELP:
        say(STUDIES_USAGE + table({name: description(name) for name in studies()}))
    elif study_of(rest[0]):
        start(rest[0], 2)
    else:
        run(lambda: refuse(no_study(rest[0]), "gridgrad study"))


def start(name, words):
    """Be the program, whose name is so many words long."""
    del sys.argv[1 : 1 + words]
    runpy.run_module(f"{PACKAGE}.{module_of(name)}", run_name="__main__", alter_sys=True)


def table(sentences):
    """A line for each name, with its sentence."""
    width = max(map(len, sentences))
    return "\n".join(f"  {name:{width}}  {sentence}" for name, sentence in sentences.items())


def say(text):
    """Print a text once, however many ranks there are."""
    if launched_rank() == 0:
        try:
            print(text, flush=True)
        except OSError as error:
            end_unwritten(error)


def refuse(what, where):
    raise UserError(f"{what} (see {where})")
