"""A Sphinx extension: docstrings are plain text, and this turns each into the reStructuredText that autodoc expects.

What the docstrings of this project are made of becomes: a paragraph stays one, with `code` as literals; paragraphs in which
lines begin with the names of arguments or attributes, `name: what it is`, become lists; tables of `|` become tables; paragraphs
that are indented stay as they stand, in a fixed-width font. All else that would mean something in reStructuredText is escaped.
Sections in numpydoc's form, such as Parameters, become fields, their entries definitions, and examples stay examples.
"""

import inspect
import re
import textwrap
from contextlib import suppress
from dataclasses import fields, is_dataclass

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
BEFORE, AFTER = " \n'\"([{<-/:", " \n'\")]}>-/\\:.,;!?"  # what may stand at a literal without a space in between
NAMES = r"\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*"
ARGUMENT = re.compile(rf"(?:^|(?<=[.;] )|(?<=\n))({NAMES}): ")


def literal(match):
    """`code` in reStructuredText."""
    return f"``{match.group(2).strip()}``"


def escaped(text):
    """Text that means itself, with `code` as literals."""
    parts, end = [], 0
    for found in CODE.finditer(text):
        before, after = text[max(0, found.start() - 1) : found.start()], text[found.end() : found.end() + 1]
        parts += [special(text[end : found.start()]), "\\ " if before.strip(BEFORE) else "", literal(found)]
        parts.append("\\ " if after.strip(AFTER) else "")  # such as a plural s
        end = found.end()
    return "".join([*parts, special(text[end:])])


def special(text):
    """The characters of text that have a meaning in reStructuredText, with a backslash in front."""
    text = re.sub(r"([\\*_|`])", r"\\\1", text)
    return re.sub(r"^([-+.]|\.\.|\w+[.)])(?= )", r"\\\1", text)


def known_names(thing):
    """The names of the parameters and attributes of what a docstring describes."""
    names = set(getattr(thing, "__annotations__", {}))
    with suppress(TypeError, ValueError):
        names |= set(inspect.signature(thing).parameters)
    if is_dataclass(thing):
        names |= {field.name for field in fields(thing)}
    return names


def arguments(block, names):
    """The (names, text) of a paragraph of arguments, a first pair without names for what stands before; None if it is none.

    A line that begins with a known name, or with a name that is followed by a colon, begins an argument; within a line only
    known names do.
    """
    found = [
        match
        for match in ARGUMENT.finditer(block)
        if set(re.findall(r"\w+", match.group(1))) <= names or (match.start() == 0 or block[match.start() - 1] == "\n")
    ]
    if not found or not any(match.start() == 0 or block[match.start() - 1] == "\n" for match in found):
        return None
    pairs = [("", block[: found[0].start()])] if found[0].start() else []
    stops = [match.start() for match in found[1:]] + [len(block)]
    return pairs + [(match.group(1), block[match.end() : stop]) for match, stop in zip(found, stops, strict=True)]


def one_line(text):
    return " ".join(text.split())


def paragraph(block, names):
    """The lines of one block of a docstring, between empty lines. names: as in `converted`; None where it describes none."""
    if block.startswith("|"):
        return table(block)
    if block.startswith(" "):
        return ["::", "", *textwrap.indent(textwrap.dedent(block), "    ").splitlines()]
    pairs = None if names is None else arguments(block, names)
    if pairs is None and re.match(r"- ", block):
        pairs = [(None, item) for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:]]
    if pairs is None:
        return [escaped(one_line(block))]
    lines = []
    for name, text in pairs:
        if name == "":
            lines += [escaped(one_line(text)), ""]
        else:
            lines.append(f"* {f'**{special(name)}**: ' if name else ''}{escaped(one_line(text))}")
    return lines


def table(block):
    """A table of `|`, of which the second line is a rule, as a list-table."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        lines += [f"   {'*' if place == 0 else ' '} - {escaped(cell)}".rstrip() for place, cell in enumerate(row)]
    return lines


def converted(text, names=frozenset()):
    """The lines of reStructuredText for a docstring. names: those of the parameters and attributes that it may describe."""
    before, *parts = SECTION.split(text)
    lines = paragraphs(before, names)
    for heading, section in zip(parts[::2], parts[1::2], strict=True):
        lines += [f":{heading}:", *textwrap.indent("\n".join(section_body(section)), "    ").splitlines(), ""]
    return lines


def section_body(text):
    """The lines of a section: examples as they stand, entries as definitions, and all else as paragraphs."""
    lines = []
    for block in re.split(r"\n[ \t]*\n(?![ \t])", text.strip("\n")):
        if block.startswith(">>> "):
            lines += [*block.splitlines(), ""]
        elif re.search(r"^[ \t]", block, re.MULTILINE):
            for entry in re.split(r"\n(?![ \t\n])", block):
                lines += definition(*entry.partition("\n")[::2])
        else:
            lines += paragraphs(block, None)
    return lines


def definition(term, description):
    """The lines of an entry of a section. term: a name, or `name : type`. description: indented."""
    name, colon, kind = term.partition(" : ")
    body = "\n".join(paragraphs(textwrap.dedent(description), None))
    return [f"**{special(name)}**{colon}{escaped(kind)}", *textwrap.indent(body, "    ").splitlines(), ""]


def paragraphs(text, names):
    """The lines of text without sections; see `converted`."""
    lines = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lead, rest = split_indented(block)
        for part in (lead, rest):
            if part:
                lines += [*paragraph(part, names), ""]
    return lines


def split_indented(block):
    """(the lines before the first indented one, the rest) where an example follows a sentence without an empty line."""
    lines = block.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(("    ", "|"))), len(lines))
    return "\n".join(lines[:at]), "\n".join(lines[at:])


def convert(app, what, name, thing, options, lines):
    lines[:] = converted("\n".join(lines), known_names(thing))


def setup(app):
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True}
