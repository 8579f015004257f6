"""Halstead's measures of what a program adds to another one, counted as Grabaskas (2018, TorchAD-NN) counts.

The thesis (section 3.3.1) calls operators "keywords and symbols used to define a function", function calls among them, and
operands "any variable or number". Its Tables 4.9 to 4.12 give both for each added line of Lua, from which these rules follow:

- operators: keywords, `self` too; symbols, the dot and the comma too; a pair of brackets; a pair of quotes; the name of a
  function where it is called (or defined);
- operands: all other names; numbers; True, False and None; the words within quotes, whose symbols are operators.

The unit is the statement: what is added are the statements that the serial program has not, or has not in this order.
A changed statement is added as a whole; comments, docstrings and indentation do not count.

radon's `HalsteadVisitor` knows only arithmetic, comparisons and their operands: a program of calls, attributes and
assignments, such as the one call, is of effort 0 to it.
"""

import ast
import io
import keyword
import re
import tokenize
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import log2

KEYWORDS = frozenset({*keyword.kwlist, "self"} - {"True", "False", "None"})
PAIRS = {"(": ")", "[": "]", "{": "}"}
QUOTES = "\"'"
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
BLOCKS = ("body", "orelse", "handlers", "finalbody")


@dataclass(frozen=True)
class Halstead:
    """Table 3.7 of the thesis. n1, n2: distinct operators and operands; N1, N2: all of them.

    effort: in elementary mental discriminations; time: in seconds, at 18 discriminations a second.
    """

    n1: int
    n2: int
    N1: int
    N2: int

    @property
    def volume(self):
        return (self.N1 + self.N2) * log2(self.n1 + self.n2) if self.n1 + self.n2 else 0.0

    @property
    def difficulty(self):
        return self.n1 / 2 * self.N2 / self.n2 if self.n2 else 0.0

    @property
    def effort(self):
        return self.volume * self.difficulty

    @property
    def time(self):
        return self.effort / 18


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
    """The Halstead measures of these statements together."""
    symbols = [symbol for _, tokens in statements for symbol in classified(tokens, keywords)]
    operators = [text for is_operator, text in symbols if is_operator]
    operands = [text for is_operator, text in symbols if not is_operator]
    return Halstead(len(set(operators)), len(set(operands)), len(operators), len(operands))


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


def radon_effort(source, statements):
    """The effort of these statements of `source` as radon counts it."""
    from radon.metrics import halstead_visitor_report
    from radon.visitors import HalsteadVisitor

    lines, visitor = {number for number, _ in statements}, HalsteadVisitor()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno in lines:
            for block in BLOCKS:  # its header alone: the statements within are added or not by themselves
                if hasattr(node, block):
                    setattr(node, block, [])
            visitor.visit(node)
    return halstead_visitor_report(visitor).effort
