"""Writes docs/options.md, the list of every option of the programs: `python -m docs.list_options`.

Options that are arguments of a function too have one name, one default and one text: `SAME` says which. The text is that of the
docstring, where --help and the API reference find it.
"""

import argparse
from pathlib import Path

from gridgrad.experiments.common.programs import FRONT, parser_of
from gridgrad.nn import SGD, Sequential
from gridgrad.nn.whole_files import write_text
from gridgrad.parallel import Trace, Watchdog, parallelize, resumable_steps, use_device

PAGE = Path(__file__).with_name("options.md")
DESCRIBED = {  # option of train: the function whose argument of this name it is, and whose docstring has its text
    **dict.fromkeys(
        ("grid", "plan", "memory", "reduction", "update", "reduce_dtype", "batch_size", "shares", "pipeline", "micro_batches", "cuts"),
        parallelize,
    ),
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
`gridgrad study NAME --help`. Where a function has an argument of the same name and meaning, the column "in Python" names it.
`train` gives its optimizers a learning rate and a momentum, which `SGD` leaves to the script; all other defaults are the same.

"""


def rows(parser):
    """(group, rows of the table) for each group of options of a parser."""
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        found = []
        for action in group._group_actions:
            if action.dest in ("help", argparse.SUPPRESS) or isinstance(action, argparse._HelpAction):
                continue
            text, _, default = formatter._expand_help(action).rpartition(" (default: ")
            text, default = (text, default.removesuffix(")")) if default.endswith(")") and text else (f"{text}{default}", "-")
            name = formatter._format_action_invocation(action)
            found.append((name, default, text))
        yield group.title, found


def table(program):
    """The section of a program."""
    lines = [f"## {program}", ""]
    for title, found in rows(parser_of(program)):
        if not found:
            continue
        heads = (
            ("option", "default", "in Python", "what it does") if program == "train" else ("option", "default", "what it does")
        )
        lines += [f"### {program}: {title}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for name, default, text in found:
            function = SAME.get(name.split(" ")[0].removeprefix("--").replace("-", "_"))
            python = [f"`{function.__name__}`" if function else ""] if program == "train" else []
            cells = [f"`{name}`", f"`{default}`" if default != "-" else "", *python, text]
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def page():
    return HEAD + "\n".join(table(program) for program in FRONT)


if __name__ == "__main__":
    write_text(PAGE, page())
