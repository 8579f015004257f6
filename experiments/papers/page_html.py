"""The page of all papers as HTML: one file without scripts, readable on a phone, in light and in dark."""

import re
from html import escape

from markupsafe import Markup

from gridgrad.experiments.common.tables import cell
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import MISSING, deviation

LONG = 14  # rows; of longer tables those without a number of the paper are closed at first
CLASSES = {DIFFERS: "bad", HOLDS: "good", OPEN: "open", CONTRADICTORY: "open"}  # of verdicts


def render(page):
    """The text of the page. page: a `page.Page`."""
    made = environment(inline=inline, cell=cell, class_of=lambda kind: kind.replace(" ", "-"))
    return made.get_template("page.html.jinja").render(
        page=page, words=words, anchor=anchor, parted=parted, deviation=deviation, CLASSES=CLASSES, MISSING=MISSING
    )


def inline(text):
    """A text as Markup, with its `code` and *emphasis*."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return Markup(re.sub(r"(?<!\w)\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text))


def anchor(section, item=None):
    """The id of a section or an item."""
    return re.sub(r"\W+", "-", section.paper + (f" {item.name}" if item else "")).lower()


def parted(rows):
    """(the rows of an item that are shown, those that are closed at first, where they are many)."""
    closed = [row for row in rows if row.cited is None] if len(rows) > LONG else []
    if len(rows) - len(closed) > LONG:
        closed = rows
    return [row for row in rows if row not in closed], closed
