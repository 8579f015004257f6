"""What our one call costs a user, by Halstead's measures, beside the same training made parallel by hand and with PyTorch.

    gridgrad study usability

The programs are beside this one, and each prints the same losses on any number of ranks: `automatic`, `data`, `model` and `2d`
(our one call and its import; three name their grid) and `by_hand_data`, `by_hand_model`, `by_hand_2d` (mpi4py) are `serial.py`
made parallel, `ddp` is `torch_serial.py` with DistributedDataParallel. Nothing is run. It is counted as Grabaskas (2018,
TorchAD-NN) counts, whose Tables 4.9 to 4.12 give operators and operands of each added line of Lua:

- operators: keywords, `self` too; symbols, the dot and the comma too; a pair of brackets; a pair of quotes; the name of a
  function where it is called (or defined);
- operands: all other names; numbers; True, False and None; the words within quotes, whose symbols are operators.

What is added are the statements that the serial program has not, or not in this order, each as a whole; comments, docstrings
and indentation do not count.
"""

import io
import keyword
import re
import tokenize
from collections import namedtuple
from difflib import SequenceMatcher
from math import log2
from pathlib import Path
from platform import python_version

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, user_input, writable_beside
from gridgrad.experiments.common.tables import lines, terminal
from gridgrad.parallel.job.run import run_launcher

CALL = "net = parallelize(net)"
GRIDS = {"data": "batch=4", "model": "model=4", "2d": "batch=2,model=2"}
SERIAL = ("serial", "torch_serial")
BY_HAND = ("by_hand_data", "by_hand_model", "by_hand_2d")
KEYWORDS = frozenset({*keyword.kwlist, "self"} - {"True", "False", "None"})
PAIRS = {"(": ")", "[": "]", "{": "}"}
QUOTES = "\"'"
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
EASIER = {  # {one call: the programs that it is compared with}: the same parallelism by hand, or by PyTorch
    "automatic": ("ddp",), "data": ("by_hand_data", "ddp"), "model": ("by_hand_model",), "2d": ("by_hand_2d",),
}  # fmt: skip # and `automatic` with the easiest by hand
Halstead = namedtuple("Halstead", "n1 n2 N1 N2 volume difficulty effort time")
TEXT = """# What making a training parallel costs its author

Written by `gridgrad study usability`: Halstead's measures of the statements that each program of
`experiments/studies/usability` adds to its serial program, counted as Grabaskas 2018 counts; effort in elementary
discriminations, time at 18 of them a second.
"""


def source(name):
    """The text of a program of this folder."""
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


def one_call(grid=None):
    """The program with our one call, on a grid such as "batch=4" or on that of the planner."""
    return source("automatic").replace(CALL, f'net = parallelize(net, "{grid}")' if grid else CALL)


def programs():
    """{name: (text, name of the serial program)} of all that is measured."""
    ours = {"automatic": one_call()} | {name: one_call(grid) for name, grid in GRIDS.items()}
    ours |= {name: source(name) for name in BY_HAND}
    return {name: (text, "serial") for name, text in ours.items()} | {"ddp": (source("ddp"), "torch_serial")}


def measures(chosen):
    """Lines (statements) and Halstead's measures of some statements, as a dict."""
    return {"lines": len(chosen), **measure(chosen)._asdict()}


def results():
    """{program: measures of what it adds, "serial", "whole": measures of all of it, "less_effort_than": {program: percent}}."""
    rows = {}
    for name, (text, serial) in programs().items():
        rows[name] = {"serial": serial, **measures(added(text, source(serial))), "whole": measures(statements(text))}
    easiest = min(BY_HAND, key=lambda name: rows[name]["effort"])
    for name, others in (EASIER | {"automatic": (easiest, *EASIER["automatic"])}).items():
        rows[name]["less_effort_than"] = {other: 100 * (1 - rows[name]["effort"] / rows[other]["effort"]) for other in others}
    return rows


