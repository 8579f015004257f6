"""The command `gridgrad NAME ...`, which runs the program NAME, and `gridgrad study NAME ...`, which runs a study."""

import re
import runpy
import sys

import gridgrad
from gridgrad.experiments.common import programs
from gridgrad.experiments.common.programs import FRONT, STUDY, description, studies
from gridgrad.startup import speaks

USAGE = """usage: gridgrad NAME [OPTIONS]
       gridgrad NAME --help
       gridgrad help TOPIC
       gridgrad study [NAME [OPTIONS]]
       gridgrad --version

Run a program, alone or as a rank: mpiexec -n 4 gridgrad train --grid batch=4

"""
STUDIES_USAGE = """usage: gridgrad study NAME [OPTIONS]
       gridgrad study NAME --help

Each study measures or compares something, and answers a question:

"""
TOPICS_USAGE = "usage: gridgrad help TOPIC\n\nHow the values of these options are written:\n\n"
COMPLETION_USAGE = "usage: gridgrad completion bash|zsh\n\nPrint what makes a shell complete programs, options and choices."
SHELLS, HELP = ("bash", "zsh"), ("-h", "--help")


def main():
    name, *rest = sys.argv[1:] or ["--help"]
    asked = not rest or rest[0] in HELP
    if name in HELP:
        say(USAGE + table(sentences()))
    elif name == "--version":
        say(f"gridgrad {gridgrad.__version__}")
    elif name in FRONT:
        start(name, rest)
    elif name == "help":
        help_on(None if asked else rest[0], rest[1:])
    elif name == "completion":
        say(COMPLETION_USAGE if asked else completion(rest[0]))
    elif name != STUDY:
        refuse(programs.there_is_none(name), "gridgrad --help")
    elif asked:
        say(STUDIES_USAGE + table({name: description(name) for name in studies()}))
    elif programs.study_of(rest[0]):
        start(rest[0], rest[1:])
    else:
        refuse(programs.there_is_none(rest[0], STUDY), "gridgrad study")


def sentences():
    """{what may stand behind `gridgrad`: its sentence}."""
    return {name: description(name) for name in FRONT} | {
        STUDY: f"Answer one of {len(studies())} questions.",
        "help": "Say how nets, grids, plans, protocols and so on are written.",
        "completion": "Print what makes a shell complete all this.",
    }


def start(name, arguments):
    """Be the program."""
    sys.argv[1:] = arguments
    runpy.run_module(f"{programs.PACKAGE}.{programs.module_of(name)}", run_name="__main__", alter_sys=True)


def topics():
    """{topic: (its sentence, its text)} of help.md."""
    words = re.split(r"^## (\w+): (.*)\n\n", (programs.FOLDER / "help.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {name: (sentence, text.rstrip()) for name, sentence, text in zip(words[::3], words[1::3], words[2::3])}


def help_on(topic, rest):
    """Print a topic, or what a program's --help prints; without one the list of them."""
    found = topics()
    if topic is None:
        say(TOPICS_USAGE + table({name: sentence for name, (sentence, _) in found.items()}))
    elif topic in found:
        say("\n".join(found[topic]).replace("\n", "\n\n", 1))
    elif topic in FRONT:
        start(topic, ["--help", *rest])
    else:
        refuse(f"there is no help on {topic}{programs.suggestion(topic, (*found, *FRONT))}", "gridgrad help")


def completion(shell):
    """The script by which a shell completes programs, their options and choices."""
    if shell not in SHELLS:
        refuse(f"there is no completion for {shell}: use {' or '.join(SHELLS)}", "gridgrad completion --help")
    import argparse

    import shtab

    def add(commands, names):
        for name in names:
            parser = programs.parser_of(name)
            for action in parser._actions:
                if kind := re.match("FILE|DIR", str(action.metavar)):
                    action.complete = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}[kind[0]]
            commands.add_parser(name, parents=[parser], add_help=False, help=description(name))

    root, words = argparse.ArgumentParser(prog="gridgrad"), sentences()
    root.add_argument("--version", action="store_true", help="print the version")
    commands = root.add_subparsers(parser_class=argparse.ArgumentParser)
    add(commands, FRONT)
    add(commands.add_parser(STUDY, help=words[STUDY]).add_subparsers(), studies())
    commands.add_parser("help", help=words["help"]).add_argument("topic", choices=[*topics(), *FRONT])
    commands.add_parser("completion", help=words["completion"]).add_argument("shell", choices=SHELLS)
    return shtab.complete(root, shell)


def table(sentences):
    """A line for each name, with its sentence."""
    width = max(map(len, sentences))
    return "\n".join(f"  {name:{width}}  {sentence}" for name, sentence in sentences.items())


def say(text):
    """Print a text once, however many ranks there are."""
    if speaks():
        try:
            print(text, flush=True)
        except OSError as error:
            from gridgrad.parallel.job.run import end_unwritten

            end_unwritten(error)


def refuse(what, where):
    """End with a line, however many ranks there are."""
    from gridgrad.parallel.job.run import UserError, run  # late: with all that it imports it takes longer than --help

    def fail():
        raise UserError(f"{what} (see {where})")

    run(fail)
