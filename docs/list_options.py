"""Writes docs/options.md, the list of every option of the programs: `python -m docs.list_options`.

Options that are arguments of a function too have one name, one default and one text: `SAME` says which. The text is that of the
docstring, where --help and the API reference find it.
"""

import argparse
import re
import textwrap
from pathlib import Path

from gridgrad.experiments.common.programs import FRONT, parser_of
from gridgrad.nn import SGD, Sequential
from gridgrad.nn.files.whole_files import write_text
from gridgrad.parallel import Trace, Watchdog, parallelize, resumable_steps, use_device

PAGE = Path(__file__).with_name("options.md")
DESCRIBED = {  # option of train: the function whose argument of this name it is, and whose docstring has its text
    **dict.fromkeys(("grid", "plan", "memory", "reduction", "update", "reduce_dtype", "batch_size", "shares"), parallelize),
    **dict.fromkeys(("pipeline", "micro_batches", "cuts"), parallelize),
    **dict.fromkeys(("device", "tf32"), use_device),
}  # fmt: skip
SAME = DESCRIBED | {
    **dict.fromkeys(("checkpoint", "checkpoint_steps", "checkpoint_minutes", "keep"), resumable_steps),
    **dict.fromkeys(("lr", "momentum", "nesterov", "l1", "l2"), SGD),
    **dict.fromkeys(("seed", "dtype"), Sequential),
    "trace_steps": Trace,
    "watchdog": Watchdog,
}
HEAD = """# Every option

Written by `python -m docs.list_options`. `gridgrad NAME --help` prints the same texts; the studies have theirs in
`gridgrad study NAME --help`. In parentheses stand the default and, behind "in Python", the function that has an argument of the
same name and meaning. `train` gives its optimizers a learning rate and a momentum, which `SGD` leaves to the script; all other
defaults are the same.

"""
WIDTH = 128  # characters of a line


def groups(parser, prefix=""):
    """(title, actions) of each group of options of a parser, and of the parsers of its own commands."""
    for group in parser._action_groups:
        commands = [action for action in group._group_actions if isinstance(action, argparse._SubParsersAction)]
        for command in commands:
            for name, inner in command.choices.items():
                yield from groups(inner, f"{name}, ")
        yield (
            f"{prefix}{group.title}",
            [one for one in group._group_actions if one not in commands and one.dest != argparse.SUPPRESS],
        )


def parts(parser, action):
    """(the option as it is typed, its default, what it does)."""
    formatter = parser._get_formatter()
    before, default, after = re.fullmatch(r"(.*?)(?: \(default: ([^)]*)\)(.*))?", formatter._expand_help(action)).groups("")
    return formatter._format_action_invocation(action), default, f"{before}{after}"


def item(name, default, function, text):
    """The lines of an option in a list, which are never broken inside code."""
    value = default if " " in default else f"`{default}`"  # words, or what may be typed
    notes = "; ".join([f"default: {value}"] * bool(default) + [f"in Python: `{function}`"] * bool(function))
    words = f"- **`{name}`**{f' ({notes})' if notes else ''}: {text}"
    whole = re.sub("`[^`]*`", lambda code: code.group().replace(" ", "\0"), words)
    lines = textwrap.wrap(whole, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def section(program):
    """The options of a program, with its headings."""
    parser = parser_of(program)
    lines = [f"## {program}", ""]
    for title, actions in groups(parser):
        if not actions:
            continue
        lines += [f"### {program}: {title}", ""]
        for action in actions:
            name, default, text = parts(parser, action)
            function = SAME[action.dest].__name__ if program == "train" and action.dest in SAME else ""
            lines.append(item(name, default, function, text))
        lines.append("")
    return "\n".join(lines)


def page():
    return HEAD + "\n".join(section(program) for program in FRONT)


if __name__ == "__main__":
    write_text(PAGE, page())