def document(rows, serial):
    """The results as Markdown. serial: {program: measures of all of it} of the two that the others add to."""
    yield TEXT
    yield lines([
        {"program": f"`{name}`", "added to": f"`{row['serial']}`", **{of: row[of] for of in ("lines", "n1", "n2", "N1", "N2")},
         "volume": f"{row['volume']:.0f}", "difficulty": f"{row['difficulty']:.1f}", "effort": f"{row['effort']:,.0f}",
         "time": f"{row['time']:.0f} s", "less effort than":
         ", ".join(f"`{other}` {saved:.1f} %" for other, saved in row.get("less_effort_than", {}).items()) or "-"}
        for name, row in rows.items()
    ])  # fmt: skip
    yield "\nThe whole programs:\n"
    whole = serial | {name: row["whole"] for name, row in rows.items()}
    yield lines([{"program": f"`{name}`", "lines": row["lines"], "effort": f"{row['effort']:,.0f}"}
                 for name, row in whole.items()])  # fmt: skip


def statements(source):
    """[(number of its first line, its tokens as strings)] of each statement; of `for` and the like that is the header."""
    found, line = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            if any(t.type != tokenize.STRING for t in line):  # otherwise it is a docstring
                found.append((line[0].start[0], tuple(t.string for t in line)))
            line = []
        elif token.type not in SKIPPED:
            line.append(token)
    return found


def added(source, base):
    """Those statements of `source` that `base` lacks."""
    new, old = statements(source), [tokens for _, tokens in statements(base)]
    edits = SequenceMatcher(None, old, [tokens for _, tokens in new], autojunk=False).get_opcodes()
    return [statement for kind, _, _, start, stop in edits if kind in ("insert", "replace") for statement in new[start:stop]]


def measure(statements, keywords=KEYWORDS):
    """The Halstead measures of these statements together (Table 3.7 of the thesis): distinct operators and operands, all of
    them, effort in elementary mental discriminations, and seconds at 18 of them a second."""
    symbols = [symbol for _, tokens in statements for symbol in classified(tokens, keywords)]
    operators = [text for is_operator, text in symbols if is_operator]
    operands = [text for is_operator, text in symbols if not is_operator]
    n1, n2, N1, N2 = len(set(operators)), len(set(operands)), len(operators), len(operands)
    volume = (N1 + N2) * log2(n1 + n2) if n1 + n2 else 0.0
    difficulty = n1 / 2 * N2 / n2 if n2 else 0.0
    return Halstead(n1, n2, N1, N2, volume, difficulty, volume * difficulty, volume * difficulty / 18)


def classified(tokens, keywords):
    """(whether it is an operator, its text) of each operator and operand of a statement."""
    for token, following in zip(tokens, (*tokens[1:], "")):
        if token[0] in QUOTES:
            yield True, "''"
            yield from classified(re.findall(r"\w+|[^\w\s]", token.strip(QUOTES)), ())
        elif token[0].isalnum() or token[0] == "_":
            is_called = following.startswith(("(", *QUOTES))  # in Lua `require 'name'` is a call
            yield token in keywords or is_called, token
        elif token not in PAIRS.values():
            yield True, token + PAIRS.get(token, "")


def options():
    parser = Parser(prog="study usability", description="What does making a training parallel cost its author?")
    words = "the numbers; the table goes beside, as .md"
    parser.add_argument("--out", default="results/usability.json", metavar="FILE.json", help=words)
    return parser


def main():
    path = options().parse_args().out
    with user_input():
        table = writable_beside(path, ".md", ("numbers", "table"))
    rows, serial = results(), {name: measures(statements(source(name))) for name in SERIAL}
    report.write_json(path, {"programs": rows, "serial": serial, "versions": {"python": python_version()}})
    text = "\n".join(document(rows, serial)) + "\n"
    report.write_text(table, text)
    print(f"{terminal(text)}\nwritten to {path} and {table}")


if __name__ == "__main__":
    run_launcher(main)
