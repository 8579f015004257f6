"""Usability in Grabaskas 2018: Equation 3.1 and Halstead's effort, of its programs and of ours with the same purpose."""

from functools import lru_cache

from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.grabaskas2018.derived import COMPLEXITY, EFFORT
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER
from gridgrad.experiments.papers.items import Item, ItemRow
from gridgrad.experiments.studies.usability.__main__ import KEYWORDS, QUOTES, added, measure, programs, source, statements

LUA = frozenset({"local", "for", "do", "if", "then", "elseif", "else", "end", "function", "return", "self"})
PROGRAMS = {  # of the thesis: the table with its added lines, and our program with the same purpose
    "Manual Backward()": ("4.9", "by_hand_data"),
    "Automated Backward()": ("4.10", "data"),
    "Manual SGD Train()": ("4.11", "by_hand_data"),
    "Automated SGD Train()": ("4.12", "data"),
}
OF_MODEL = {"Manual Model Parallel SGD Train()": "by_hand_model", "Auto Model Parallel SGD Train()": "model"}
RESULTS = "results/usability.json"
COMMAND = "study usability"
WHY = "One call against many statements: but Lua and Python are counted by different rules, and do not compare one to one."


def lua(table):
    """The statements of the code that a table of the thesis prints."""
    return statements("".join(f"{row['code']}\n" for row in published(PAPER).tables[table].lines()))


def calls(chosen, keywords):
    """How many functions some statements call: names in front of a bracket or, in Lua, of a text."""
    return sum(
        token not in keywords and (token[0].isalpha() or token[0] == "_") and following.startswith(("(", *QUOTES))
        for _, tokens in chosen
        for token, following in zip(tokens, tokens[1:])
    )


def complexity(program):
    """Equation 3.1 of a program of the thesis, a Cited: calls are counted in the lines that it prints."""
    table, _ = PROGRAMS[program]
    known = published(PAPER)
    operands = known.tables["totals"].cited("N2", program)
    return COMPLEXITY(len(known.tables[table].rows), calls(lua(table), LUA), operands)


@lru_cache
def our_complexity(name):
    """Equation 3.1 of what one of our programs adds to its serial program."""
    text, serial = programs()[name]
    chosen = added(text, source(serial))
    return COMPLEXITY.value(len(chosen), calls(chosen, KEYWORDS), measure(chosen).N2)


def effort_of_totals(program):
    """Halstead's effort that follows from the totals that the thesis prints for a program, a Cited."""
    totals = published(PAPER).tables["totals"]
    return EFFORT(*(totals.cited(name, program) for name in ("n1", "n2", "N1", "N2")))


def equation():
    """Equation 3.1 as an item: the thesis defines it and prints no number of it."""
    rows = tuple(
        ItemRow(f"{program}, Table {table} (here {ours})", complexity(program), our_complexity(ours))
        for program, (table, ours) in PROGRAMS.items()
    )
    return Item(
        "Equation 3.1", "complexity: lines of code x function calls x operands", "section 3.3.1", rows, WHY, RESULTS,
        command=COMMAND, reason="The thesis prints no value: it follows from the lines of code of Tables 4.9 to 4.12.",
        compares=False,
    )  # fmt: skip


def halstead():
    """Tables 4.9 to 4.12: printed totals, the effort that follows from them, and the totals that our rules count."""
    known, rows = published(PAPER), []
    for program, (table, _) in PROGRAMS.items():
        counted = measure(lua(table), LUA)
        for name in ("n1", "n2", "N1", "N2"):
            rows.append(ItemRow(f"Table {table}: {name}", known.tables["totals"].cited(name, program), getattr(counted, name)))
        rows.append(ItemRow(f"Table {table}: effort", effort_of_totals(program), counted.effort))
        rows.append(ItemRow(f"Table {table}: effort printed in Table 4.13", known.tables["4.13"].cited("effort", program)))
    return Item(
        "Tables 4.9 to 4.12", "Halstead's measures of the lines of Lua, as the thesis counts and as our rules count them",
        "section 4.1.3", tuple(rows),
        "Table 4.11 does not have the effort that Table 4.13 prints for it; the others do.",
        command=COMMAND, processor="counted in the printed lines, on any processor",
    )  # fmt: skip


def used(tables, name, title, columns, source):
    """Table 4.13 or 4.20: programs of the thesis beside those of ours with the same purpose."""
    ours = {row["program"].removeprefix("gridgrad: "): row for row in tables[name]}
    same = {program: mine for program, (_, mine) in PROGRAMS.items() if "Backward" in program} | OF_MODEL
    rows = []
    for row in published(PAPER).tables[name].lines():
        mine = same.get(row["program"], "")
        for column in columns:
            label = f"{row['program']}{f' (here {mine})' if mine in ours else ''}: {column}"
            cited = published(PAPER).tables[name].cited(column, row["program"])
            rows.append(ItemRow(label, cited, ours.get(mine, {}).get(f"{column}, measured")))
    return Item(
        f"Table {name}", title, source, tuple(rows), WHY, RESULTS, command=COMMAND,
        reason="Programs without a counterpart here have no measured number.", processor="counted, on any processor",
        compares=False,
    )  # fmt: skip
