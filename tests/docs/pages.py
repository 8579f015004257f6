"""Reading the Markdown pages: their blocks of code, and applying the changes that a page shows to files."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
BLOCK = re.compile(r"^```(\{?[\w-]*\}?)(?: \S+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGE = re.compile(r"^(?:--- a/\S+\n)?\+\+\+ b/(\S+)\n((?:(?!--- a/|\+\+\+ b/).*\n)+)", re.MULTILINE)


def blocks(page, language):
    """The blocks of a page in a language, in their order. page: relative to the repository."""
    return [block for found, block in BLOCK.findall((ROOT / page).read_text()) if found == language]


def program(page):
    """The Python blocks of a page as one program."""
    return "\n".join(blocks(page, "python"))


def changes(page):
    """[(path, [(old text, new text)])] for each file in the diffs of a page, whose hunks are divided by lines with @@."""
    return [
        (path, [sides(hunk) for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE)])
        for diff in blocks(page, "diff")
        for path, body in CHANGE.findall(diff)
    ]


def sides(hunk):
    """(the old, the new lines) of a hunk: those that begin with a space stand in both."""
    lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
    return tuple("".join(text for mark, text in lines if mark in (" ", side)) for side in "-+")


def changed(text, hunks):
    """The text after these changes. Fails unless each old part stands in it exactly once."""
    for old, new in hunks:
        assert text.count(old) == 1, f"the page changes lines that are not in the file, or several times:\n{old}"
        text = text.replace(old, new)
    return text
